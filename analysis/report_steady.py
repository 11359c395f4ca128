"""The table of what each row says against itself: repeats, steadiness, stragglers, telemetry."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from costs import number
from report_machine import held_back
from report_rows import Row
from report_suite import Suite
from report_tables import Cell, Column, Table, build, figure_cell, missing, text_cell, three_digits
from results import Case
from results_steady import (FENCE, WORTH_TELLING, Trend, outliers, straggler, trend, within_loop)


def trends(row: Row) -> list[Trend]:
    """Of every repeat whose steps tell."""
    found = [trend(case.per_step("step_seconds")) for case in row.cases]
    return [one for one in found if one is not None]


def worst_trend(row: Row) -> Trend | None:
    """The largest change that is worth telling; else the largest."""
    return max(trends(row), key=lambda one: (one.found, abs(one.change)), default=None)


def worst_straggler(row: Row) -> tuple[int, float] | None:
    """(rank, seconds a step that the others wait for it) of the worst repeat."""
    found = [straggler(case) for case in row.cases]
    return max((one for one in found if one is not None), key=lambda one: one[1], default=None)


def waits(row: Row) -> bool:
    """Whether the others' wait for the slowest rank is worth telling."""
    late = worst_straggler(row)
    return late is not None and bool(row.step_seconds) \
        and late[1] > WORTH_TELLING * row.step_seconds


def _repeats(row: Row) -> Cell:
    return Cell(str(row.repeats) if row.repeats > 1 else "single run", row.repeats,
                row.rate_method)


def _steady(row: Row) -> Cell:
    drift = worst_trend(row)
    if drift is None:
        return missing()
    if not drift.found:
        return Cell("steady", 0.0, f"p = {drift.p_value:.2g}")
    words = "slower" if drift.change > 0 else "faster"
    return Cell(f"{abs(drift.change) * 100:.1f}% {words}", drift.change,
                f"from the first measured step to the last, p = {drift.p_value:.2g}")


def _outliers(row: Row) -> Cell:
    steps = [case.per_step("step_seconds") for case in row.cases]
    total = sum(map(len, steps))
    if not total:
        return missing()
    slow, fast = np.sum([outliers(own) for own in steps], axis=0)
    return Cell(f"{slow + fast} of {total:,}", float(slow + fast) / total,
                f"{slow} slow, {fast} fast; kept in every figure")


def _late(row: Row) -> Cell:
    late = worst_straggler(row)
    return text_cell(f"rank {late[0]}") if late is not None and waits(row) else missing()


def _imposed(row: Row) -> Cell:
    late = worst_straggler(row)
    return missing() if late is None else three_digits(late[1], 1e3)


def worst(row: Row, name: str) -> Case | None:
    """The repeat with the most of a result."""
    known = [case for case in row.cases if case.value(name) is not None]
    return max(known, key=lambda case: case.value(name), default=None)


def slowed(row: Row) -> Case | None:
    """The repeat in which the driver held the GPU back most; None where it did in none."""
    return max((case for case in row.cases if case.value("throttled")),
               key=lambda case: case.value("throttled_share"), default=None)


def _share(row: Row) -> Cell:
    case = worst(row, "throttled_share")
    if case is None:
        return missing()
    share = float(case.value("throttled_share"))
    return Cell(f"{share * 100:.0f}%", share, str(case.value("throttle_reasons") or ""))


def _reasons(row: Row) -> Cell:
    case = worst(row, "throttled_share")
    return missing() if case is None else text_cell(str(case.value("throttle_reasons") or ""))


def _others(row: Row) -> Cell:
    case = worst(row, "other_processes")
    if case is None:
        return missing()
    return figure_cell(case.value("other_processes"), 0)


def _over_cases(measure: Callable[[Case], float | None], digits: int, scale: float = 1.0
                ) -> Callable[[Row], Cell]:
    def make(row: Row) -> Cell:
        known = [value for case in row.cases if (value := measure(case)) is not None]
        return missing() if not known else \
            Cell(number(float(np.median(known)) * scale, digits), float(np.median(known)))
    return make


def joules_a_step(case: Case) -> float | None:
    """Of all GPUs of the row."""
    joules, steps = case.value("loop_energy_joules"), case.value("loop_steps")
    return joules / steps if joules and steps else None


def tokens_a_joule(case: Case) -> float | None:
    """Padded tokens over the energy of the loop."""
    each, tokens = joules_a_step(case), case.value("tokens_per_step")
    return tokens / each if each and tokens else None


def _sampled(name: str, reduce: Callable[[np.ndarray], Any]) -> Callable[[Case], float | None]:
    """Over the samples of the timed loop of all ranks."""
    def measure(case: Case) -> float | None:
        samples = [own for own in within_loop(case, name) if len(own)]
        return float(reduce(np.concatenate(samples))) if samples else None
    return measure


def steady_table(suite: Suite) -> Table:
    """A line a row; columns in which nothing is known are left out."""
    columns = [
        Column("Row", lambda row: text_cell(suite.name_of(row)), False),
        Column("Repeats", _repeats),
        Column("Steps, first to last", _steady, True,
               "Mann and Kendall's test, Theil and Sen's slope; told from 1% and p < 0.01 on"),
        Column("Outliers", _outliers, True, f"steps beyond {FENCE:g} interquartile ranges"),
        Column("Most work of its own", _late, False, "step less exposed sync"),
        Column("The others wait, ms a step", _imposed),
        Column("GPU held back", _share, True, "share of the samples within the timed loop"),
        Column("By", _reasons, False),
        Column("Other processes on it", _others),
        Column("Power, W", _over_cases(_sampled("power_watts", np.median), 0), True,
               "median over the timed loop"),
        Column("SM clock, MHz", _over_cases(_sampled("sm_clock_mhz", np.median), 0)),
        Column("Most, °C", _over_cases(_sampled("temperature_celsius", np.max), 0)),
        Column("J a step", _over_cases(joules_a_step, 1), True,
               "all GPUs of the row, by the driver's counter, of loops of 10 s and more"),
        Column("Tokens a J", _over_cases(tokens_a_joule, 1))]
    rows = [row for row in suite.measured if row.ok and row.cases]
    return build("How steady each row was, and what disturbed it", columns, rows)


def unsteady(suite: Suite) -> Iterator[str]:
    """Rows whose steps drift, and how many steps were outliers."""
    rows = [row for row in suite.measured if row.ok and row.cases]
    for row in rows:
        drift = worst_trend(row)
        if drift is not None and drift.found:
            yield f"{suite.name_of(row)} is not steady: its steps became " \
                  f"{abs(drift.change) * 100:.1f}% {'slower' if drift.change > 0 else 'faster'} " \
                  "from the first measured step to the last"
    counts = [(len(steps), sum(outliers(steps))) for row in rows for case in row.cases
              if len(steps := case.per_step("step_seconds"))]
    odd = sum(count for _, count in counts)
    if odd:
        yield f"{odd:,} of {sum(total for total, _ in counts):,} steps are outliers, beyond " \
              f"{FENCE:g} interquartile ranges from the quartiles; they are kept in every figure"


def disturbed(suite: Suite) -> Iterator[str]:
    """Cards that were held back or shared while a row was timed, and rates above the peak."""
    for row in suite.ok:
        case = slowed(row)
        if case is not None:
            yield f"{suite.name_of(row)}: {held_back(case)}"
        shared = worst(row, "other_processes")
        if any(case.value("shared_gpu") for case in row.cases):
            count = shared.value("other_processes") if shared is not None else 0
            words = f" (up to {count})" if count else ""
            yield f"{suite.name_of(row)}: other processes used the GPU meanwhile{words}"
        above = row.mfu is not None and row.mfu > 1
        if above or any(case.checks.get("below_peak") is False for case in row.cases):
            yield f"{suite.name_of(row)} is faster than the peak of its GPUs: the row or that " \
                  "peak is wrong"
