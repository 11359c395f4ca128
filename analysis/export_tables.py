"""Result files as flat tables: one line a row, or one line a step of a rank. Units in headings.

Figures are written with all their digits: reading a cell as a number gives the same bits.
"""

from __future__ import annotations

import csv
import math
from collections.abc import Callable, Iterator
from typing import Any, TextIO

import numpy as np

import compare_settings
from figures import rate_of, training_seconds
from published_rows import PublishedRow
from results_layout import unit_of
from results_model import Case, Results

Table = tuple[str, str, Callable[[Results, Case], Any]]  # name, unit ("" for none), its value
SUMMED = ("step_seconds", "exposed_sync_seconds", "data_seconds", "forward_seconds",
          "backward_seconds", "optimizer_seconds", "host_seconds")
WITHOUT_UNIT = "1"


def heading(name: str, unit: str) -> str:
    """"step_seconds [s]"; a plain number or a text has no unit."""
    return f"{name} [{unit}]" if unit and unit != WITHOUT_UNIT else name


def cell(value: Any) -> str:
    """Exact text of a value; empty where unknown."""
    if value is None or (isinstance(value, float) and math.isnan(value)):
        return ""
    if isinstance(value, (bool, np.bool_)):
        return "true" if value else "false"
    if isinstance(value, (float, np.floating)):
        return repr(float(value))
    if isinstance(value, (list, tuple)):
        return " ".join(map(cell, value))
    return str(value)


def _identity() -> list[Table]:
    def of_run(take: Callable) -> Callable[[Results, Case], Any]:
        def value(file: Results, case: Case) -> Any:
            run = compare_settings.run_of(file, case)
            return None if run is None else take(run, case)
        return value

    return [("file", "", lambda file, case: file.path), ("suite", "", lambda f, case: case.suite),
            ("case", "", lambda f, case: case.name), ("repeat", "", lambda f, case: case.repeat),
            ("status", "", lambda f, case: case.status),
            ("reason", "", lambda f, case: case.reason),
            ("created_utc", "", of_run(lambda run, case: run.created_utc)),
            ("gpus", "", of_run(compare_settings.devices)),
            ("hosts", "", of_run(lambda run, case: " ".join(
                sorted({one["host"] for one in run.ranks if one["host"]})))),
            ("ranks", "", lambda f, case: len(case.ranks))]


def _figures() -> list[Table]:
    found: list[Table] = [
        ("tokens_per_second", "token/s", lambda f, case: rate_of(case)),
        ("train_seconds", "s", lambda f, case: training_seconds(case))]
    for name in SUMMED:
        for words, take in (("median", Case.median), ("p10", Case.p10), ("p90", Case.p90)):
            found.append((f"{name}_{words}", "s",
                          lambda f, case, name=name, take=take: take(case, name)))
    found.append(("step_seconds_mean", "s", lambda f, case: _mean(case, "step_seconds")))
    found.append(("loss_last", "", lambda f, case: _last(case, "loss")))
    return found


def _mean(case: Case, name: str) -> float | None:
    values = case.per_step(name)
    return float(values.mean()) if values.size else None


def _last(case: Case, name: str) -> float | None:
    values = case.per_step(name)
    return float(values[-1]) if values.size else None


def _of_case(name: str) -> Table:
    def value(file: Results, case: Case) -> Any:
        return case.value(name)
    return name, unit_of(name), value


def _of_run(name: str) -> Table:
    def value(file: Results, case: Case) -> Any:
        run = compare_settings.run_of(file, case)
        return None if run is None else run.attributes.get(name)
    return f"run_{name}", unit_of(name), value


def columns(files: list[Results]) -> list[Table]:
    """What any of the files knows of its rows: identity, figures, results, settings, run."""
    found = _identity() + _figures()
    taken = {name for name, _, _ in found}
    cases = [case for file in files for case in file.cases]
    for group in ("results", "settings"):
        names = sorted({name for case in cases for name in getattr(case, group)} - taken)
        found += [_of_case(name) for name in names]
        taken |= set(names)
    checks = sorted({name for case in cases for name in case.checks})
    found += [(f"check_{name}", "", lambda f, case, name=name: case.checks.get(name))
              for name in checks]
    return found + [_of_run(name) for name in sorted(
        {name for file in files for run in file.runs for name in run.attributes})]


def rows_csv(files: list[Results], out: TextIO) -> None:
    """One line a row (a repeat of a case)."""
    table = columns(files)
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow([heading(name, unit) for name, unit, _ in table])
    for file in files:
        for case in file.cases:
            writer.writerow([cell(value(file, case)) for _, _, value in table])


def published_csv(rows: list[PublishedRow], out: TextIO) -> None:
    """Published rows: their summary figures, as printed."""
    units = {"tokens_per_second": "token/s", "peak_bytes": "byte", "train_tokens": "token",
             "printed_run_day": "", "printed_today": ""}
    names = ("source", "suite", "case", "gpu", "gpus", "machine_gpus", "model", "variant",
             "run_date", "status", "reason", "micro_batch", "accumulate", "trainable_parameters",
             "tokens_per_second", "step_seconds", "train_seconds", "train_tokens",
             "first_step_seconds", "peak", "peak_unit", "peak_bytes", "loss_before", "loss_after",
             "printed_speed_up", "cost_figure", "printed_run_day", "printed_today")
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow([heading(name, units.get(name, unit_of(name))) for name in names])
    for row in rows:
        writer.writerow([cell(getattr(row, name)) for name in names])


def series_columns(files: list[Results]) -> list[tuple[str, str]]:
    """(name, unit) of every series in any row. Units differ for one name: both are columns."""
    return list(dict.fromkeys((name, series.unit) for file in files for case in file.cases
                              for name, series in sorted(case.series.items())))


def steps_csv(files: list[Results], out: TextIO) -> None:
    """Tidy: one line for each step of each rank."""
    series = series_columns(files)
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(["file", "suite", "case", "repeat", "rank", "step", "warmup",
                     *(heading(name, unit) for name, unit in series)])
    for file in files:
        for case in file.cases:
            for lines in _case_lines(file.path, case, series):
                writer.writerows(lines)


def _case_lines(path: str, case: Case, series: list[tuple[str, str]]
                ) -> Iterator[Iterator[tuple[str, ...]]]:
    """The lines of each rank."""
    steps = max((one.values.shape[1] for one in case.series.values()), default=0)
    warm = ["true" if step < len(case.warmup) and case.warmup[step] else "false"
            for step in range(steps)]
    for row, rank in enumerate(case.ranks):
        start = [path, case.suite, case.name, str(case.repeat), str(int(rank))]
        values = [_texts(case, name, unit, row, steps) for name, unit in series]
        yield ((*start, str(step), warm[step], *(column[step] for column in values))
               for step in range(steps))


def _texts(case: Case, name: str, unit: str, row: int, steps: int) -> list[str]:
    one = case.series.get(name)
    if one is None or one.unit != unit or row >= len(one.values):
        return [""] * steps
    known = one.values[row].tolist()
    whole = one.values.dtype.kind == "i"
    texts = [str(value) if whole else "" if value != value else repr(value) for value in known]
    return texts + [""] * (steps - len(texts))


def markdown(files: list[Results]) -> str:
    """A table for people, rounded; units in headings."""
    lines = ["| file | case | repeat | GPUs | status | tokens/s | step, ms (median) "
             "| p10..p90, ms | exposed sync, ms | peak allocated, GiB | peak reserved, GiB "
             "| first step, s |", "|---|---|--:|---|---|" + "--:|" * 7]
    for file in files:
        lines += [_markdown_row(file, case) for case in file.cases]
        if not file.complete:
            lines.append(f"\n{file.path} is not complete: no result of "
                         f"{', '.join(file.missing()) or 'the rest of its run'}\n")
    return "\n".join(lines) + "\n"


def _markdown_row(file: Results, case: Case) -> str:
    def figure(value: float | None, digits: int, scale: float = 1.0) -> str:
        return "-" if value is None else f"{value * scale:,.{digits}f}"

    low, high = case.p10("step_seconds"), case.p90("step_seconds")
    status = case.status if case.status == "ok" else f"{case.status}: {case.reason}"
    status += " (dry run)" if case.value("dry_run") else ""
    cells = [file.path, case.name, str(case.repeat),
             compare_settings.devices(compare_settings.run_of(file, case), case) or "-", status,
             figure(rate_of(case), 0), figure(case.median("step_seconds"), 2, 1e3),
             "-" if low is None else f"{figure(low, 2, 1e3)}..{figure(high, 2, 1e3)}",
             figure(case.median("exposed_sync_seconds"), 2, 1e3),
             figure(case.value("peak_allocated_bytes"), 3, 1 / 2**30),
             figure(case.value("peak_reserved_bytes"), 3, 1 / 2**30),
             figure(case.value("first_step_seconds"), 2)]
    return "| " + " | ".join(text.replace("|", "\\|").replace("\n", " ") for text in cells) + " |"
