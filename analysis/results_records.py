"""What is written to a result file, as plain dataclasses (the twins of src/result/record.h)."""

from __future__ import annotations

import math
from dataclasses import dataclass, field

SCHEMA = "trainsuite"
SCHEMA_VERSION = 1
STATUSES = ("ok", "oom", "failed", "timeout", "skipped")
# What may grow beyond this many bytes is stored as a dataset instead of an attribute.
ATTRIBUTE_LIMIT_BYTES = 60_000

Value = bool | int | float | str


class ResultError(Exception):
    """A result file that cannot be read or written; one line that names it and the fix."""


@dataclass
class RankSeries:
    """One rank's value per step (warm-up included), NaN where unknown."""

    name: str  # "step_seconds"
    unit: str  # s, byte, token, 1
    values: list[float]


@dataclass
class RankRecord:
    """What one rank measured in one case."""

    rank: int
    series: list[RankSeries] = field(default_factory=list)
    facts: dict[str, Value] = field(default_factory=dict)  # scalar results of this rank
    telemetry: list[RankSeries] = field(default_factory=list)  # a value per sample


@dataclass
class RankIdentity:
    """Where a rank ran. Unknown texts are empty; memory_bytes is 0 on a CPU rank."""

    rank: int
    local_rank: int = 0
    host: str = ""
    device_name: str = ""
    uuid: str = ""
    pci_bus_id: str = ""
    memory_bytes: int = 0
    cores: str = ""  # "0-7"


@dataclass
class HostIdentity:
    """A host of the run."""

    host: str
    cpu_model: str = ""
    kernel: str = ""
    virtualisation: str = ""
    sockets: int = 0
    cores: int = 0
    ram_bytes: int = 0


@dataclass
class GpuLink:
    """How two GPUs of a host are linked, as nvidia-smi topo names it: NV#, PIX, PXB, PHB, ..."""

    host: str
    gpu_a: int
    gpu_b: int
    link: str


@dataclass
class GpuIdentity:
    """A GPU of a host, used or not. Unknown texts are empty, unknown numbers NaN."""

    host: str
    gpu: int  # the driver's index on that host
    uuid: str = ""
    device_name: str = ""
    pci_bus_id: str = ""
    power_limit_watts: float = math.nan
    power_limit_default_watts: float = math.nan
    ecc: str = ""  # on, off
    mig: str = ""
    compute_mode: str = ""
    persistence: str = ""
    pcie_generation: float = math.nan  # now: idle links may be slower
    pcie_generation_max: float = math.nan
    pcie_width: float = math.nan
    pcie_width_max: float = math.nan
    numa_node: float = math.nan


@dataclass
class NetworkAdapter:
    """A network adapter of a host; state and rate as the system words them."""

    host: str
    name: str
    kind: str  # InfiniBand, RoCE, Ethernet
    state: str = ""
    rate: str = ""
    numa_node: float = math.nan


@dataclass
class RunRecord:
    """One invocation."""

    created_utc: str  # ISO 8601, Z
    argv: list[str] = field(default_factory=list)
    planned: list[str] = field(default_factory=list)  # case names, in order, each once
    attributes: dict[str, Value] = field(default_factory=dict)  # versions, environment, Slurm ids
    ranks: list[RankIdentity] = field(default_factory=list)
    hosts: list[HostIdentity] = field(default_factory=list)
    topology: list[GpuLink] = field(default_factory=list)
    gpus: list[GpuIdentity] = field(default_factory=list)
    networks: list[NetworkAdapter] = field(default_factory=list)


@dataclass
class CaseRecord:
    """One row: a case, its settings, what every rank measured."""

    suite: str
    name: str
    repeat: int = 0
    status: str = "ok"
    reason: str = ""  # empty when ok
    settings: dict[str, Value] = field(default_factory=dict)
    results: dict[str, Value] = field(default_factory=dict)
    checks: dict[str, Value] = field(default_factory=dict)
    warmup: list[bool] = field(default_factory=list)  # [steps], True for a warm-up step
    ranks: list[RankRecord] = field(default_factory=list)  # those that took part
