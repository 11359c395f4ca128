"""The rows of a published.toml, one reader a suite; `published` is the interface."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from costs import Pair
from gpus import check_known
from prices_file import date_of
from prices_model import OutOfStock, Price
from results_records import ResultError

SUITES = ("finetune", "ddp", "compile")
MOST = 1e15  # beyond any figure of a table
OUT_OF_MEMORY = ("OOM", "out of memory")
GPUS_IN_TEXT = re.compile(r"\b(\d+) ?x ")
TOKENS_IN_TEXT = re.compile(r"([\d,]+) tokens")
DDP_RECIPES = {"1 GPU": "1gpu", "plain DDP": "plain", "bf16 gradients": "bf16",
               "accumulate 4": "accumulate4", "both": "both"}
ATTENTIONS = {"sdpa": "sdpa", "eager": "naive"}


@dataclass(frozen=True)
class PublishedRow:
    """One printed row. What the page does not state is None."""

    suite: str
    case: str  # our name of the same work: "124m-plain"
    gpu: str
    gpus: int  # GPUs that the row used
    machine_gpus: int  # GPUs in the machine of the run
    model: str
    variant: str  # as printed
    run_date: str
    cost_figure: str  # a key of costs.DIGITS
    status: str = "ok"
    reason: str = ""
    micro_batch: int | None = None
    accumulate: int | None = None
    trainable_parameters: float | None = None
    parameters: float | None = None
    tokens_per_second: float | None = None
    step_seconds: float | None = None
    train_seconds: float | None = None
    train_tokens: int | None = None  # that tokens_per_second counts
    first_step_seconds: float | None = None
    peak: float | None = None
    peak_unit: str = ""  # GiB or GB, as printed
    loss_before: float | None = None
    loss_after: float | None = None
    printed_speed_up: float | None = None
    speed_up_plain_base: float | None = None  # tokens/s over those of one GPU, plain
    speed_up_own_base: float | None = None  # over one GPU with the same accumulation
    printed_run_day: float | None = None  # cost cells as printed
    printed_today: float | None = None
    run_price: Price | None = None
    today_price: Price | OutOfStock | None = None
    costs: Pair | None = None  # by the published rules; equal to the printed cells
    source: str = "published"

    @property
    def peak_bytes(self) -> float | None:
        """The printed peak in bytes, as exact as it was printed."""
        return None if self.peak is None else \
            self.peak * {"GiB": 2**30, "GB": 10**9}[self.peak_unit]

    def with_prices(self, run: Price | None, today: Price | OutOfStock | None,
                    costs: Pair | None) -> PublishedRow:
        """A copy that knows its prices."""
        return dataclasses.replace(self, run_price=run, today_price=today, costs=costs)


def check_gpu(name: object, where: str) -> str:
    """A GPU by the name as printed. Raises ResultError for one that nobody knows."""
    if not isinstance(name, str) or not name:
        raise ResultError(f"{where}: no gpu; name the GPU that it is for")
    return check_known(name, where)


def read_suite(path: str, suite: str, section: dict[str, Any]) -> list[PublishedRow]:
    """The rows of a section. Raises ResultError."""
    section = _checked(f"{path}: [{suite}]", section)
    reader = {"finetune": _finetune, "ddp": _ddp, "compile": _compile}[suite]
    found = []
    for number, cells in enumerate(section["rows"], 1):
        where = f"{path}: [{suite}] row {number}"
        if not isinstance(cells, list):
            raise ResultError(f"{where}: a row is a list of cells")
        found.append(reader(section, _Cells(cells, where)))
    return found


def _checked(where: str, section: object) -> dict[str, Any]:
    """The section, its texts texts and its run_date a day. Raises ResultError."""
    if not isinstance(section, dict):
        raise ResultError(f"{where} is no table")
    for key in ("rows", "run_date", "hardware"):
        if key not in section:
            raise ResultError(f"{where} has no {key}")
    for key in ("hardware", "model", "data"):
        if not isinstance(section.get(key, ""), str):
            raise ResultError(f"{where}: {key} is {section[key]!r}, not a text")
    if not isinstance(section["rows"], list):
        raise ResultError(f"{where}: rows is no list")
    bases = section.get("one_gpu_accumulate4_tokens_per_second", {})
    if not isinstance(bases, dict):
        raise ResultError(f"{where}: one_gpu_accumulate4_tokens_per_second is no table")
    for model, rate in bases.items():
        _Cells([rate], f"{where}: one_gpu_accumulate4_tokens_per_second").number(model)
    return {**section, "run_date": date_of({"date": section["run_date"]}, where)[0]}


class _Cells:
    """The cells of a row, read in order."""

    def __init__(self, cells: list[Any], where: str):
        self.where = where
        self._left: Iterator[Any] = iter(cells)
        self.out_of_memory = any(cell in OUT_OF_MEMORY for cell in cells)

    def text(self, what: str) -> str:
        """The next cell, a text."""
        value = self._next(what)
        if not isinstance(value, str):
            raise ResultError(f"{self.where}: {what} is {value!r}, not a text")
        return value

    def number(self, what: str, scale: float = 1.0) -> float:
        """The next cell, a finite number above 0."""
        value = self._next(what)
        if isinstance(value, str):
            raise ResultError(f"{self.where}: {what} is '{value}'; give the number in the column's "
                              "own unit, without one")
        if isinstance(value, bool) or not isinstance(value, (int, float)) \
                or not 0 < value < float("inf") or value > MOST:
            raise ResultError(f"{self.where}: {what} is {str(value)[:40]}, not a finite number "
                              "above 0")
        return value * scale

    def end(self) -> None:
        """Refuses cells beyond the last column."""
        rest = list(self._left)
        if rest:
            raise ResultError(f"{self.where}: {len(rest)} cells too many: {rest}")

    def _next(self, what: str) -> Any:
        value = next(self._left, None)
        if value is None:
            raise ResultError(f"{self.where}: the row ends before its cell '{what}'")
        return value


def _found_gpu(text: str, where: str) -> str:
    """The GPU that a hardware sentence names."""
    found = re.search(r"(?:One|\d+x) (.+?) \d+ GB", text)
    if not found:
        raise ResultError(f"{where}: hardware '{text}' does not say '<n>x <GPU> <n> GB'")
    return check_gpu(found[1], where)


def _oom(row: dict[str, Any]) -> PublishedRow:
    return PublishedRow(**row, status="oom", reason="out of memory")


def _finetune(section: dict[str, Any], cells: _Cells) -> PublishedRow:
    method, shape = cells.text("method"), cells.text("micro-batch x accumulation")
    if not re.fullmatch(r"\d+x\d+", shape):
        raise ResultError(f"{cells.where}: '{shape}' is not micro-batch x accumulation, as 4x4")
    micro_batch, accumulate = map(int, shape.split("x"))
    tokens = TOKENS_IN_TEXT.search(section.get("data", ""))
    if not tokens:
        raise ResultError(f"{cells.where}: data does not say '<n> tokens', the cost needs them")
    row: dict[str, Any] = {
        "suite": "finetune", "case": f"1.5b-{method.lower()}-{shape}",
        "gpu": _found_gpu(section["hardware"], cells.where), "gpus": 1, "machine_gpus": 1,
        "model": section.get("model", ""), "variant": f"{method} {shape}",
        "run_date": section["run_date"], "cost_figure": "training_usd",
        "micro_batch": micro_batch, "accumulate": accumulate,
        "train_tokens": int(tokens[1].replace(",", "")),
        "trainable_parameters": cells.number("trainable parameters, millions", 1e6)}
    if cells.out_of_memory:
        return _oom(row)
    row |= {"train_seconds": cells.number("train seconds"),
            "tokens_per_second": cells.number("tokens/s"),
            "peak": cells.number("peak GiB"), "peak_unit": "GiB",
            "loss_before": cells.number("loss before"), "loss_after": cells.number("loss after"),
            "printed_run_day": cells.number("$ run day"),
            "printed_today": cells.number("$ today")}
    cells.end()
    return PublishedRow(**row)


def _ddp(section: dict[str, Any], cells: _Cells) -> PublishedRow:
    model, variant = cells.text("model"), cells.text("variant")
    count, _, recipe = variant.partition(" GPUs, ")
    name = DDP_RECIPES.get(recipe or variant)
    if name is None:
        raise ResultError(f"{cells.where}: variant '{variant}' is none of "
                          + ", ".join(DDP_RECIPES))
    machine = GPUS_IN_TEXT.search(section["hardware"])
    row: dict[str, Any] = {
        "suite": "ddp", "case": f"{model.lower()}-{name}",
        "gpu": _found_gpu(section["hardware"], cells.where),
        "gpus": int(count) if recipe else 1, "machine_gpus": int(machine[1]) if machine else 1,
        "model": model, "variant": variant, "run_date": section["run_date"],
        "cost_figure": "usd_per_billion_tokens",
        "accumulate": 4 if name in ("accumulate4", "both") else 1}
    if cells.out_of_memory:
        return _oom(row)
    row |= {"tokens_per_second": cells.number("tokens/s"),
            "printed_speed_up": cells.number("speed-up"),
            "printed_run_day": cells.number("$ per 1B tokens run day"),
            "printed_today": cells.number("$ per 1B tokens today")}
    cells.end()
    plain = next((_Cells(other[2:], cells.where).number("tokens/s") for other in section["rows"]
                  if isinstance(other, list) and other[:2] == [model, "1 GPU"]), None)
    own = section.get("one_gpu_accumulate4_tokens_per_second", {}).get(model) \
        if row["accumulate"] == 4 else plain
    rate = row["tokens_per_second"]
    return PublishedRow(**row, speed_up_plain_base=rate / plain if plain else None,
                        speed_up_own_base=rate / own if own else None)


def _compile(section: dict[str, Any], cells: _Cells) -> PublishedRow:
    gpu, setup = cells.text("GPU"), cells.text("setup")
    parts = re.fullmatch(r"(eager|compile) \+ (sdpa|eager) attention", setup)
    if not parts:
        raise ResultError(f"{cells.where}: setup '{setup}' is not '<eager|compile> + "
                          "<sdpa|eager> attention'")
    row: dict[str, Any] = {
        "suite": "compile", "case": f"468m-{parts[1]}-{ATTENTIONS[parts[2]]}",
        "gpu": check_gpu(gpu, cells.where), "gpus": 1, "machine_gpus": 1,
        "model": section.get("model", ""), "variant": setup, "run_date": section["run_date"],
        "cost_figure": "million_tokens_per_usd"}
    if cells.out_of_memory:
        return _oom(row)
    row |= {"step_seconds": cells.number("step ms", 1e-3),
            "tokens_per_second": cells.number("tokens/s"),
            "peak": cells.number("peak GB"), "peak_unit": "GB",
            "first_step_seconds": cells.number("first step s"),
            "printed_run_day": cells.number("M tokens per $ run day"),
            "printed_today": cells.number("M tokens per $ today")}
    cells.end()
    return PublishedRow(**row)
