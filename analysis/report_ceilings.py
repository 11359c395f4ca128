"""The page's section of ceilings: what the machines can do at most, as the ceilings suite measured
it, beside what their makers list.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np

import gpus
import report_extra
import report_machine
from report_mfu import LISTED, MEASURED
from report_plots import legend
from report_read import spread_of
from report_rows import CEILINGS, NOT_MEASURED, Row
from report_steady import slowed
from report_suite import Suite
from report_svg import Plot, color, dash, draw
from report_tables import Cell, Column, Table, build, figure_cell, missing, text_cell, three_digits
from results_ceilings import BUS, Point, best, is_product, pairs, points

TITLE = "Ceilings of the machine"
UNITS = ("B", "KiB", "MiB", "GiB")


@dataclass
class Ceiling:
    """A row of the suite with the best point of each repeat, and the median of their rates."""

    row: Row
    best: list[Point]
    point: Point  # of the repeat nearest to the median
    rate: float

    @property
    def bus_rate(self) -> float | None:
        """Bytes/s a link carries, as nccl-tests has it; None for one rank."""
        return None if self.point.bus_rate is None else \
            self.rate * self.point.bus_rate / self.point.rate

    @property
    def listed(self) -> float | None:
        """The maker's FLOP/s of that product."""
        name = self.row.device_names[0] if len(self.row.device_names) == 1 else ""
        return gpus.listed_flops(name) if self.row.recipe == "matmul-bf16" else None


@dataclass
class Section:
    """What the template draws."""

    title: str
    facts: list[tuple[str, list[str]]]
    tables: list[tuple[str, Table]]  # id, table
    sweep: Table | None
    plots: list[Plot]
    commands: list[str]
    notes: list[str] = field(default_factory=list)


def _ceilings(suite: Suite) -> list[Ceiling]:
    found = []
    for row in suite.ok:
        tops = [top for case in row.cases if (top := best(case)) is not None]
        if tops:
            rate = float(np.median([top.rate for top in tops]))
            near = min(tops, key=lambda top: abs(top.rate - rate))
            found.append(Ceiling(row, tops, near, rate))
    return found


def bytes_words(size: float) -> str:
    """16 MiB."""
    unit = 0
    while size >= 1024 and unit < len(UNITS) - 1:
        size, unit = size / 1024, unit + 1
    return f"{size:.4g} {UNITS[unit]}"


def _place(suite: Suite) -> list[Column]:
    """GPU, ranks and file, where rows differ in them."""
    columns = [Column("GPU", lambda one: text_cell(one.row.gpu), False),
               Column("Ranks", lambda one: figure_cell(one.row.ranks, 0))]
    if any(row.dry_run for row in suite.rows):
        columns.append(Column("Dry run", lambda one: text_cell(
            "yes" if one.row.dry_run else "no"), False))
    if len(suite.distinct("file")) > 1:
        columns.append(Column("File", lambda one: text_cell(suite.file_letter(one.row)), False,
                              "the letter in the list of files"))
    return columns


def _over_repeats(scale: float) -> Column:
    def cell(one: Ceiling) -> Cell:
        span, method = spread_of([point.rate for point in one.best])
        if span is None:
            return Cell(method, None, "no interval over one repeat", "missing")
        low, high = (value * scale for value in span)
        return Cell(f"{three_digits(low).text} to {three_digits(high).text}", low, method)
    return Column("Over repeats", cell, True, "95% interval from three repeats on")


def _bus(one: Ceiling) -> Cell:
    if one.bus_rate is None:
        return Cell("not defined for one rank", None, "", "missing")
    return three_digits(one.bus_rate, 1e-9)


def _share_of_listed(one: Ceiling) -> Cell:
    return missing("not listed") if one.listed is None else \
        figure_cell(one.rate / one.listed, 1, 100, "%")


def _name(one: Ceiling) -> Cell:
    return text_cell(one.row.variant)


def products(suite: Suite, found: list[Ceiling]) -> Table:
    """Matrix products: measured beside listed."""
    return build("Matrix products: square, of random data, every rank at once", [
        Column("Product", _name, False), *_place(suite),
        Column("Best size, rows", lambda one: figure_cell(one.point.size, 0)),
        Column("Measured, TFLOP/s a GPU", lambda one: three_digits(one.rate, 1e-12)),
        _over_repeats(1e-12),
        Column("Listed, TFLOP/s", lambda one: figure_cell(one.listed, 1, 1e-12), True,
               "dense peak of the maker's page"),
        Column("Measured / listed", _share_of_listed)], found)


def copies(suite: Suite, found: list[Ceiling]) -> Table:
    """Copies within the device, to it and from it."""
    return build("Copies, every rank at once", [
        Column("Copy", _name, False), *_place(suite),
        Column("Best size", lambda one: Cell(bytes_words(one.point.size), one.point.size)),
        Column("GB/s a rank", lambda one: three_digits(one.rate, 1e-9), True,
               "within the device: bytes read and written"),
        _over_repeats(1e-9)], found)


def collectives(suite: Suite, found: list[Ceiling]) -> Table:
    """Collectives with both of nccl-tests' bandwidths."""
    return build("Collectives over all ranks", [
        Column("Collective", _name, False), *_place(suite),
        Column("Communicator", lambda one: text_cell(str(one.row.settings.get(
            "communicator", ""))), False),
        Column("Best size", lambda one: Cell(bytes_words(one.point.size), one.point.size)),
        Column("Algorithm bandwidth, GB/s", lambda one: three_digits(one.rate, 1e-9), True,
               "size / time"),
        Column("Bus bandwidth, GB/s", _bus, True, "x 2 (n - 1) / n for all-reduce, x (n - 1) / n "
               "for the others, as nccl-tests defines it"),
        _over_repeats(1e-9)], found)


def pair_table(suite: Suite) -> Table | None:
    """Each pair of nodes (of ranks on one node) at its fastest size."""
    lines = []
    for row in suite.ok:
        for case in row.cases:
            lines += [[Cell(f"{a} and {b}", f"{a:05d} {b:05d}"), figure_cell(case.repeat, 0),
                       Cell(bytes_words(size), size), figure_cell(rate, 2, 1e-9)]
                      for (a, b), (size, rate) in pairs(case).items()]
    columns = [Column(title, lambda one: missing(), number) for title, number in (
        ("Pair", False), ("Repeat", True), ("Best size", True), ("GB/s in each direction", True))]
    return Table("Pairs of nodes (of ranks on one node), both directions at once", columns,
                 lines) if lines else None


def sweep(suite: Suite) -> Table | None:
    """Every size of every repeat."""
    lines = []
    for row in suite.ok:
        for case in row.cases:
            product = is_product(case)
            for one in points(case):
                bus = missing() if row.recipe not in BUS else \
                    missing("not defined for one rank") if one.bus_rate is None else \
                    three_digits(one.bus_rate, 1e-9)
                size = f"{one.size:,.0f} rows" if product else bytes_words(one.size)
                lines.append([text_cell(row.variant + (
                    f" [{suite.file_letter(row)}]" if len(suite.distinct("file")) > 1 else "")),
                    figure_cell(case.repeat, 0), Cell(size, one.size),
                    figure_cell(one.seconds, 4, 1e3),
                    three_digits(one.rate, 1e-12) if product else missing(),
                    missing() if product else three_digits(one.rate, 1e-9), bus,
                    figure_cell(one.wrong_values, 0)])
    titles = ("Ceiling", "Repeat", "Size", "Time, ms", "TFLOP/s", "GB/s", "Bus GB/s",
              "Wrong values")
    columns = [Column(title, lambda one: missing(), title != "Ceiling") for title in titles]
    return Table("Every size: medians of the repetitions at the slowest rank", columns,
                 lines) if lines else None


def bandwidth_plot(suite: Suite) -> Plot | None:
    """Bus bandwidth of collectives over their size."""
    rows = [row for row in suite.ok if row.recipe in BUS and row.ranks > 1
            and len(points(row.cases[0])) > 1]
    if not rows:
        return None
    words = []

    def paint(figure) -> None:
        axes = figure.subplots()
        for number, row in enumerate(rows):
            own = points(row.cases[0])
            axes.plot([one.size for one in own], [one.bus_rate * 1e-9 for one in own],
                      color=color(number), linestyle=dash(number), marker=".",
                      label=f"{row.variant}, {row.ranks} ranks, {row.gpu}")
            words.append(f"{row.variant} up to {max(one.bus_rate for one in own) * 1e-9:,.1f} GB/s")
        axes.set_xscale("log", base=2)
        axes.set_yscale("log")
        axes.set_xlabel("bytes")
        axes.set_ylabel("bus bandwidth, GB/s")
        legend(axes, 1)

    svg = draw(paint, 2.5 + 0.17 * len(rows), "ceilings " + " ".join(
        row.file + row.name for row in rows))
    return Plot(svg, "Bus bandwidth over the size, the first repeat.",
                f"Bus bandwidth over the size: {'; '.join(words)}.", True)


def _notes(suite: Suite, found: list[Ceiling]) -> Iterator[str]:
    for one in found:
        if one.listed is not None and one.rate > one.listed:
            yield f"{one.row.variant} on the {one.row.gpu} is faster than the listed peak: the " \
                  "row or that peak is wrong"
        case = slowed(one.row)
        if case is not None:
            yield f"{one.row.variant}: {report_machine.held_back(case)}"
    for row in suite.rows:
        if not row.ok:
            reason = row.reason.splitlines()[0] if row.reason else "no reason recorded"
            what = row.status if row.status == NOT_MEASURED else row.status_words
            yield f"{row.variant} {what}: {reason}"
    if any(row.dry_run for row in suite.ok):
        yield "Dry run: sizes and device are stand-ins for machines without a GPU"


def _kind(found: list[Ceiling], words: str) -> list[Ceiling]:
    def of(one: Ceiling) -> str:
        recipe = one.row.recipe
        return "collective" if recipe in BUS else recipe.split("-")[0]
    return [one for one in found if of(one) == words]


def section(suite: Suite) -> Section:
    """Everything of the suite."""
    found = _ceilings(suite)
    made = [("products", products(suite, _kind(found, "matmul"))),
            ("copies", copies(suite, _kind(found, "copy"))),
            ("collectives", collectives(suite, _kind(found, "collective"))),
            ("pairs", pair_table(suite))]
    tables = [(f"{CEILINGS}-{name}", table) for name, table in made
              if table is not None and table.rows]
    plot = bandwidth_plot(suite)
    facts = [("Hardware", report_machine.hardware(suite)),
             ("Software", report_machine.software(suite)),
             ("Method", [f"Medians of the repetitions at the slowest rank, results checked. MFU on "
                         f"this page is of the {MEASURED} product where there is one of the row's "
                         f"precision and device, else of the {LISTED} peak"])]
    return Section(TITLE, facts, tables, sweep(suite), [] if plot is None else [plot],
                   report_extra.commands(report_machine.runs_of(suite.measured)),
                   list(dict.fromkeys(_notes(suite, found))))
