"""Puts a page together: sections from suites, then the template."""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from typing import Any

import jinja2

import report_bars
import report_ceilings
import report_extra
import report_keep_in_mind
import report_machine
import report_plots
import report_stood_out_more
from costs import price_words
from published import Published
from report_authors import Author
from report_costs import Costing
from report_details import detail_table
from report_rows import CEILINGS, SUITES, Row
from report_steady import steady_table
from report_suite import Suite
from report_svg import Plot, plain_svg
from report_tables import Table, main_table
from results import Results

TEMPLATES = os.path.join(os.path.dirname(os.path.abspath(__file__)), "templates")
MOST_STEP_PLOTS = 48


@dataclass
class Section:
    """What the template draws for a suite."""

    id: str
    title: str
    headline: report_bars.Chart | None
    headline_caption: str
    facts: list[tuple[str, list[str]]]
    chart: report_bars.Chart | None
    table: Table
    details: Table
    steady: Table
    stood_out: list[str]
    keep_in_mind: list[str]
    from_published: list[tuple[str, list[str]]]
    author_notes: list[str]
    mfu: report_bars.Chart | None
    phases: report_bars.Stacks | None
    plots: list[Plot]
    step_plots: list[Plot]
    plots_left_out: list[str]
    commands: list[str]
    commits: list[str]


@dataclass
class Inputs:
    """What a page is made from."""

    files: list[Results]
    rows: list[Row]
    published: list[Published]
    costing: Costing
    author: Author
    report_command: str
    paths: list[str]
    written: str  # ISO date
    tokens: float | None = None
    warnings: list[str] = field(default_factory=list)


def suites_of(inputs: Inputs, names: tuple[str, ...] = SUITES) -> list[Suite]:
    """The suites that have rows, in the published page's order."""
    found = [Suite(name, [row for row in inputs.rows if row.suite == name], inputs.costing,
                   [page for page in inputs.published if name in page.sections], inputs.paths)
             for name in names]
    return [suite for suite in found if suite.rows]


def _caption(suite: Suite) -> str:
    cards = " and ".join(dict.fromkeys(row.gpu for row in suite.rows if row.gpu)) or "a CPU"
    dates = sorted({row.date[:10] for row in suite.rows if row.date})
    when = "" if not dates else f" on {dates[0]}" if len(dates) == 1 else \
        f" from {dates[0]} to {dates[-1]}"
    return f"Measured on {cards}{when}; from the table below."


def _prices(suite: Suite) -> list[str]:
    sentences = []
    for card in dict.fromkeys(row.gpu for row in suite.rows if row.gpu and row.gpu != "CPU"):
        rows = [row for row in suite.rows if row.gpu == card]
        gpus = max(row.gpus for row in rows)
        row = next(row for row in rows if row.gpus == gpus)
        now = suite.costing.today_price(row)
        then = suite.costing.run_price(row)
        sentences.append(f"{card}: on the run's day {price_words(then, gpus)}; "
                         f"today {price_words(now, gpus)}")
    return sentences or ["None: rows on a CPU have no cost"]


def _plots(suite: Suite) -> tuple[list[Plot], list[Plot], list[str]]:
    """(of the suite, of each row's steps, what is left out and why)."""
    left_out = []
    if any(row.published is not None for row in suite.ok):
        left_out.append("Published rows have summary figures only: there are no steps to plot.")
    single = [report_plots.distribution(suite), report_plots.pay_back(suite)]
    plots = [plot for plot in single if plot is not None]
    plots += report_plots.memory(suite) + report_plots.losses(suite)
    rows = [row for row in suite.measured if row.cases]
    if len(rows) > MOST_STEP_PLOTS:
        left_out.append(f"Step plots are those of the first {MOST_STEP_PLOTS} of {len(rows)} "
                        "rows.")
    steps = [report_plots.steps_by_rank(suite, row) for row in rows[:MOST_STEP_PLOTS]]
    return plots, [plot for plot in steps if plot is not None], left_out


def section(suite: Suite, author: Author) -> Section:
    """Everything of a suite."""
    plots, steps, left_out = _plots(suite)
    facts = [("Hardware", report_machine.hardware(suite)),
             ("Software", report_machine.software(suite)),
             ("Method", report_machine.method(suite)), ("Prices", _prices(suite))]
    said = [(words, [line for text in suite.published_texts() for line in text.get(key, [])])
            for words, key in (("What stood out", "stood_out"), ("Keep in mind", "keep_in_mind"))]
    runs = report_machine.runs_of(suite.measured)
    commits = dict.fromkeys(
        str(run.attributes["git_commit"]) + (" with local changes" if run.attributes.get(
            "git_dirty") else "") for run in runs if run.attributes.get("git_commit"))
    return Section(
        suite.name, suite.title, report_bars.headline(suite), _caption(suite), facts,
        report_bars.second(suite), main_table(suite), detail_table(suite),
        steady_table(suite),
        report_stood_out_more.sentences(suite), report_keep_in_mind.sentences(suite),
        [pair for pair in said if pair[1]], author.notes.get(suite.name, []),
        report_bars.mfu(suite), report_bars.phases(suite), plots, steps, left_out,
        report_extra.commands(runs), list(commits))


def context(inputs: Inputs) -> dict[str, Any]:
    """What the template needs."""
    suites = suites_of(inputs)
    limits = suites_of(inputs, (CEILINGS,))
    rows = [row for suite in suites for row in suite.rows]
    complete = {file.path: file.complete for file in inputs.files}
    return {
        "author": inputs.author, "written": inputs.written, "today": inputs.costing.today,
        "sections": [section(suite, inputs.author) for suite in suites],
        "ceilings": report_ceilings.section(limits[0]) if limits else None,
        "prices": report_extra.price_table(inputs.costing, rows),
        "tokens": report_extra.tokens_table(suites, inputs.tokens) if inputs.tokens else None,
        "gpus": report_extra.gpu_table(suites + limits), "warnings": inputs.warnings,
        "stale": inputs.costing.stale(rows), "report_command": inputs.report_command,
        "files": [report_extra.raw_file(path, number, complete.get(path, True))
                  for number, path in enumerate(inputs.paths)],
    }


def render(inputs: Inputs) -> str:
    """The page, one self-contained HTML document."""
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(TEMPLATES), autoescape=True, trim_blocks=True,
        lstrip_blocks=True, undefined=jinja2.StrictUndefined)
    environment.filters["svg"] = lambda plot: plain_svg(plot.svg, plot.alt)
    return environment.get_template("page.html.j2").render(context(inputs))
