"""The tables of a page: cells with what they are sorted by."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import report_costs
from costs import ONE_SHARE, number
from report_rows import Row, giga, gib
from report_suite import SOURCE_WORDS, Suite


@dataclass
class Cell:
    """text; what the column is sorted by (None: last); a note; a style."""

    text: str
    sort: float | str | None = None
    note: str = ""
    style: str = ""  # "missing", "best"


@dataclass
class Column:
    """A heading with its unit, and how a row's cell is made."""

    title: str
    make: Callable[[Row], Cell]
    numeric: bool = True
    help: str = ""


@dataclass
class Table:
    """A table as the page's template draws it."""

    caption: str
    columns: list[Column]
    rows: list[list[Cell]]
    notes: list[str] = field(default_factory=list)


def text_cell(text: str) -> Cell:
    """Text, sorted as such."""
    return Cell(text, text.casefold()) if text else missing()


def missing(text: str = "-") -> Cell:
    """What is not known."""
    return Cell(text, None, "not known" if text == "-" else "", "missing")


def figure_cell(value: float | None, digits: int = 1, scale: float = 1.0, suffix: str = "") -> Cell:
    """A number with thousands separators."""
    if value is None:
        return missing()
    return Cell(number(value * scale, digits) + suffix, value)


def three_digits(value: float | None, scale: float = 1.0) -> Cell:
    """A number with three digits, or whole from 100."""
    if value is None:
        return missing()
    scaled = abs(value * scale)
    return figure_cell(value, 0 if scaled >= 100 else 1 if scaled >= 10 else 2, scale)


def peak_cell(value: float | None, unit: str, digits: int = 1) -> Cell:
    """Bytes in GiB or GB."""
    return figure_cell(value, digits, gib(1) if unit == "GiB" else giga(1))


def measured(make: Callable[[Row], Cell]) -> Callable[[Row], Cell]:
    """Cells of rows that were not measured say why."""
    def cell(row: Row) -> Cell:
        return make(row) if row.ok else Cell(row.status_words, None, row.reason, "missing")
    return cell


def build(caption: str, columns: list[Column], rows: list[Row]) -> Table:
    """A table of these rows; columns in which nothing is known are left out."""
    cells = [_say_once([column.make(row) for column in columns], row) for row in rows]
    kept = [index for index in range(len(columns))
            if index == 0 or any(line[index].text != "-" for line in cells)]
    return Table(caption, [columns[index] for index in kept],
                 [[line[index] for index in kept] for line in cells])


def _say_once(cells: list[Cell], row: Any) -> list[Cell]:
    """Why a row was not measured stands in its first such cell."""
    found = False
    for index, cell in enumerate(cells):
        if isinstance(row, Row) and not row.ok and cell.text == row.status_words:
            cells[index] = missing() if found else cell
            found = True
    return cells


def _source(row: Row) -> Cell:
    return text_cell(SOURCE_WORDS.get(row.source, row.source))


def common_columns(suite: Suite, with_gpu: bool) -> list[Column]:
    """Program, card and file, where rows differ in them."""
    columns = []
    if with_gpu:
        columns.append(Column("GPU", lambda row: text_cell(row.gpu), False))
    if len(suite.distinct("source")) > 1:
        columns.append(Column("Program", _source, False))
    if any(suite.letter(row) for row in suite.rows):
        columns.append(Column("File", lambda row: text_cell(suite.file_letter(row)), False,
                              "the letter in the list of files"))
    return columns


def _cost_columns(suite: Suite) -> list[Column]:
    figure = report_costs.FIGURES[suite.name]
    heading = report_costs.HEADINGS[figure]

    def cell(today: bool) -> Callable[[Row], Cell]:
        def make(row: Row) -> Cell:
            pair = suite.costing.figure(row)
            text = report_costs.texts(pair)[today]
            value = None if pair is None else pair.today if today else pair.run_day
            return Cell(text, value, _share_note(suite, row), "" if value is not None else
                        "missing")
        return measured(make)

    return [Column(f"{heading}, run day", cell(False)), Column(f"{heading}, today", cell(True))]


def _share_note(suite: Suite, row: Row) -> str:
    """Says when a share of a machine is paid, and what the whole machine comes to."""
    whole = suite.costing.whole_machine(row)
    if whole is None:
        return ""
    value, price = whole
    share = ONE_SHARE if row.gpus == 1 else f"{row.gpus} GPUs' share"
    return f"{share} of a {price.machine_gpus}-GPU machine; paid whole: {value:,.3g}"


def model_words(row: Row) -> str:
    """124M, vocabulary 50,304."""
    vocabulary = row.settings.get("vocabulary")
    words = f"{vocabulary:,}" if isinstance(vocabulary, int) else "not stated"
    dry = " (dry run)" if row.dry_run else ""
    return f"{row.size.upper()}{dry}, vocabulary {words}"


def _speed_up(suite: Suite, base: str) -> Callable[[Row], Cell]:
    return measured(lambda row: figure_cell(suite.speed_up(row, base), 2, 1, "x"))


def _rate(row: Row) -> Cell:
    return figure_cell(row.tokens_per_second, 0)


def _trainable(row: Row) -> Cell:
    if row.parameters_trainable is None:
        return missing()
    millions = number(row.parameters_trainable / 1e6, 1)
    if not row.parameters_total:
        return Cell(f"{millions}M", row.parameters_trainable)
    share = 100 * row.parameters_trainable / row.parameters_total
    return Cell(f"{millions}M ({number(share, 0 if share > 99 else 1)}%)",
                row.parameters_trainable)


def _losses(row: Row) -> Cell:
    if row.loss_before is None or row.loss_after is None:
        return missing()
    return Cell(f"{row.loss_before:.3f} to {row.loss_after:.3f}", row.loss_after)


def _finetune_columns(suite: Suite) -> list[Column]:
    return [
        Column("Method", lambda row: text_cell(row.variant), False),
        *common_columns(suite, len(suite.distinct("gpu")) > 1),
        Column("Micro-batch x accumulation",
               lambda row: Cell(row.batches or "-", row.settings.get("micro_batch"))),
        *([Column("GPUs", lambda row: figure_cell(row.gpus, 0))]
          if len(suite.distinct("gpus")) > 1 else []),
        Column("Trainable parameters (share)", _trainable),
        Column("Train time, s", measured(lambda row: three_digits(row.train_seconds))),
        Column("Tokens/s", measured(_rate), True, "tokens that are no padding"),
        Column("Peak, GiB", measured(lambda row: peak_cell(row.peak_bytes, "GiB"))),
        Column("Held-out loss, before to after", measured(_losses)), *_cost_columns(suite)]


def _ddp_columns(suite: Suite) -> list[Column]:
    return [
        Column("Model", lambda row: text_cell(model_words(row)), False),
        Column("Variant", lambda row: text_cell(row.variant), False),
        *common_columns(suite, len(suite.distinct("gpu")) > 1),
        Column("Tokens/s", measured(_rate)),
        Column("Speed-up over 1 GPU, same accumulation", _speed_up(suite, "own")),
        Column("Speed-up over 1 GPU", _speed_up(suite, "1gpu"), True,
               "1 GPU without accumulation"),
        *_cost_columns(suite)]


def _hourly(suite: Suite) -> Callable[[Row], Cell]:
    def make(row: Row) -> Cell:
        price = suite.costing.run_price(row)
        if price is None:
            return Cell(report_costs.NOT_PRICED if row.gpu == "CPU" else "no price for this date",
                        None, "", "missing")
        return Cell(report_costs.amount(price.usd_for(row.gpus)), price.usd_for(row.gpus))
    return make


def _compile_columns(suite: Suite) -> list[Column]:
    return [
        Column("GPU", lambda row: text_cell(row.gpu), False),
        Column("Setup", lambda row: text_cell(row.variant), False),
        *common_columns(suite, False),
        Column("$/hour, run day", _hourly(suite)),
        Column("Step, ms", measured(lambda row: three_digits(row.step_seconds, 1e3))),
        Column("Tokens/s", measured(_rate)),
        Column("Peak, GB", measured(lambda row: peak_cell(row.peak_bytes, "GB"))),
        Column("First step, s", measured(lambda row: figure_cell(row.first_step_seconds, 1))),
        *_cost_columns(suite)]


CAPTIONS = {"finetune": "Memory, speed, loss and cost of each method",
            "ddp": "Throughput and cost of each variant",
            "compile": "Step time, memory and cost of each setup"}


def main_table(suite: Suite) -> Table:
    """The suite's table in the shape of the published page."""
    columns = {"finetune": _finetune_columns, "ddp": _ddp_columns,
               "compile": _compile_columns}[suite.name](suite)
    table = build(CAPTIONS[suite.name], columns, suite.rows)
    notes = dict.fromkeys(cell.note for line in table.rows for cell in line
                          if "share of a" in cell.note)
    if notes:
        table.notes.append("Rows on fewer GPUs than their machine has pay " + ONE_SHARE +
                           " (or theirs) of it; the whole machine's cost is in the table of "
                           "further figures.")
    return table
