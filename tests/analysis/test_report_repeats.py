"""The report over repeats: intervals in place of ranges, and rows whose GPU was disturbed."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import made_files
import pytest
import report_steady
import results
from report_costs import Costing
from report_details import detail_table
from report_read import rows_of
from report_suite import Suite
from results_repeats import over_repeats


def suite_of(tmp_path: Path, rows: list[results.CaseRecord]) -> Suite:
    path = made_files.write(tmp_path / "a.h5", rows)
    return Suite("ddp", rows_of(results.load(path)), Costing(None, "2026-10-29"), [], [path])


def test_the_range_is_the_interval_from_three_repeats(tmp_path: Path) -> None:
    for count in (1, 2, 3):
        folder = tmp_path / str(count)
        folder.mkdir()
        (row,) = suite_of(folder, made_files.repeats([1.0, 1.1, 1.3][:count])).rows
        rates = [512, 512 / 1.1, 512 / 1.3][:count]
        spread = over_repeats(rates)
        wanted = {1: None, 2: (min(rates), max(rates)), 3: (spread.low, spread.high)}[count]
        assert row.rate_range == (wanted if wanted is None else pytest.approx(wanted))
        assert row.tokens_per_second == pytest.approx(spread.median)


def test_the_table_of_details_holds_the_interval(tmp_path: Path) -> None:
    suite = suite_of(tmp_path, made_files.repeats([1.0, 1.1, 1.3]))
    column = next(one for one in detail_table(suite).columns
                  if one.title == "Tokens/s over repeats")
    spread = over_repeats([512, 512 / 1.1, 512 / 1.3])
    assert column.make(suite.rows[0]).text == f"{spread.low:,.0f} to {spread.high:,.0f}"


@pytest.mark.parametrize("found, checks, words", [
    ({"throttled": True, "throttled_share": 0.4, "throttle_reasons": "power cap"}, {},
     "at its power limit in 40% of the samples (power cap)"),
    ({"shared_gpu": True}, {}, "other processes used the GPU"),
    ({}, {"below_peak": False}, "faster than the peak"),
    ({"throttled": False, "shared_gpu": False}, {"below_peak": True}, ""),
])
def test_disturbed_rows_are_told(tmp_path: Path, found: dict[str, Any], checks: dict[str, bool],
                                 words: str) -> None:
    row = made_files.case()
    row.results |= found
    row.checks |= checks
    said = list(report_steady.disturbed(suite_of(tmp_path, [row])))
    assert len(said) == bool(words) and all(words in sentence for sentence in said)
