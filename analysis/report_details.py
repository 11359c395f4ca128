"""The table of further figures: what the published tables leave out."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import report_costs
from costs import number
from report_rows import Row
from report_suite import Suite
from report_tables import (Cell, Column, Table, build, figure_cell, measured, missing, peak_cell,
                           text_cell, three_digits)


def _spread(row: Row) -> Cell:
    if row.step_p10 is None or row.step_p90 is None:
        return missing()
    low, high = (three_digits(value, 1e3).text for value in (row.step_p10, row.step_p90))
    return Cell(f"{low} to {high}", row.step_p90)


def _over_repeats(row: Row) -> Cell:
    if row.rate_range is None:
        return Cell("single run", None, "no interval over one repeat", "missing") \
            if row.cases and row.tokens_per_second else missing()
    low, high = row.rate_range
    return Cell(f"{low:,.0f} to {high:,.0f}", low, row.rate_method)


def _peak(row: Row) -> Cell:
    if row.mfu is None or row.peak_flops is None:
        return missing()
    return Cell(f"{number(row.peak_flops * 1e-12, 1)} {row.peak_source}", row.peak_flops)


def _whole(suite: Suite) -> Callable[[Row], Cell]:
    def make(row: Row) -> Cell:
        whole = suite.costing.whole_machine(row)
        return missing() if whole is None else Cell(f"{whole[0]:,.3g}", whole[0])
    return make


def _job(suite: Suite, today: bool) -> Callable[[Row], Cell]:
    def make(row: Row) -> Cell:
        pair = suite.costing.job(row)
        value = None if pair is None else pair.today if today else pair.run_day
        return missing() if value is None else Cell(report_costs.amount(value), value)
    return make


def detail_table(suite: Suite) -> Table:
    """What the published shape leaves out."""
    def percent(value: Any) -> Cell:
        return figure_cell(value, 1, 100, "%")

    columns = [
        Column("Row", lambda row: text_cell(suite.name_of(row)), False),
        Column("Repeats", lambda row: figure_cell(row.repeats if row.cases else None, 0)),
        Column("Tokens/s over repeats", _over_repeats, True,
               "95% interval from three repeats on, the range of two"),
        Column("Step p10 to p90, ms", measured(_spread)),
        Column("Padded tokens/s", measured(
            lambda row: figure_cell(row.padded_tokens_per_second, 0))),
        Column("Exposed sync, ms", measured(
            lambda row: three_digits(row.exposed_sync_seconds, 1e3))),
        Column("Launch on the host, ms", measured(
            lambda row: three_digits(row.host_launch_seconds, 1e3))),
        Column("MFU", measured(lambda row: percent(row.mfu)), True,
               "model FLOPs a token, attention halved for causality, x tokens/s / the GPUs' "
               "dense peak, which stands beside it"),
        Column("MFU, uncausal", measured(lambda row: percent(row.mfu_uncausal))),
        Column("MFU is of, TFLOP/s a GPU", measured(_peak), True,
               "measured: the fastest product on that device; listed: the maker's figure"),
        Column("Peak allocated, GiB", lambda row: peak_cell(row.peak_bytes, "GiB", 2)),
        Column("Peak allocated, GB", lambda row: peak_cell(row.peak_bytes, "GB", 2)),
        Column("Peak reserved, GiB", lambda row: peak_cell(row.peak_reserved_bytes, "GiB", 2)),
        Column("Whole case's peak, GiB", lambda row: peak_cell(row.case_peak_bytes, "GiB", 2)),
        Column("Set-up, s", lambda row: figure_cell(row.setup_seconds, 2)),
        Column("First step, s", lambda row: figure_cell(row.first_step_seconds, 2)),
        Column("Whole case, s", lambda row: figure_cell(row.case_seconds, 1)),
        Column("Whole case, $ run day", _job(suite, False), True,
               "set-up, compile, training and evaluation"),
        Column("Whole case, $ today", _job(suite, True)),
        Column("Whole machine, " + report_costs.HEADINGS[report_costs.FIGURES[suite.name]],
               _whole(suite)),
    ]
    known = [row for row in suite.rows if any(column.make(row).text not in ("-", row.status_words)
                                              for column in columns[1:])]
    return build("Further figures of each row", columns, known)
