"""Bar charts that the page draws without a picture: a row of text and a bar each."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import report_costs
import report_mfu
from costs import number
from report_rows import Row, giga, gib
from report_suite import SOURCE_WORDS, Suite

PHASES = ("data", "forward", "backward", "exposed_sync", "optimizer")


@dataclass
class Bar:
    """percent of the longest bar; none for a row without a figure, whose text says why."""

    label: str
    text: str
    percent: float | None
    series: int  # colour: one a program


@dataclass
class Chart:
    """Groups of bars with one scale."""

    title: str
    groups: list[tuple[str, list[Bar]]]
    alt: str
    legend: list[tuple[str, int]] = field(default_factory=list)

    @property
    def bars(self) -> list[Bar]:
        """All of them."""
        return [bar for _, bars in self.groups for bar in bars]


def _group_of(suite: Suite, row: Row) -> str:
    parts = []
    if suite.name == "ddp":
        parts.append(row.size.upper() + (" (dry run)" if row.dry_run else ""))
    if suite.name == "compile" or len(suite.distinct("gpu")) > 1:
        parts.append(row.gpu)
    if len(suite.distinct("source")) > 1:  # colour alone would not tell them apart
        parts.append(SOURCE_WORDS.get(row.source, row.source))
    return ", ".join(part for part in parts if part)


def chart(suite: Suite, title: str, value: Callable[[Row], float | None],
          show: Callable[[float], str]) -> Chart | None:
    """A chart of the rows; None when no row knows the figure."""
    # A stand-in model's speed says nothing beside a real one's.
    rows = [row for row in suite.rows if not row.dry_run] or suite.rows
    known = [value(row) for row in rows if row.ok and value(row) is not None]
    if not known or max(known) <= 0:
        return None
    longest = max(known)
    sources = suite.distinct("source")
    groups: dict[str, list[Bar]] = {}
    for row in rows:
        figure = value(row) if row.ok else None
        if row.ok and figure is None:
            continue
        label = row.variant + (f" {row.batches}" if row.batches and suite.name == "finetune"
                               else "")
        if suite.letter(row):
            label += f" [{suite.letter(row)}]"
        text = show(figure) if figure is not None else row.status_words
        groups.setdefault(_group_of(suite, row), []).append(
            Bar(label, text, None if figure is None else 100 * figure / longest,
                sources.index(row.source) + 1))
    legend = [(SOURCE_WORDS.get(source, source), at + 1) for at, source in enumerate(sources)]
    alt = f"{title}: " + "; ".join(
        f"{heading + ' ' if heading else ''}{bar.label} {bar.text}"
        for heading, bars in groups.items() for bar in bars)
    return Chart(title, list(groups.items()), alt, legend if len(legend) > 1 else [])


def _rate(suite: Suite) -> Chart | None:
    return chart(suite, "Tokens per second", lambda row: row.tokens_per_second,
                 lambda value: number(value, 0))


def _peak(suite: Suite, unit: str) -> Chart | None:
    convert = gib if unit == "GiB" else giga
    return chart(suite, f"Peak memory, {unit}", lambda row: row.peak_bytes,
                 lambda value: number(convert(value), 1))


def headline(suite: Suite) -> Chart | None:
    """The figure at the top of the section."""
    return _peak(suite, "GiB") if suite.name == "finetune" else _rate(suite)


def second(suite: Suite) -> Chart | None:
    """The chart before the table."""
    if suite.name == "finetune":
        return _rate(suite)
    if suite.name == "compile":
        return _peak(suite, "GB")
    cost = chart(suite, "$ per 1B tokens at the run day's price",
                 lambda row: suite.costing.usd_per_billion(row), report_costs.amount)
    return cost or _peak(suite, "GiB")


def mfu(suite: Suite) -> Chart | None:
    """Model FLOPs over the GPUs' dense peak."""
    return chart(suite, f"MFU: model FLOPs over the GPUs' {report_mfu.sources(suite.ok)} dense "
                 "peak, attention halved for causality", lambda row: row.mfu,
                 lambda value: f"{100 * value:.1f}%")


@dataclass
class Stacks:
    """Rows of parts, each row as long as the others: shares of a step."""

    title: str
    rows: list[tuple[str, str, list[tuple[float, int, str]]]]  # label, total, (%, series, words)
    legend: list[tuple[str, int]]
    alt: str


def phases(suite: Suite) -> Stacks | None:
    """What a step is made of: medians over the steps, of each step's slowest rank."""
    rows = []
    used: dict[str, int] = {}
    for row in suite.measured:
        if not row.cases or "forward_seconds" not in row.cases[0].series or not row.step_seconds:
            continue
        parts = {name: row.cases[0].median(f"{name}_seconds") or 0.0 for name in PHASES}
        whole = max(row.step_seconds, sum(parts.values()))
        shares = []
        for number_of, (name, seconds) in enumerate(parts.items(), 1):
            if seconds > 0:
                used[name] = number_of
                words = f"{name.replace('_', ' ')} {seconds * 1e3:,.2f} ms"
                shares.append((100 * seconds / whole, number_of, words))
        rows.append((suite.name_of(row), f"{row.step_seconds * 1e3:,.1f} ms", shares))
    if not rows:
        return None
    alt = "Phases of the median step: " + "; ".join(
        f"{label}: {', '.join(words for _, _, words in shares)}" for label, _, shares in rows)
    legend = [(name.replace("_", " "), used[name]) for name in PHASES if name in used]
    return Stacks("What a step is made of", rows, legend, alt)
