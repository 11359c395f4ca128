"""trainsuite-results check: every figure that tables print, made again from the raw steps.

The arithmetic here is plain Python over lists, on purpose not that of results_model: where the two
differ, one of them is wrong.
"""

from __future__ import annotations

import argparse
import math
import statistics
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from results_checks import violations
from results_model import Case, Results
from results_reader import load

EXACT, CLOCKS = 1e-9, 0.02  # relative; clocks of host and device differ a little
CLOCK_SLACK_SECONDS = 1e-3


@dataclass(frozen=True)
class Figure:
    """A figure as it is stored or printed, and as the raw steps give it."""

    name: str
    said: float
    recomputed: float
    tolerance: float = EXACT

    @property
    def agrees(self) -> bool:
        """Within the tolerance."""
        slack = CLOCK_SLACK_SECONDS if self.tolerance == CLOCKS else 0.0
        return math.isclose(self.said, self.recomputed, rel_tol=self.tolerance, abs_tol=slack)

    def words(self) -> str:
        """What differs."""
        return f"{self.name} is {self.said:.10g}, the raw steps give {self.recomputed:.10g}"


def _columns(case: Case, name: str, measured: bool = True) -> list[list[float]]:
    """Per step, the ranks' known values of a series."""
    if name not in case.series:
        return []
    columns = []
    for step, values in enumerate(np.asarray(case.series[name].values, float).T.tolist()):
        warm = step < len(case.warmup) and bool(case.warmup[step])
        known = [value for value in values if not math.isnan(value)]
        if known and not (measured and warm):
            columns.append(known)
    return columns


def _quantile(values: list[float], q: float) -> float:
    """Linear interpolation between the two nearest of the sorted values."""
    ordered, place = sorted(values), q * (len(values) - 1)
    below = math.floor(place)
    above = min(below + 1, len(ordered) - 1)
    return ordered[below] + (place - below) * (ordered[above] - ordered[below])


def _summaries(case: Case) -> Iterator[Figure]:
    """Median, p10, p90 of the slowest rank, as every table prints them."""
    for name in ("step_seconds", "exposed_sync_seconds", "forward_seconds", "backward_seconds",
                 "optimizer_seconds", "data_seconds"):
        slowest = [max(known) for known in _columns(case, name)]
        if slowest:
            for said, q, words in ((case.median(name), 0.5, "median"), (case.p10(name), 0.1, "p10"),
                                   (case.p90(name), 0.9, "p90")):
                yield Figure(f"{words} of {name}", said, _quantile(slowest, q))


def _rate(case: Case) -> float | None:
    """tokens/s from the raw tokens and steps."""
    steps = case.series.get("step_seconds")
    if steps is None or "tokens" not in case.series:
        return None
    if case.independent():
        rate = 0.0
        for rank in range(len(case.ranks)):
            own = [np.asarray(case.measured(name)[rank], float).tolist()
                   for name in ("tokens", "step_seconds")]
            tokens, seconds = ([v for v in row if not math.isnan(v)] for row in own)
            if not tokens or not seconds:
                return None
            rate += statistics.median(tokens) / statistics.median(seconds)
        return rate
    tokens = [sum(known) for known in _columns(case, "tokens")]
    seconds = [max(known) for known in _columns(case, "step_seconds")]
    if not tokens or not seconds or min(tokens) != max(tokens):
        return None
    return tokens[0] / statistics.median(seconds)


def _rates(case: Case) -> Iterator[Figure]:
    rate = _rate(case)
    if rate is None:
        return
    for name, said in (("tokens/s", case.tokens_per_second()),
                       ("tokens_per_second", case.value("tokens_per_second"))):
        if said is not None:
            yield Figure(name, float(said), rate)


def _counts(case: Case) -> Iterator[Figure]:
    shapes = [case.value(name) for name in ("micro_batch", "accumulate")]
    if None not in shapes and case.value("global_batch") is not None and len(case.ranks):
        yield Figure("global_batch", case.value("global_batch"),
                     shapes[0] * shapes[1] * len(case.ranks))
    if len(case.warmup) and case.value("steps") is not None:
        yield Figure("steps", case.value("steps"), int((~case.warmup).sum()))
        if case.value("warmup"):
            yield Figure("warmup", case.value("warmup"), int(case.warmup.sum()))


def _peaks(case: Case) -> Iterator[Figure]:
    for kind in ("allocated", "reserved"):
        said = case.value(f"peak_{kind}_bytes")
        steps = [max(known) for known in _columns(case, f"{kind}_peak_bytes")]
        if said is not None and steps:
            yield Figure(f"peak_{kind}_bytes", float(said), max(steps))


def _times(case: Case) -> Iterator[Figure]:
    first, said = _columns(case, "host_seconds", measured=False)[:1], \
        case.value("first_step_seconds")
    if first and said is not None and not case.value("compile_seconds"):
        yield Figure("first_step_seconds", said, max(first[0]), CLOCKS)
    steps = [max(known) for known in _columns(case, "step_seconds", measured=False)]
    if case.value("train_seconds") is not None and steps:
        yield Figure("train_seconds", case.value("train_seconds"), sum(steps), CLOCKS)


def _facts(case: Case) -> Iterator[Figure]:
    """What the row says is the largest of what its ranks say."""
    for name, fact in case.facts.items():
        said = case.results.get(name)
        if fact.values.dtype == object or not isinstance(said, (int, float)) \
                or isinstance(said, bool) or name.endswith("_hash"):
            continue
        known = [value for value in np.asarray(fact.values, float).tolist()
                 if not math.isnan(value)]
        if known:
            yield Figure(f"{name} (largest of the ranks)", said, max(known))


def figures(case: Case) -> list[Figure]:
    """Every figure of a row that raw steps can give."""
    return [figure for make in (_summaries, _rates, _counts, _peaks, _times, _facts)
            for figure in make(case)]


def oddities(file: Results, case: Case) -> Iterator[str]:
    """What no sound row holds, besides figures that differ."""
    run = next((run for run in file.runs if run.number == case.run), None)
    if run is None:
        yield f"its run {case.run} is not in the file"
    elif run.ranks:
        unknown = [int(rank) for rank in case.ranks
                   if rank not in {one["rank"] for one in run.ranks}]
        if unknown:
            yield f"ranks {unknown} took part but are not among the run's"
    if case.status != "ok":
        if not case.reason:
            yield f"status {case.status} without a reason"
        return
    if not _columns(case, "step_seconds"):
        yield "ok, but without a measured step"
    yield from _bad_losses(case)
    for smaller, larger in (("effective_tokens", "tokens"),
                            ("allocated_peak_bytes", "reserved_peak_bytes")):
        if smaller in case.series and larger in case.series and \
                (case.series[smaller].values > case.series[larger].values).any():
            yield f"{smaller} exceeds {larger} in some step"
    for smaller, larger in (("peak_allocated_bytes", "case_peak_allocated_bytes"),
                            ("peak_reserved_bytes", "case_peak_reserved_bytes"),
                            ("parameters_trainable", "parameters_total"),
                            ("loop_seconds", "case_seconds"),
                            ("flops_per_token", "flops_per_token_uncausal")):
        values = case.value(smaller), case.value(larger)
        if None not in values and values[0] > values[1]:
            yield f"{smaller} {values[0]} exceeds {larger} {values[1]}"


def _bad_losses(case: Case) -> Iterator[str]:
    if "loss" not in case.series:
        return
    values = np.asarray(case.series["loss"].values, float)
    if case.suite == "finetune":  # a rank without labels in a step has no loss there
        values = np.where(np.isnan(values), 0.0, values)
    for row, step in np.argwhere(~np.isfinite(values))[:1]:
        yield f"loss of rank {case.ranks[row]} is {values[row, step]} at step {step}"


def check(path: str) -> int:
    """Each inconsistency on a line; 1 when there is one."""
    file = load(path)
    found, count = violations(file), 0
    for case in file.cases:
        figures_ = figures(case) if case.status == "ok" else []
        count += len(figures_)
        found += [f"{case.label}: {figure.words()}" for figure in figures_ if not figure.agrees]
        found += [f"{case.label}: {words}" for words in oddities(file, case)]
    for line in found:
        print(f"{path}: {line}")
    print(f"{path}: {count} figures of {len(file.cases)} rows recomputed from raw steps: "
          + ("all agree" if not found else f"inconsistencies: {len(found)}"))
    return 1 if found else 0


def command(paths: list[str]) -> int:
    """The worst of the files' results."""
    return max(check(path) for path in paths)


def register(commands: argparse._SubParsersAction) -> None:
    """Adds `check` to trainsuite-results."""
    parser = commands.add_parser(
        "check", help="recomputes every printed figure from raw steps; also all of verify")
    parser.add_argument("files", nargs="+", metavar="FILE")
    parser.set_defaults(work=lambda options: command(options.files))
