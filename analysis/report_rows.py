"""A row of a page: a case of a result file, or a published row, in one form."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from results import Case, Run

SUITES = ("finetune", "ddp", "compile")
CEILINGS = "ceilings"  # what a machine can do at most: a section of its own
OK, NOT_MEASURED = "ok", "not measured"
STATUS_WORDS = {"oom": "out of memory", "failed": "failed", "timeout": "timed out",
                "skipped": "skipped", NOT_MEASURED: NOT_MEASURED}
DDP_WORDS = {"independent": "independent", "plain": "plain DDP", "bf16": "bf16 gradients"}
EXECUTION_WORDS = {  # one word for two things otherwise: torch.compile is PyTorch's alone
    "trainsuite": {"compile": "block-compiled", "graph": "CUDA graph"},
    "pytorch": {"compile": "torch.compile", "graph": "torch.compile reduce-overhead",
                "max-autotune": "torch.compile max-autotune"}}
CEILING_WORDS = {
    "matmul-bf16": "bf16 product", "matmul-tf32": "tf32 product", "matmul-fp32": "fp32 product",
    "copy-device": "copy within the device",
    "copy-host-to-device-pinned": "host to device, page-locked",
    "copy-device-to-host-pinned": "device to host, page-locked",
    "copy-host-to-device-pageable": "host to device, pageable",
    "copy-device-to-host-pageable": "device to host, pageable"}
METHOD_WORDS = {"full": "full", "lora": "LoRA", "qlora": "QLoRA"}


@dataclass
class Row:
    """A case with its repeats. Seconds, bytes, tokens/s; None: not known."""

    suite: str
    name: str
    size: str
    recipe: str  # ddp: "plain"; finetune: "lora"; compile: "compile-sdpa"
    source: str  # trainsuite, pytorch, published
    gpu: str  # page name, or "CPU"
    gpus: int  # that took part; ranks on a CPU
    ranks: int
    machine_gpus: int  # of the machine, as far as the run saw
    status: str = OK
    reason: str = ""
    date: str = ""  # ISO 8601
    file: str = ""
    variant: str = ""  # in words
    repeats: int = 1
    tokens_per_second: float | None = None
    rate_range: tuple[float, float] | None = None  # tokens/s: 95% interval, or range of 2 runs
    rate_method: str = ""  # how it was found, in words
    padded_tokens_per_second: float | None = None
    step_seconds: float | None = None
    step_p10: float | None = None
    step_p90: float | None = None
    exposed_sync_seconds: float | None = None
    peak_bytes: float | None = None
    peak_reserved_bytes: float | None = None
    case_peak_bytes: float | None = None
    first_step_seconds: float | None = None
    setup_seconds: float | None = None
    case_seconds: float | None = None
    train_seconds: float | None = None
    host_launch_seconds: float | None = None
    parameters_total: float | None = None
    parameters_trainable: float | None = None
    loss_before: float | None = None
    loss_after: float | None = None
    peak_flops: float | None = None  # of one GPU, that MFU is of
    peak_source: str = ""  # measured, listed
    mfu: float | None = None
    mfu_uncausal: float | None = None
    oom_phase: str = ""
    oom_bytes: float | None = None
    dry_run: bool = False
    hosts: tuple[str, ...] = ()  # empty: not known
    cards: frozenset[str] = frozenset()  # UUIDs of its GPUs
    device_names: tuple[str, ...] = ()  # the driver's, of GPUs
    settings: dict[str, Any] = field(default_factory=dict)
    run: Run | None = None
    cases: list[Case] = field(default_factory=list)  # repeats that are ok
    published: Any = None

    @property
    def ok(self) -> bool:
        """Whether it was measured."""
        return self.status == OK

    @property
    def status_words(self) -> str:
        """Its status as a cell says it."""
        return STATUS_WORDS.get(self.status, self.status)

    @property
    def attention(self) -> str:
        """compile: sdpa or naive."""
        return self.recipe.rsplit("-", 1)[-1] if self.suite == "compile" else ""

    @property
    def execution(self) -> str:
        """eager, compile or graph."""
        if self.suite == "compile":
            return self.recipe.rsplit("-", 1)[0]
        return str(self.settings.get("compile_mode", "eager"))

    @property
    def accumulates(self) -> bool:
        """ddp: more than one micro-batch a step."""
        return "accumulate" in self.recipe or self.recipe.startswith("both")

    @property
    def batches(self) -> str:
        """finetune: micro-batch x accumulation, 4x4."""
        micro, accumulate = self.settings.get("micro_batch"), self.settings.get("accumulate")
        return f"{micro}x{accumulate}" if micro and accumulate else ""

    @property
    def label(self) -> str:
        """The row in words, without its GPU and program."""
        size = self.size.upper() if self.suite == "ddp" else ""
        batches = self.batches if self.suite == "finetune" else ""
        return " ".join(part for part in (size, self.variant, batches) if part)

    @property
    def setting_key(self) -> tuple:
        """Rows of one key differ in recipe only: one program, card, model."""
        return (self.source, self.gpu, self.size)

    def same_place(self, other: Row) -> bool:
        """Whether both are known to have run on one set of hosts, and one on GPUs of the other:
        hosts of one name may be different machines."""
        cards = not (self.cards and other.cards) or self.cards <= other.cards or \
            other.cards <= self.cards
        return bool(self.hosts) and self.hosts == other.hosts and cards


def on_gpu(identity: dict[str, Any]) -> bool:
    """Whether a rank's entry is a GPU's: a CPU has a name and memory too, but no UUID."""
    return bool(identity["uuid"] or identity["pci_bus_id"])


def gib(value: float) -> float:
    """Bytes in GiB (2^30)."""
    return value / (1 << 30)


def giga(value: float) -> float:
    """Bytes in GB (1e9)."""
    return value / 1e9


def place_words(gpu: str, gpus: int, ranks: int) -> str:
    """4 GPUs; 2 ranks on 1 GPU; 2 CPU ranks."""
    if gpu == "CPU":
        return f"{ranks} CPU rank{'s' if ranks > 1 else ''}"
    count = f"{gpus} GPU{'s' if gpus > 1 else ''}"
    return count if gpus == ranks else f"{ranks} ranks on {count}"


def variant_words(suite: str, recipe: str, place: str, source: str) -> str:
    """The variant as tables name it."""
    if suite == CEILINGS:
        return CEILING_WORDS.get(recipe, recipe)
    if suite == "ddp":
        base, mode = recipe, ""
        for suffix in ("-compile", "-graph"):
            if recipe.endswith(suffix):
                base, mode = recipe.removesuffix(suffix), ", " + suffix[1:]
        if base.startswith("1gpu"):
            rest = base.removeprefix("1gpu").strip("-").replace("accumulate", "accumulate ")
        else:
            rest = DDP_WORDS.get(base, base.replace("accumulate", "accumulate "))
            if place.startswith("1 ") and base not in DDP_WORDS:
                rest = f"DDP {rest}"  # not the row that runs without communication
        return f"{place}{', ' if rest else ''}{rest}{mode}"
    if suite == "finetune":
        method, _, mode = recipe.partition("-")
        return METHOD_WORDS.get(method, method) + (f", {mode}" if mode else "")
    execution, _, attention = recipe.rpartition("-")
    execution = EXECUTION_WORDS.get(source, {}).get(execution, execution)
    return f"{execution} + {attention} attention"
