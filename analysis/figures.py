"""The figures of a row that depend on its suite, and what makes a file's figures untrustworthy."""

from __future__ import annotations

import numpy as np

from results_model import Case
from results_records import ResultError

UNITS = {"_seconds": "s", "_bytes": "byte", "tokens": "token", "loss": "1"}


def all_steps(case: Case, name: str) -> np.ndarray:
    """Case.per_step with the warm-up: tokens summed over the ranks, seconds of the slowest."""
    if name not in case.series:
        return np.empty(0)
    values = case.series[name].values.astype(np.float64)
    values = values[:, ~np.isnan(values).all(axis=0)]
    reduce = np.nansum if case.series[name].unit == "token" else np.nanmax
    return reduce(values, axis=0) if values.size else np.empty(0)


def training_seconds(case: Case) -> float | None:
    """What the training took without load and evaluation: stated, or the sum of its steps. A
    fine-tuning has no warm-up that would not train, so there every step counts."""
    stated = case.value("train_seconds")
    if stated is not None:
        return float(stated)
    steps = all_steps(case, "step_seconds") if case.suite == "finetune" else \
        case.per_step("step_seconds")
    return float(steps.sum()) if steps.size else None


def rate_of(case: Case) -> float | None:
    """tokens/s. finetune, where steps differ: tokens that are no padding / training seconds."""
    if case.suite != "finetune":
        return case.tokens_per_second()
    seconds, tokens = training_seconds(case), all_steps(case, "effective_tokens")
    return float(tokens.sum()) / seconds if seconds and tokens.size else None


def check_units(path: str, case: Case) -> None:
    """Raises ResultError for a series in another unit than its name says."""
    for name, series in case.series.items():
        for suffix, unit in UNITS.items():
            if name.endswith(suffix) and series.unit != unit:
                raise ResultError(f"{path}: {name} of {case.label} is in '{series.unit}', not "
                                  f"'{unit}'; units are mixed, so no figure can be trusted")
