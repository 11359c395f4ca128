"""The command trainsuite-results: summary, compare, verify, join; others from their modules."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Callable, Sequence

import numpy as np

import results_merge
import results_recheck
import results_views
from figures import rate_of
from results_checks import violations
from results_model import Case, Results
from results_reader import load
from results_records import ResultError
from results_steady import notes
from results_tables import number, repeats_text, table, untimed
from results_writer import join_file

GIB = 2**30
SAME_WORK = ("micro_batch", "accumulate", "sequence", "vocabulary", "precision", "wire", "seed",
             "learning_rate", "dry_run")


def summary_row(case: Case) -> list[str]:
    """The cells of one case."""
    low, high = case.p10("step_seconds"), case.p90("step_seconds")
    spread = "-" if low is None else f"{low * 1e3:,.2f}..{high * 1e3:,.2f}"
    rate = rate_of(case)
    if means := untimed(case):
        spread, rate = number(means[0], 2, 1e3), means[1]
    return [
        str(case.value("implementation", "?")),
        case.name + (" (dry run)" if case.value("dry_run") else ""),
        str(case.repeat),
        case.status,
        number(rate, 0),
        spread,
        number(case.median("exposed_sync_seconds"), 2, 1e3),
        number(case.value("peak_allocated_bytes"), 3, 1 / GIB),
        number(case.value("peak_reserved_bytes"), 3, 1 / GIB),
        number(case.value("host_launch_seconds"), 2, 1e3),
        number(case.value("first_step_seconds"), 2),
    ]


SUMMARY_HEADER = ["implementation", "case", "repeat", "status", "tokens/s", "step ms p10..p90",
                  "exposed sync ms", "allocated GiB", "reserved GiB", "host launch ms",
                  "first step s"]


def summary(paths: list[str]) -> int:
    """One table over several files; the same case of two files side by side."""
    files = [load(path) for path in paths]
    order: dict[tuple[str, str], int] = {}
    for file in files:
        for case in file.cases:
            order.setdefault((case.suite, case.name), len(order))
    cases = sorted((case for file in files for case in file.cases),
                   key=lambda case: (order[case.suite, case.name], case.repeat))
    trained = [case for case in cases if case.suite != "ceilings"]
    if trained or not cases:
        print(table(SUMMARY_HEADER, [summary_row(case) for case in trained], left=2))
    if text := results_views.ceilings_text(cases):
        print(text)
    for case in cases:
        if case.status != "ok":
            print(f"{case.label}: {case.status}: {case.reason or 'no reason given'}")
        for note in notes(case):
            print(f"{case.label}: {note}")
    if of_loop := [case.label for case in cases if untimed(case)]:
        print("means of the loop, all steps after the first, as single steps were not timed "
              f"(--instrumentation off): {', '.join(dict.fromkeys(of_loop))}")
    if trained:
        print(repeats_text(trained))
    for file in files:
        if not file.complete:
            missing = file.missing()
            print(f"{file.path} is not complete: "
                  + (f"no result of {', '.join(missing)}" if missing else "its run did not end"))
    return 0


def pooled(cases: list[Case], measure: Callable[[Case], float | None]) -> float | None:
    """Median over the repeats that know it."""
    known = [value for value in map(measure, cases) if value is not None]
    return float(np.median(known)) if known else None


def ratio(a: float | None, b: float | None) -> str:
    """A / B."""
    return "-" if a is None or not b else f"{a / b:.3f}"


def loss_difference(a: list[Case], b: list[Case]) -> float | None:
    """The largest |difference| of loss over common repeats, ranks and steps."""
    largest = None
    others = {case.repeat: case for case in b}
    for case in a:
        other = others.get(case.repeat)
        if other is None or "loss" not in case.series or "loss" not in other.series:
            continue
        rows = {rank: row for row, rank in enumerate(other.series["loss"].ranks)}
        for row, rank in enumerate(case.series["loss"].ranks):
            if rank not in rows:
                continue
            mine, theirs = case.series["loss"].values[row], other.series["loss"].values[rows[rank]]
            steps = min(len(mine), len(theirs))
            gaps = np.abs(mine[:steps] - theirs[:steps])
            if not np.isnan(gaps).all():
                largest = max(largest or 0.0, float(np.nanmax(gaps)))
    return largest


def by_name(file: Results) -> dict[tuple[str, str], list[Case]]:
    """The repeats that are ok of each case."""
    groups: dict[tuple[str, str], list[Case]] = {}
    for case in file.cases:
        if case.status == "ok":
            groups.setdefault((case.suite, case.name), []).append(case)
    return groups


def compare_row(name: str, a: list[Case], b: list[Case]) -> list[str]:
    """The cells of one case that both files have."""
    rates = [pooled(cases, rate_of) for cases in (a, b)]
    cells = [name, number(rates[0], 0), number(rates[1], 0), ratio(*rates)]
    for key in ("peak_allocated_bytes", "peak_reserved_bytes", "host_launch_seconds"):
        cells.append(ratio(*(pooled(cases, lambda case: case.value(key)) for cases in (a, b))))
    gap = loss_difference(a, b)
    return [*cells, "-" if gap is None else f"{gap:.3g}"]


def compare(path_a: str, path_b: str) -> int:
    """Ratios A / B of the cases that are ok in both files, medians over repeats."""
    groups_a, groups_b = by_name(load(path_a)), by_name(load(path_b))
    common = [key for key in groups_a if key in groups_b]
    for letter, path, groups in (("A", path_a, groups_a), ("B", path_b, groups_b)):
        kinds = sorted({str(case.value("implementation", "?"))
                        for cases in groups.values() for case in cases})
        print(f"{letter} = {path} ({', '.join(kinds) or 'no case that is ok'})")
    if not common:
        print("no case is ok in both files")
        return 1
    header = ["case", "tokens/s A", "tokens/s B", "A/B", "allocated A/B", "reserved A/B",
              "host launch A/B", "max |loss A-B|"]
    print(table(header, [compare_row(key[1], groups_a[key], groups_b[key]) for key in common], 1))
    for key in common:
        a, b = groups_a[key][0], groups_b[key][0]
        for name in SAME_WORK:
            values = a.value(name), b.value(name)
            if None not in values and values[0] != values[1]:
                print(f"{key[1]}: {name} differs: {values[0]} and {values[1]}")
    return 0


def verify(path: str) -> int:
    """Each violated identity on a line; 1 when there is one."""
    found = violations(load(path))
    for line in found:
        print(f"{path}: {line}")
    if not found:
        print(f"{path}: all identities hold")
    return 1 if found else 0


def join(path: str) -> int:
    """Joins the part files of a killed run into its file."""
    count = join_file(path)
    print(f"{path}: {count} part file{'' if count == 1 else 's'} joined")
    return 0


def make_parser() -> argparse.ArgumentParser:
    """The command line."""
    parser = argparse.ArgumentParser(
        prog="trainsuite-results", description="Reads trainsuite result files.",
        allow_abbrev=False)
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    command = commands.add_parser("summary", help="one table over several files")
    command.add_argument("files", nargs="+", metavar="FILE")
    command.set_defaults(work=lambda options: summary(options.files))
    command = commands.add_parser("compare", help="ratios A / B of the cases both files have")
    command.add_argument("a", metavar="A")
    command.add_argument("b", metavar="B")
    command.set_defaults(work=lambda options: compare(options.a, options.b))
    command = commands.add_parser("verify", help="checks the identities that hold in every row")
    command.add_argument("file", metavar="FILE")
    command.set_defaults(work=lambda options: verify(options.file))
    command = commands.add_parser(
        "join", help="joins the part files that a killed run left (not while it runs)")
    command.add_argument("file", metavar="FILE")
    command.set_defaults(work=lambda options: join(options.file))
    results_merge.register(commands)
    results_recheck.register(commands)
    results_views.register(commands)
    return parser


def main(arguments: Sequence[str] | None = None) -> int:
    """Exit status: 0 fine, 1 a violation or nothing in common, 2 a file that cannot be read."""
    options = make_parser().parse_args(arguments)
    try:
        status = options.work(options)
        sys.stdout.flush()
        return status
    except ResultError as error:
        print(f"trainsuite-results: {error}", file=sys.stderr)
        return 2
    except BrokenPipeError:  # the reader of our output has left
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
