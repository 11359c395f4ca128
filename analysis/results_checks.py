"""What must hold in every row, whatever was measured (the identities of docs/schema.md)."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from results_model import Case, Results, Series

TOLERANCE = 0.02  # clocks of host and device
SLACK_SECONDS = 2e-4  # a step: what reading a clock costs matters in steps of few milliseconds
# Ranks of a dry run share cores, and one may lose its core between two readings of the clock.
INTERRUPTION_SECONDS, LEAST_INTERRUPTION_SECONDS = 0.02, 0.005
UNITS = ("s", "byte", "token", "J", "W", "MHz", "degC", "1")
FIXED_SHAPE_SUITES = ("ddp", "compile")
PHASES = ("data_seconds", "forward_seconds", "backward_seconds", "exposed_sync_seconds",
          "optimizer_seconds")


def violations(results: Results) -> list[str]:
    """One line for each identity that does not hold; empty when all do."""
    found = []
    if results.complete and results.missing():
        found.append("marked complete, but without a result of " + ", ".join(results.missing()))
    for case in results.cases:
        for check in (_units, _lengths, _times, _tokens, _phases, _loop, _peaks, _memory_floor,
                      _ceiling):
            found += [f"{case.label}: {text}" for text in check(case)]
    return found


def _off(value: float, expected: float, slack: float = 0.0) -> bool:
    return not abs(value - expected) <= max(TOLERANCE * abs(expected), slack)


def _units(case: Case) -> Iterator[str]:
    for name, series in case.series.items():
        if series.unit not in UNITS:
            yield f"{name} has the unit '{series.unit}', none of {', '.join(UNITS)}"
    for name, fact in case.facts.items():
        if fact.values.dtype != object and fact.unit not in UNITS:
            yield f"rank_facts/{name} has the unit '{fact.unit}', none of {', '.join(UNITS)}"


def _ceiling(case: Case) -> Iterator[str]:
    if case.checks.get("below_peak") is False:
        yield "faster than the peak of its GPUs: the row or the peak is wrong"


def _lengths(case: Case) -> Iterator[str]:
    for name, series in case.series.items():
        ranks, steps = series.values.shape
        if case.status == "ok" and steps != len(case.warmup):
            yield f"{name} has {steps} steps, warmup {len(case.warmup)}"
        if list(series.ranks) != list(case.ranks) or ranks != len(case.ranks):
            yield f"{name} has rows of ranks {list(series.ranks)}, the case {list(case.ranks)}"


def _times(case: Case) -> Iterator[str]:
    for name, series in case.series.items():
        if series.unit == "s" and (series.values < 0).any():
            yield f"{name} holds negative times"
    if "step_seconds" in case.series and (case.series["step_seconds"].values == 0).any():
        yield "step_seconds holds a zero"


def _tokens(case: Case) -> Iterator[str]:
    """B16: nothing forgets accumulation or the number of ranks."""
    parts = [case.value(name) for name in ("micro_batch", "accumulate", "sequence")]
    if case.suite not in FIXED_SHAPE_SUITES or None in parts or not len(case.ranks):
        return
    expected = int(np.prod(parts)) * len(case.ranks)
    formula = " x ".join(map(str, [*parts, len(case.ranks)]))
    stated = case.value("tokens_per_step")
    if stated is not None and stated != expected:
        yield f"tokens_per_step is {stated}, micro_batch x accumulate x sequence x ranks is " \
              f"{formula} = {expected}"
    counted = case.per_step("tokens")
    if counted.size and (counted != expected).any():
        yield f"tokens over all ranks are {counted.min():.0f} to {counted.max():.0f} a step, " \
              f"expected {formula} = {expected}"
    rate, step = case.value("tokens_per_second", case.tokens_per_second()), \
        case.median("step_seconds")
    if rate is not None and step is not None and not case.independent() \
            and _off(rate * step, expected):
        yield f"tokens/s x step time is {rate * step:.1f}, expected {formula} = {expected}"


def _phases(case: Case) -> Iterator[str]:
    """Phases add up to the step, on every rank. A step that the system interrupted between two marks
    says nothing about the clock: by the median, and where ranks share cores by the best step."""
    if not {"step_seconds", "forward_seconds", "backward_seconds",
            "optimizer_seconds"} <= case.series.keys():
        return
    steps = case.measured("step_seconds")
    sums = sum(np.nan_to_num(case.measured(name)) for name in PHASES if name in case.series)
    gaps = sums - steps
    for row, rank in enumerate(case.ranks):
        known = ~np.isnan(gaps[row]) & ~np.isnan(case.measured("forward_seconds")[row])
        if not known.any():
            continue
        gap, step, which = np.median(gaps[row][known]), np.median(steps[row][known]), "median over"
        slack = SLACK_SECONDS
        if case.value("dry_run"):
            gap, which = min(gaps[row][known], key=abs), "least of"
            slack = LEAST_INTERRUPTION_SECONDS
        if _off(step + gap, step, slack):
            yield f"rank {rank}: phases add up to {step + gap:.6f} s of a step of {step:.6f} s " \
                  f"({100 * gap / step:+.1f}%, {which} the steps)"


def _fact(case: Case, name: str) -> Iterator[tuple[int, float]]:
    """(row, value) of each rank that knows it; else the row's own value, for the first rank."""
    fact: Series | None = case.facts.get(name)
    if fact is not None and fact.values.dtype != object:
        yield from ((row, float(value)) for row, value in enumerate(fact.values)
                    if not np.isnan(value))
    elif len(case.ranks) and isinstance(case.value(name), (int, float)):
        yield 0, float(case.value(name))


def _loop(case: Case) -> Iterator[str]:
    """B17: the steps take as long as the loop that ran them."""
    if "step_seconds" not in case.series:
        return
    steps = case.series["step_seconds"].values
    counts = dict(_fact(case, "loop_steps"))
    for row, seconds in _fact(case, "loop_seconds"):
        count = int(counts.get(row, steps.shape[1]))
        if count < 1:
            continue
        total = steps[row][-count:].sum()
        slack = max(count * SLACK_SECONDS, INTERRUPTION_SECONDS if case.value("dry_run") else 0)
        if _off(total, seconds, slack):
            yield f"rank {case.ranks[row]}: {count} steps add up to {total:.6f} s, their loop " \
                  f"took {seconds:.6f} s ({100 * (total / seconds - 1):+.1f}%)"


def _peaks(case: Case) -> Iterator[str]:
    for prefix in ("peak", "case_peak"):
        reserved = dict(_fact(case, f"{prefix}_reserved_bytes"))
        for row, allocated in _fact(case, f"{prefix}_allocated_bytes"):
            if allocated > reserved.get(row, allocated):
                yield f"rank {case.ranks[row]}: {prefix}_allocated_bytes {allocated:.0f} exceeds " \
                      f"{prefix}_reserved_bytes {reserved[row]:.0f}"


def _memory_floor(case: Case) -> Iterator[str]:
    """B18: the peak holds what cannot but have been alive at once."""
    names = [name for name in {**case.settings, **case.results, **case.facts}
             if name.startswith("weight_bytes_")] + ["gradient_bytes", "optimizer_bytes"]
    for peak_name in ("peak_allocated_bytes", "case_peak_allocated_bytes"):
        for row, peak in _fact(case, peak_name):
            alive = {name: dict(_fact(case, name)).get(row, 0.0) for name in names}
            if peak < sum(alive.values()):
                parts = " + ".join(f"{name} {value:.0f}" for name, value in alive.items() if value)
                yield f"rank {case.ranks[row]}: {peak_name} {peak:.0f} is less than {parts}"
