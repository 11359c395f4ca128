"""The figures of a row that depend on its suite, and what makes a file's figures untrustworthy."""

from __future__ import annotations

from results_model import Case
from results_records import ResultError

UNITS = {"_seconds": "s", "_bytes": "byte", "tokens": "token", "loss": "1"}


def training_seconds(case: Case) -> float | None:
    """What the training took: stated, or the sum of its measured steps over the slowest rank."""
    stated = case.value("train_seconds")
    if stated is not None:
        return float(stated)
    steps = case.per_step("step_seconds")
    return float(steps.sum()) if steps.size else None


def rate_of(case: Case) -> float | None:
    """tokens/s. finetune, where steps differ: tokens that are no padding / training seconds."""
    if case.suite != "finetune":
        return case.tokens_per_second()
    seconds, tokens = training_seconds(case), case.per_step("effective_tokens")
    return float(tokens.sum()) / seconds if seconds and tokens.size else None


def check_units(path: str, case: Case) -> None:
    """Raises ResultError for a series in another unit than its name says."""
    for name, series in case.series.items():
        for suffix, unit in UNITS.items():
            if name.endswith(suffix) and series.unit != unit:
                raise ResultError(f"{path}: {name} of {case.label} is in '{series.unit}', not "
                                  f"'{unit}'; units are mixed, so no figure can be trusted")
