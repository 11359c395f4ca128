"""Measured rows beside published ones. Machines differ, so no row is called faster or slower."""

from __future__ import annotations

import statistics

import compare_settings
from compare_pair import good, groups, median_of, rates
from published import Published
from published_rows import PublishedRow
from results_command import number, table
from results_model import Case, Results

HEADER = ["case", "published on", "measured on", "tokens/s published", "measured",
          "measured/published", "peak published", "measured", "first step s published", "measured",
          "held-out loss published", "measured"]
STATED = ("hardware", "topology", "software", "model", "method", "data", "training", "step",
          "metric", "measured")
SCALES = {"GiB": 2**30, "GB": 10**9}


def lines(file: Results, published: Published) -> list[str]:
    """The table, and what differs."""
    found, suites, rows = [f"measured  = {file.path}", f"published = {published.path}"], [], []
    measured = groups(file)
    for row in published.rows:
        cases = measured.get((row.suite, row.case))
        if cases is not None:
            rows.append(_row(file, row, cases))
            suites.append(row.suite)
    if not rows:
        return [*found, "no case of the file is among the published ones"]
    found.append(table(HEADER, rows, left=3))
    found.append("Software and hosts differ, as listed below, and mostly cards: the ratios are no "
                 "statement about either program. Published rows are single runs.")
    for suite in dict.fromkeys(suites):
        found += _differences(file, published, suite, measured)
    return found


def _row(file: Results, row: PublishedRow, cases: list[Case]) -> list[str]:
    ok = good(cases)
    shown = (ok or cases)[0]
    run = compare_settings.run_of(file, shown)
    dry = " (dry run)" if shown.value("dry_run") else ""
    rate = statistics.median(rates(ok)) if rates(ok) else None
    unit = row.peak_unit or {"compile": "GB"}.get(row.suite, "GiB")
    peak = median_of(ok, "peak_allocated_bytes")
    both = rate is not None and row.tokens_per_second is not None
    return [row.case, f"{row.gpus}x {row.gpu}", compare_settings.devices(run, shown) + dry,
            number(row.tokens_per_second, 0) if row.status == "ok" else "out of memory",
            number(rate, 0) if ok else shown.status,
            f"{rate / row.tokens_per_second:.2f}" if both else "-",
            "-" if row.peak is None else f"{row.peak:.1f} {unit}",
            "-" if peak is None else f"{peak / SCALES[unit]:.1f} {unit}",
            number(row.first_step_seconds, 1), number(median_of(ok, "first_step_seconds"), 1),
            _losses(row.loss_before, row.loss_after),
            _losses(*(median_of(ok, f"held_out_loss_{when}") for when in ("before", "after")))]


def _losses(before: float | None, after: float | None) -> str:
    return "-" if before is None or after is None else f"{before:.3f} to {after:.3f}"


def _differences(file: Results, published: Published, suite: str, measured: dict) -> list[str]:
    """What the page states, and what the file says of the same; each sentence once."""
    section = published.sections[suite]
    stated = [f"{suite}, published: {key}: {section[key]}" for key in STATED if key in section]
    wanted = {row.case for row in published.rows if row.suite == suite}
    cases = [case for (of, name), repeats in measured.items() if of == suite and name in wanted
             for case in repeats]
    own = [f"{suite}, measured: {words}" for case in cases for words in _stated_by(file, case)]
    vocabularies = sorted({case.value("vocabulary") for case in cases} - {None})
    said = section.get("model", "")
    known = "vocabulary" in said and "not stated" not in said
    return [*stated, *dict.fromkeys(own),
            f"{suite}, vocabulary: published {'as in the model above' if known else 'not stated'}, "
            f"measured {' and '.join(f'{one:,}' for one in vocabularies) or 'not known'}"]


def _stated_by(file: Results, case: Case) -> list[str]:
    """Hardware, software and shapes of a measured row."""
    run = compare_settings.run_of(file, case)
    attributes = run.attributes if run else {}
    software = ", ".join(f"{key.removesuffix('_version')} {attributes[key]}"
                         for key in compare_settings.OF_RUNS
                         if key.endswith("_version") and key in attributes)
    shapes = ", ".join(f"{key.replace('_', ' ')} {case.value(key)}" for key in
                       ("micro_batch", "accumulate", "sequence", "precision", "kernels",
                        "compile_mode") if case.value(key) is not None)
    return [f"hardware: {compare_settings.devices(run, case) or 'not known'}; "
            f"host {compare_settings.hosts(run) or 'not known'}",
            f"software: {software or 'not known'}", f"shapes: {shapes or 'not known'}"]
