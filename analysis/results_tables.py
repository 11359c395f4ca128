"""Tables of text, and the one over repeats."""

from __future__ import annotations

from collections.abc import Sequence

from figures import rate_of
from results_model import Case
from results_repeats import over_repeats


def number(value: float | None, digits: int = 1, scale: float = 1.0) -> str:
    """A figure, or - where unknown."""
    return "-" if value is None else f"{value * scale:,.{digits}f}"


def table(header: Sequence[str], rows: Sequence[Sequence[str]], left: int) -> str:
    """Aligned columns; the first `left` of them to the left."""
    lines = [list(header), *map(list, rows)]
    widths = [max(len(line[column]) for line in lines) for column in range(len(header))]
    return "\n".join(
        "  ".join(text.ljust(width) if column < left else text.rjust(width)
                  for column, (text, width) in enumerate(zip(line, widths))).rstrip()
        for line in lines)


def untimed(case: Case) -> tuple[float, float] | None:
    """Case.loop_means of a row that is ok and whose steps were not timed one by one."""
    known = case.status != "ok" or case.median("step_seconds") is not None
    return None if known else case.loop_means()


REPEATS_HEADER = ["implementation", "over repeats", "runs ok", "method", "tokens/s",
                  "95% interval", "+- %", "step ms"]


def repeats_text(cases: list[Case]) -> str:
    """A table of medians over the repeats of each case, or that there are none."""
    groups: dict[tuple[str, str, str], list[Case]] = {}
    for case in cases:
        key = (str(case.value("implementation", "?")), case.suite, case.name)
        groups.setdefault(key, []).append(case)
    if all(len(group) == 1 for group in groups.values()):
        return "single run of each case: no interval over repeats"
    rows = []
    for (implementation, _, name), group in groups.items():
        good = [case for case in group if case.status == "ok"]
        pairs = [untimed(case) or (case.median("step_seconds"), rate_of(case)) for case in good]
        steps = [step for step, _ in pairs if step]
        rates = [rate for _, rate in pairs if rate]
        row = [implementation, name, f"{len(good)} of {len(group)}"]
        if not rates:
            rows.append([*row, "-", "-", "-", "-", "-"])
            continue
        rate = over_repeats(rates)
        interval = "-" if rate.low is None else f"{rate.low:,.0f}..{rate.high:,.0f}"
        rows.append([*row, rate.method, number(rate.median, 0), interval,
                     number(rate.half_width, 2, 100),
                     number(over_repeats(steps).median if steps else None, 2, 1e3)])
    return table(REPEATS_HEADER, rows, left=4)
