"""Plots of a suite's steps: by rank, distribution, phases, memory, losses, pay-back."""

from __future__ import annotations

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from report_rows import Row, gib
from report_suite import Suite
from report_svg import INK, MUTED, SERIES, Plot, color, dash, draw, thin, thinned_words
from results import Case

RANKS_AS_LINES = 8
ROWS_A_PLOT = 6


def legend(axes: Axes, columns: int = 3) -> None:
    """Below the figure."""
    axes.figure.legend(*axes.get_legend_handles_labels(), loc="outside lower center",
                       ncols=columns, handlelength=2.6, columnspacing=1.2)


def _line(axes: Axes, values: np.ndarray, number: int, label: str) -> int:
    """A thinned line with its shade; returns the bins' size."""
    line = thin(values)
    axes.plot(line.x, line.middle, color=color(number), linestyle=dash(number), label=label)
    if line.size > 1:
        axes.fill_between(line.x, line.low, line.high, color=color(number), alpha=0.18,
                          linewidth=0)
    return line.size


def _limits(axes: Axes, case: Case, values: np.ndarray) -> str:
    """Fits the axis to the measured steps; words about warm-up steps that lie beyond it."""
    measured = case.measured("step_seconds") * 1e3
    known = measured[np.isfinite(measured)]
    if not known.size:
        return ""
    low, high = known.min(), known.max()
    room = max((high - low) * 0.15, 0.02 * high)
    axes.set_ylim(max(0.0, low - room), high + room)
    beyond = np.nanmax(values) if np.isfinite(values).any() else 0.0
    return "" if beyond <= high + room else \
        f" Warm-up steps of up to {beyond:,.0f} ms lie above the axis."


def _shade_warmup(axes: Axes, case: Case) -> None:
    count = int(case.warmup.sum())
    if count:
        axes.axvspan(0.5, count + 0.5, color=MUTED, alpha=0.12, linewidth=0)


def steps_by_rank(suite: Suite, row: Row) -> Plot | None:
    """Each rank's step time; of many ranks their span, their middle and the slowest ones."""
    case = next((case for case in row.cases if "step_seconds" in case.series), None)
    if case is None:
        return None
    values = case.series["step_seconds"].values * 1e3
    many = len(values) > RANKS_AS_LINES
    notes = {"size": 1, "beyond": ""}

    def paint(figure: Figure) -> None:
        top, *rest = figure.subplots(2 if many else 1, 1, squeeze=False)[:, 0]
        _shade_warmup(top, case)
        if many:
            notes["size"] = _span_of_ranks(top, case, values)
            _own_work(rest[0], case)
        else:
            for number, rank in enumerate(case.ranks):
                notes["size"] = _line(top, values[number], number, f"rank {rank}")
            if len(values) > 1:
                legend(top, 4)
        notes["beyond"] = _limits(top, case, values)
        top.set_xlabel("step")
        top.set_ylabel("step time, ms")

    svg = draw(paint, 4.4 if many else 2.6 if len(values) > 1 else 2.2, f"steps {row.file} "
               f"{case.label}")
    name = suite.name_of(row)
    shade = " The shaded steps at the left are warm-up." if case.warmup.any() else ""
    ranks = f"{len(values)} ranks" if len(values) > 1 else "one rank"
    ranks += f", the first of {row.repeats} repeats" if row.repeats > 1 else ""
    caption = f"{name}: step time by rank, ms ({ranks}).{shade}{notes['beyond']}" \
              f"{thinned_words(notes['size'])}"
    if many:
        caption += " Below: each rank's own work in a step (exposed waiting taken off), median " \
                   "with p10 to p90; a straggler stands out."
    spread = "" if row.step_p10 is None else \
        f", median {row.step_seconds * 1e3:.1f} ms, p10 to p90 {row.step_p10 * 1e3:.1f} to " \
        f"{row.step_p90 * 1e3:.1f} ms"
    return Plot(svg, caption, f"Step time of {name} over {values.shape[1]} steps on {ranks}"
                f"{spread}.", many)


def _span_of_ranks(axes: Axes, case: Case, values: np.ndarray) -> int:
    """Least to most over the ranks, the middle rank, and the three slowest by median."""
    over_ranks = np.nanquantile if np.isnan(values).any() else np.quantile  # the first is slow
    least, middle, most = map(thin, over_ranks(values, (0, 0.5, 1), axis=0))
    axes.fill_between(least.x, least.low, most.high, color=MUTED, alpha=0.25, linewidth=0,
                      label="all ranks")
    axes.plot(middle.x, middle.middle, color=INK, label="median of ranks")
    medians = np.nanmedian(case.measured("step_seconds"), axis=1)
    for number, index in enumerate(np.argsort(-medians)[:3]):
        line = thin(values[index])
        axes.plot(line.x, line.middle, color=color(number), linestyle=dash(number + 1),
                  label=f"rank {case.ranks[index]}")
    legend(axes, 3)
    return least.size


def _own_work(axes: Axes, case: Case) -> None:
    """Each rank's step less what it waits for others."""
    work = case.measured("step_seconds")
    if "exposed_sync_seconds" in case.series:
        work = work - np.nan_to_num(case.measured("exposed_sync_seconds"))
    low, middle, high = (np.nanquantile(work, q, axis=1) * 1e3 for q in (0.1, 0.5, 0.9))
    axes.errorbar(case.ranks, middle, [middle - low, high - middle], fmt="o", markersize=3,
                  color=color(0), elinewidth=1)
    axes.set_xlabel("rank")
    axes.set_ylabel("own work, ms")


def distribution(suite: Suite) -> Plot | None:
    """Each row's step times relative to their median."""
    rows = [row for row in suite.measured if row.cases and row.cases[0].per_step(
        "step_seconds").size > 1]
    if not rows:
        return None
    levels = []

    def paint(figure: Figure) -> None:
        axes = figure.subplots()
        for place, row in enumerate(reversed(rows)):
            steps = np.concatenate([case.per_step("step_seconds") for case in row.cases])
            low, ten, middle, ninety, high = np.quantile(steps, (0, 0.1, 0.5, 0.9, 1))
            levels.append(f"{suite.name_of(row)} {100 * (ninety / middle - 1):+.1f}%")
            scale = 100 / middle
            axes.plot([low * scale - 100, high * scale - 100], [place, place], color=MUTED,
                      linewidth=1)
            axes.barh(place, (ninety - ten) * scale, left=ten * scale - 100, height=0.3,
                      color=color(0))
            axes.plot([0, 0], [place - 0.22, place + 0.22], color=INK, linewidth=1.5)
            axes.annotate(suite.name_of(row), (0, place + 0.34), (2, 0),
                          ("axes fraction", "data"), "offset points", fontsize=9)
        axes.set_yticks([])
        axes.set_ylim(-0.6, len(rows) - 0.2)
        axes.spines["left"].set_visible(False)
        axes.set_xlabel("step time against the row's median, %")
        axes.grid(axis="y", visible=False)

    svg = draw(paint, 0.9 + 0.4 * len(rows), f"distribution {suite.name}")
    return Plot(svg, "Distribution of the measured steps, each row against its own median: the "
                "bar holds p10 to p90, the line reaches from the least to the most.",
                "Step times against their median; p90 lies at " + "; ".join(reversed(levels)),
                True)


def _chunks(rows: list[Row]) -> list[list[Row]]:
    return [rows[start:start + ROWS_A_PLOT] for start in range(0, len(rows), ROWS_A_PLOT)]


def _curves(suite: Suite, series: str, scale: float, label: str, what: str) -> list[Plot]:
    """A line a row of what each step says, the ranks put together, warm-up included."""
    rows = [row for row in suite.measured if row.cases and series in row.cases[0].series
            and np.isfinite(row.cases[0].series[series].values).any()]
    return [_curve_plot(suite, part, series, scale, label, what) for part in _chunks(rows)]


def _curve_plot(suite: Suite, rows: list[Row], series: str, scale: float, label: str,
                what: str) -> Plot:
    reduce = np.nanmax if series.endswith("_bytes") else np.nanmean
    sizes, ends = [], []

    def paint(figure: Figure) -> None:
        axes = figure.subplots()
        for number, row in enumerate(rows):
            values = row.cases[0].series[series].values.astype(float)
            known = ~np.isnan(values).all(axis=0)
            line = np.full(values.shape[1], np.nan)
            line[known] = reduce(values[:, known], axis=0) * scale
            sizes.append(_line(axes, line, number, suite.name_of(row)))
            ends.append(f"{suite.name_of(row)} from {line[known][0]:.2f} to "
                        f"{line[known][-1]:.2f}")
        axes.set_xlabel("step")
        axes.set_ylabel(label)
        legend(axes, 1)

    svg = draw(paint, 2.3 + 0.17 * len(rows), f"{series} {suite.name} "
               + " ".join(row.file + row.name for row in rows))
    return Plot(svg, f"{what}, warm-up included.{thinned_words(max(sizes))}",
                f"{what}: {'; '.join(ends)}.")


def memory(suite: Suite) -> list[Plot]:
    """Allocated memory over the steps, the largest rank's."""
    return _curves(suite, "allocated_peak_bytes", gib(1), "allocated peak, GiB",
                   "Peak allocated memory of each step, the largest rank's")


def losses(suite: Suite) -> list[Plot]:
    """Training losses, means of the ranks."""
    return _curves(suite, "loss", 1.0, "training loss", "Training loss, mean of the ranks")


def _pairs(suite: Suite) -> list[tuple[Row, Row]]:
    """(compiled, eager) with the same attention, both known in step and first step."""
    found = []
    for row in suite.ok:
        eager = suite.find(row, recipe=f"eager-{row.attention}")
        known = eager is not None and None not in (
            row.first_step_seconds, eager.first_step_seconds, row.step_seconds, eager.step_seconds)
        if row.execution != "eager" and known and eager.same_place(row):
            found.append((row, eager))
    return found


def pay_back(suite: Suite) -> Plot | None:
    """compile: seconds that compiling costs (above 0) or has won (below) after n steps."""
    pairs = _pairs(suite)[:SERIES] if suite.name == "compile" else []
    if not pairs:
        return None
    steps = np.unique(np.logspace(0, 4, 160).round())
    words = []

    def paint(figure: Figure) -> None:
        axes = figure.subplots()
        for number, (row, eager) in enumerate(pairs):
            extra = row.first_step_seconds - eager.first_step_seconds
            each = row.step_seconds - eager.step_seconds
            axes.plot(steps, extra + (steps - 1) * each, color=color(number),
                      linestyle=dash(number), label=suite.name_of(row))
            words.append(f"{suite.name_of(row)} " + (f"after {1 + extra / -each:,.0f} steps"
                                                     if each < 0 < extra else "never"))
        axes.axhline(0, color=INK, linewidth=1)
        axes.set_xscale("log")
        most = max(row.first_step_seconds for row, _ in pairs)
        axes.set_ylim(-1.5 * most, 2 * most)
        axes.set_xlabel("steps")
        axes.set_ylabel("compiled minus eager, s")
        legend(axes, 1)

    svg = draw(paint, 2.5 + 0.17 * len(pairs), f"pay-back {suite.name}")
    return Plot(svg, "When compiling pays: seconds so far, compiled minus eager with the same "
                "attention, first step included. Below the line it has paid.",
                f"Compiling is paid back by {'; '.join(words)}.", True)
