"""From measurements to the records of the result file."""

from __future__ import annotations

import argparse
import datetime
import os
import platform
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import h5py
import torch

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "analysis"))

from cases import Case  # noqa: E402
from launch import World  # noqa: E402
from results import (  # noqa: E402
    CaseRecord,
    HostIdentity,
    RankIdentity,
    RankRecord,
    RankSeries,
    RunRecord,
)
from train import Measured  # noqa: E402

SUITE = "ddp"
ENVIRONMENT_PREFIXES = ("NCCL_", "OMP_NUM_THREADS", "CUDA_VISIBLE_DEVICES", "PYTORCH_", "TORCH_")


def utc_now() -> str:
    """ISO 8601 with Z."""
    return datetime.datetime.now(datetime.timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ")


def first_line(path: str, pattern: str) -> str:
    """What group 1 of `pattern` finds in a file; empty where there is none."""
    try:
        found = re.search(pattern, Path(path).read_text(encoding="utf-8"), re.MULTILINE)
    except OSError:
        return ""
    return found.group(1).strip() if found else ""


def git(*arguments: str) -> str | None:
    """Output of git in the source folder; None where there is no repository."""
    try:
        done = subprocess.run(
            ["git", *arguments],
            cwd=Path(__file__).parent,
            capture_output=True,
            text=True,
            timeout=10,
            check=True,
        )
    except (OSError, subprocess.SubprocessError):
        return None
    return done.stdout.strip()


def cpu_range() -> str:
    """Cores that this process may use, such as 0-3,8."""
    cores = sorted(os.sched_getaffinity(0))
    parts: list[list[int]] = []
    for core in cores:
        if parts and core == parts[-1][1] + 1:
            parts[-1][1] = core
        else:
            parts.append([core, core])
    return ",".join(str(a) if a == b else f"{a}-{b}" for a, b in parts)


def rank_identity(world: World) -> RankIdentity:
    """Who this rank is and on what it computes."""
    identity = RankIdentity(
        rank=world.rank,
        local_rank=world.local_rank,
        host=platform.node(),
        device_name=first_line("/proc/cpuinfo", r"^model name\s*:\s*(.+)$"),
        cores=cpu_range(),
    )
    if world.cuda:
        properties = torch.cuda.get_device_properties(world.device)
        identity.device_name = properties.name
        identity.uuid = f"GPU-{properties.uuid}"
        identity.pci_bus_id = (
            f"{properties.pci_domain_id:08x}:{properties.pci_bus_id:02x}:"
            f"{properties.pci_device_id:02x}.0"
        )
        identity.memory_bytes = properties.total_memory
    return identity


def host_identity() -> HostIdentity:
    """The host of this rank."""
    sockets = set(re.findall(r"^physical id\s*:\s*(\d+)", _cpu_info(), re.MULTILINE))
    return HostIdentity(
        host=platform.node(),
        cpu_model=first_line("/proc/cpuinfo", r"^model name\s*:\s*(.+)$"),
        kernel=platform.release(),
        sockets=len(sockets) or 1,
        cores=os.cpu_count() or 0,
        ram_bytes=os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"),
    )


def _cpu_info() -> str:
    return Path("/proc/cpuinfo").read_text(encoding="utf-8")


def run_attributes(world: World, options: argparse.Namespace, cases: list[Case]) -> dict[str, Any]:
    """Versions, environment whitelist and Slurm ids; absent where unknown."""
    attributes: dict[str, Any] = {
        "implementation": "pytorch",
        "python_version": platform.python_version(),
        "torch_version": torch.__version__,
        "cuda_version": torch.version.cuda,
        "hdf5_version": h5py.version.hdf5_version,
        "dry_run": all(case.size == "tiny" for case in cases),
        "world_size": world.size,
        "float32_matmul_precision": torch.get_float32_matmul_precision(),
        "link": options.link,
    }
    if world.cuda:
        attributes["nccl_version"] = ".".join(map(str, torch.cuda.nccl.version()))
        attributes["driver_version"] = (
            first_line("/proc/driver/nvidia/version", r"Module\s+(?:for \S+\s+)?(\d[\d.]+)") or None
        )
    if commit := git("rev-parse", "HEAD"):
        attributes["git_commit"] = commit
        attributes["git_dirty"] = bool(git("status", "--porcelain", "--untracked-files=no"))
    for name, value in os.environ.items():
        if name.startswith(ENVIRONMENT_PREFIXES):
            attributes[f"env_{name}"] = value
        elif name in ("SLURM_JOB_ID", "SLURM_ARRAY_JOB_ID", "SLURM_ARRAY_TASK_ID"):
            attributes[name.lower()] = value
    return attributes


def run_record(world: World, options: argparse.Namespace, cases: list[Case]) -> RunRecord:
    """This invocation; collective, of use on rank 0."""
    identities = world.all_gather((rank_identity(world), host_identity()))
    hosts = {host.host: host for _, host in identities}
    return RunRecord(
        created_utc=utc_now(),
        argv=sys.argv,
        planned=[case.name for case in cases],
        attributes=run_attributes(world, options, cases),
        ranks=[identity for identity, _ in identities],
        hosts=list(hosts.values()),
    )


def settings(case: Case, world: World, options: argparse.Namespace) -> dict[str, Any]:
    """Flags and derived settings of a row."""
    ranks = 1 if case.one_rank else world.size
    batch = case.micro_batch * case.accumulate * ranks
    return {
        "implementation": "pytorch",
        "compile_mode": "eager",
        "communicator": world.backend if case.communicates else "none",
        "size": case.size,
        "recipe": case.recipe,
        "ranks": ranks,
        "one_rank": case.one_rank,
        "communicates": case.communicates,
        "device": world.device.type,
        "link": options.link,
        "memory_limit_gib": options.memory_limit,
        "steps": case.steps,
        "warmup": case.warmup,
        "repeats": options.repeats,
        "micro_batch": case.micro_batch,
        "accumulate": case.accumulate,
        "sequence": case.sequence,
        "vocabulary": case.vocabulary,
        "seed": case.seed,
        "precision": case.precision,
        "attention": case.attention,
        "learning_rate": case.learning_rate,
        "wire": case.wire if case.communicates else "none",
        "tokens_per_step": batch * case.sequence,
        "global_batch": batch,
        "dry_run": case.size == "tiny",
    }


def case_record(
    case: Case,
    repeat: int,
    world: World,
    options: argparse.Namespace,
    gathered: list[tuple[str, str, Measured]],
) -> CaseRecord:
    """A row from (status, reason, measured) of every rank that took part, in rank order."""
    status, reason = worst(gathered)
    record = CaseRecord(
        suite=SUITE,
        name=case.name,
        repeat=repeat,
        status=status,
        reason=reason,
        settings=settings(case, world, options),
    )
    if status != "ok":
        return record
    record.warmup = [index < case.warmup for index in range(case.warmup + case.steps)]
    for rank, (_, _, measured) in enumerate(gathered):
        series = [
            RankSeries(name, unit(name), [float(value) for value in values])
            for name, values in measured.series.items()
        ]
        record.ranks.append(RankRecord(rank, series, dict(measured.facts)))
    record.results |= row_results([measured for _, _, measured in gathered])
    hashes = {measured.facts["final_weights_hash"] for _, _, measured in gathered}
    if case.communicates:
        record.checks["replicas_equal"] = len(hashes) == 1
        if len(hashes) > 1:
            record.status = "failed"
            record.reason = "the replicas' weights differ after the last step"
    return record


def worst(gathered: list[tuple[str, str, Measured]]) -> tuple[str, str]:
    """Status and reason of the row. Lack of memory comes before failures, which are what the
    other ranks then see of it."""
    for wanted in ("oom", "failed"):
        for rank, (status, reason, _) in enumerate(gathered):
            if status == wanted:
                return status, f"rank {rank}: {reason}"
    return "ok", ""


def unit(series: str) -> str:
    """s, byte, token or 1."""
    if series.endswith("_seconds"):
        return "s"
    if series.endswith("tokens"):
        return "token"
    return "byte" if series.endswith("_bytes") else "1"


def row_results(ranks: list[Measured]) -> dict[str, Any]:
    """Scalars of the row: texts and hashes of the first rank, the largest of what is measured."""
    results: dict[str, Any] = {}
    for name, value in ranks[0].facts.items():
        measured = name.endswith(("_seconds", "_bytes"))
        results[name] = max(rank.facts[name] for rank in ranks) if measured else value
    return results
