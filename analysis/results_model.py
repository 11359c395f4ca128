"""What a result file says, as numpy arrays with units."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np

from results_records import Value


@dataclass
class Series:
    """values [ranks, steps] (rank facts: [ranks]); `ranks` names the rows."""

    values: np.ndarray
    unit: str
    ranks: np.ndarray


@dataclass
class Run:
    """One invocation, /runs/<number>."""

    number: int
    created_utc: str
    argv: list[str]
    planned: list[str]
    attributes: dict[str, Value]
    ranks: list[dict[str, Any]]
    hosts: list[dict[str, Any]]
    topology: list[dict[str, Any]] = field(default_factory=list)
    gpus: list[dict[str, Any]] = field(default_factory=list)
    networks: list[dict[str, Any]] = field(default_factory=list)


@dataclass
class Case:
    """One row. Unknown things are absent from the dictionaries, unknown entries are NaN."""

    suite: str
    name: str
    repeat: int
    run: int
    status: str
    reason: str
    settings: dict[str, Value]
    results: dict[str, Value]
    checks: dict[str, Value]
    series: dict[str, Series]
    warmup: np.ndarray  # bool [steps]
    ranks: np.ndarray  # int64, those that took part
    facts: dict[str, Series] = field(default_factory=dict)  # rank_facts: values [ranks]
    telemetry: dict[str, Series] = field(default_factory=dict)  # values [ranks, samples]

    @property
    def label(self) -> str:
        """<suite>/<case>/<repeat>."""
        return f"{self.suite}/{self.name}/{self.repeat}"

    def value(self, name: str, default: Any = None) -> Any:
        """A result or setting of that name."""
        return self.results.get(name, self.settings.get(name, default))

    def measured(self, name: str) -> np.ndarray:
        """[ranks, measured steps] of a series, warm-up dropped. Raises KeyError when absent."""
        values = self.series[name].values
        kept = np.ones(values.shape[1], dtype=bool)
        known = min(len(kept), len(self.warmup))
        kept[:known] = ~self.warmup[:known]
        return values[:, kept]

    def per_step(self, name: str) -> np.ndarray:
        """Over the ranks, per measured step: tokens are summed, times and bytes are the largest,
        what has no unit is the mean. NaN entries are passed over; steps nobody knows are dropped.
        Empty when the series is absent."""
        if name not in self.series:
            return np.empty(0)
        values = self.measured(name).astype(np.float64)
        values = values[:, ~np.isnan(values).all(axis=0)]
        if values.size == 0:
            return np.empty(0)
        unit = self.series[name].unit
        reduce = {"token": np.nansum, "1": np.nanmean}.get(unit, np.nanmax)
        return reduce(values, axis=0)

    def quantile(self, name: str, q: float) -> float | None:
        """Quantile of per_step(name), linear interpolation; None when nothing is known."""
        values = self.per_step(name)
        return float(np.quantile(values, q)) if values.size else None

    def median(self, name: str) -> float | None:
        """Median of per_step(name)."""
        return self.quantile(name, 0.5)

    def p10(self, name: str) -> float | None:
        """The 10th percentile of per_step(name)."""
        return self.quantile(name, 0.1)

    def p90(self, name: str) -> float | None:
        """The 90th percentile of per_step(name)."""
        return self.quantile(name, 0.9)

    def independent(self) -> bool:
        """Whether the ranks do not wait for one another."""
        recipe = str(self.value("recipe", ""))
        return recipe == "independent" or recipe.startswith("independent-")

    def tokens_per_second(self) -> float | None:
        """tokens_per_step / median step time; independent ranks: the sum of their own rates."""
        tokens = self.value("tokens_per_step")
        if self.independent():
            return self._sum_of_rates(tokens)
        step = self.median("step_seconds")
        return float(tokens) / step if tokens is not None and step else None

    def _sum_of_rates(self, tokens_per_step: float | None) -> float | None:
        if "step_seconds" not in self.series or len(self.ranks) == 0:
            return None
        rate = 0.0
        own_tokens = self.measured("tokens") if "tokens" in self.series else None
        for row, seconds in enumerate(self.measured("step_seconds")):
            tokens = own_tokens[row].astype(np.float64) if own_tokens is not None else np.empty(0)
            tokens = tokens[~np.isnan(tokens)]
            if tokens.size == 0 and tokens_per_step is not None:
                tokens = np.array([tokens_per_step / len(self.ranks)])
            seconds = seconds[~np.isnan(seconds)]
            if seconds.size == 0 or tokens.size == 0 or np.median(seconds) <= 0:
                return None
            rate += float(np.median(tokens) / np.median(seconds))
        return rate

    def loop_means(self) -> tuple[float, float] | None:
        """(step seconds of the slowest rank, tokens/s) as means over the steps after the first,
        warm-up included: what is known where single steps are not timed. None where the loop is
        not known either, or the steps differ."""
        tokens = self.value("tokens_per_step")
        loops = [self.facts[name].values for name in ("loop_seconds", "loop_steps")
                 if name in self.facts]
        if tokens is None or len(loops) != 2 or len(self.ranks) == 0 \
                or any(not (loop > 0).all() or len(loop) != len(self.ranks) for loop in loops):
            return None
        seconds = np.asarray(loops[0] / loops[1], dtype=np.float64)
        if self.independent():
            return float(seconds.max()), float((tokens / len(self.ranks) / seconds).sum())
        return float(seconds.max()), float(tokens / seconds.max())


@dataclass
class Results:
    """A result file."""

    path: str
    complete: bool
    runs: list[Run]
    cases: list[Case]  # in the order of the plan

    def case(self, name: str, repeat: int = 0, suite: str | None = None) -> Case:
        """The row of that name. Raises KeyError."""
        for case in self.cases:
            if (case.name, case.repeat) == (name, repeat) and suite in (None, case.suite):
                return case
        raise KeyError(f"{self.path}: no case {name}, repeat {repeat}")

    def missing(self) -> list[str]:
        """Planned names without a result; a case within which the run was stopped has none."""
        found = {case.name for case in self.cases if not case.value("stopped")}
        return [name for run in self.runs for name in run.planned if name not in found]
