"""What to know of a row before trusting its figures; the rules of src/result/steadiness.h and
src/result/telemetry.h, with scipy's own tests where it has them.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy import stats

from results_model import Case

FEWEST_FOR_TREND, TREND_P, TREND_CHANGE = 10, 0.01, 0.01
MOST_VALUES = 500  # the slopes are of all pairs
FENCE = 3.0  # interquartile ranges
WORTH_TELLING = 0.02  # of a step, that others wait for a rank
POWER_CAP = "power cap"
THROTTLE_WORDS = {0x04: POWER_CAP, 0x08: "hardware slowdown",
                  0x10: "sync boost with a slower GPU", 0x20: "thermal slowdown (software)",
                  0x40: "thermal slowdown (hardware)", 0x80: "power brake"}


@dataclass(frozen=True)
class Trend:
    """Change from the first step to the last as a fraction of the median; two-sided p."""

    change: float
    p_value: float

    @property
    def found(self) -> bool:
        """Whether it is worth telling."""
        return self.p_value < TREND_P and abs(self.change) >= TREND_CHANGE


def trend(values: np.ndarray) -> Trend | None:
    """Theil and Sen's slope with Mann and Kendall's test; None below ten values."""
    if len(values) < FEWEST_FOR_TREND:
        return None
    if len(values) > MOST_VALUES:
        edges = [block * len(values) // MOST_VALUES for block in range(MOST_VALUES + 1)]
        values = np.array([np.median(values[a:b]) for a, b in zip(edges, edges[1:])])
    count = len(values)
    first, second = np.triu_indices(count, 1)
    rises = values[second] - values[first]
    score = float(np.sign(rises).sum())
    ties = np.unique(values, return_counts=True)[1].astype(float)

    def term(n: np.ndarray | float) -> np.ndarray | float:
        return n * (n - 1) * (2 * n + 5) / 18

    variance = float(term(float(count)) - np.sum(term(ties)))
    z = (score - np.sign(score)) / np.sqrt(variance) if variance > 0 else 0.0
    slope = float(np.median(rises / (second - first)))
    return Trend(slope * (count - 1) / float(np.median(values)), 2 * float(stats.norm.sf(abs(z))))


def outliers(values: np.ndarray) -> tuple[int, int]:
    """(slow, fast) values beyond three interquartile ranges from the quartiles."""
    if not len(values):
        return 0, 0
    low, high = np.quantile(values, [0.25, 0.75])
    reach = FENCE * (high - low)
    return int((values > high + reach).sum()), int((values < low - reach).sum())


@dataclass(frozen=True)
class Pace:
    """One rank: medians over the measured steps, seconds. busy = step - exposed sync."""

    rank: int
    step: float
    busy: float
    wait: float


def paces(case: Case) -> list[Pace]:
    """Of every rank whose steps are known."""
    if "step_seconds" not in case.series:
        return []
    steps = case.measured("step_seconds")
    waits = case.measured("exposed_sync_seconds") if "exposed_sync_seconds" in case.series \
        else np.zeros_like(steps)
    found = []
    for rank, step, wait in zip(case.ranks, steps, waits):
        known = ~np.isnan(step) & ~np.isnan(wait)
        if known.any():
            found.append(Pace(int(rank), *(float(np.median(values[known]))
                                           for values in (step, step - wait, wait))))
    return found


def straggler(case: Case) -> tuple[int, float] | None:
    """(rank with the most work of its own, seconds a step that the others' mean is below it);
    None below two ranks that communicate."""
    known = paces(case)
    if len(known) < 2 or not any(pace.wait > 0 for pace in known):
        return None
    slowest = max(known, key=lambda pace: pace.busy)
    others = [pace.busy for pace in known if pace.rank != slowest.rank]
    return slowest.rank, slowest.busy - float(np.mean(others))


def within_loop(case: Case, name: str) -> list[np.ndarray]:
    """Per rank the known samples of a telemetry series within its timed loop."""
    needed = [case.telemetry.get("sample_seconds"), case.telemetry.get(name),
              case.facts.get("telemetry_loop_begin_seconds"),
              case.facts.get("telemetry_loop_end_seconds")]
    if any(one is None for one in needed):
        return []
    kept = []
    for seconds, values, begin, end in zip(*(one.values for one in needed)):
        common = min(len(seconds), len(values))
        inside = (seconds[:common] >= begin) & (seconds[:common] <= end)
        kept.append(values[:common][inside & ~np.isnan(values[:common].astype(float))])
    return kept


def tokens_of_step(case: Case, loop_steps: int | None) -> float | None:
    """Tokens of a step of the timed loop, of all ranks; where steps differ the mean, no padding."""
    if case.value("tokens_per_step"):
        return float(case.value("tokens_per_step"))
    if not loop_steps or "effective_tokens" not in case.series:
        return None
    of_steps = np.nansum(np.asarray(case.series["effective_tokens"].values, float), axis=0)
    return float(of_steps[-loop_steps:].mean())


def notes(case: Case) -> list[str]:
    """A sentence each; empty for rows that are not ok."""
    if case.status != "ok":
        return []
    found = _steadiness(case)
    if case.value("throttled"):
        share, reasons = case.value("throttled_share") * 100, case.value("throttle_reasons")
        found.append(f"at its power limit in {share:.0f}% of the samples ({reasons}), as is usual "
                     "under full load: the clock is what the limit allows" if reasons == POWER_CAP
                     else f"throttled in {share:.0f}% of the samples: {reasons}")
    if case.value("shared_gpu"):
        count = case.value("other_processes")
        found.append(f"the GPU was shared: up to {count} other "
                     f"{'process had a context' if count == 1 else 'processes had contexts'} on it")
    joules, steps = case.value("loop_energy_joules"), case.value("loop_steps")
    tokens = tokens_of_step(case, steps)
    if joules and steps and tokens:
        found.append(f"energy: {joules / steps:.1f} J a step, "
                     f"{tokens * steps / joules:.1f} tokens a joule")
    return found


def _steadiness(case: Case) -> list[str]:
    found: list[str] = []
    if "problem_size" in case.series:
        return found  # steps of different problems differ
    steps = case.per_step("step_seconds")
    drift = trend(steps)
    if drift is not None and drift.found:
        found.append(f"not steady: steps became {abs(drift.change) * 100:.1f}% "
                     f"{'slower' if drift.change > 0 else 'faster'} from the first to the last")
    slow, fast = outliers(steps)
    if slow + fast:
        found.append(f"{slow + fast} of {len(steps)} steps are outliers (beyond 3 interquartile "
                     f"ranges; kept): {slow} slow, {fast} fast")
    late = straggler(case)
    if late is not None and len(steps) and late[1] > WORTH_TELLING * float(np.median(steps)):
        found.append(f"the other ranks wait {late[1] * 1e3:.2f} ms a step for rank {late[0]}")
    return found
