"""MFU of a page's rows, and of which peak it is."""

from __future__ import annotations

import numpy as np

from figures import rate_of
from report_rows import Row
from results import Case, Results
from results_ceilings import product_ceiling

MEASURED, LISTED = "measured", "listed"


def _recorded(row: Row) -> tuple[float, str] | None:
    """The peak that the row's own program knew."""
    for case in row.cases:
        if case.value("peak_flops"):
            return float(case.value("peak_flops")), str(case.value("peak_flops_source", LISTED))
    return None


def _measured(row: Row, files: list[Results]) -> float | None:
    """The fastest product of the row's precision on its device: of its own file, else the median
    of the page's others."""
    precision = row.settings.get("precision")
    if len(row.device_names) != 1 or not precision:
        return None
    rates = {file.path: product_ceiling(file, str(precision), row.device_names[0])
             for file in files}
    if rates.get(row.file):
        return rates[row.file]
    known = [rate for rate in rates.values() if rate]
    return float(np.median(known)) if known else None


def _peak(row: Row, files: list[Results], listed: dict[tuple, tuple[float, str]]
          ) -> tuple[float, str] | None:
    """Measured before listed; a program that knows neither takes it from rows of the same card and
    precision."""
    recorded = _recorded(row)
    if recorded is not None and recorded[1] == MEASURED:
        return recorded
    measured = _measured(row, files)
    if measured:
        return measured, MEASURED
    return recorded or listed.get((row.gpu, row.settings.get("precision")))


def _share(case: Case, name: str, row: Row) -> float | None:
    flops, rate = case.value(name), rate_of(case)
    return flops * rate / (row.peak_flops * row.gpus) if flops and rate else None


def _median(row: Row, name: str) -> float | None:
    known = [share for case in row.cases if (share := _share(case, name, row)) is not None]
    return float(np.median(known)) if known else None


def fill_mfu(rows: list[Row], files: list[Results]) -> None:
    """MFU of every measured row whose FLOPs and peak are known, and which peak that is."""
    listed = {(row.gpu, row.settings.get("precision")): found
              for row in rows if (found := _recorded(row)) is not None}
    for row in rows:
        peak = _peak(row, files, listed) if row.ok and row.cases else None
        if peak is None or not row.tokens_per_second:
            continue
        row.peak_flops, row.peak_source = peak
        row.mfu = _median(row, "flops_per_token")
        row.mfu_uncausal = _median(row, "flops_per_token_uncausal")


def sources(rows: list[Row]) -> str:
    """"measured", "listed", or both in words; what the rows' MFU is of."""
    found = {row.peak_source for row in rows if row.mfu is not None}
    return f"{MEASURED} or {LISTED}" if len(found) > 1 else next(iter(found), LISTED)
