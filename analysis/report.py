#!/usr/bin/env python3
"""trainsuite-report: result files in, one HTML page out (docs/report.md)."""

from __future__ import annotations

import argparse
import contextlib
import datetime
import math
import os
import shlex
import sys
from collections.abc import Sequence

import prices
import published
import redact
import report_authors
from report_costs import Costing
from report_mfu import fill_mfu
from report_page import Inputs, render
from report_read import rows_of
from report_suite import published_rows
from results import ResultError, load

DESCRIPTION = "Makes one self-contained HTML page from result files (.h5) and published rows " \
              "(.toml)."


def make_parser() -> argparse.ArgumentParser:
    """The command line."""
    parser = argparse.ArgumentParser(prog="trainsuite-report", description=DESCRIPTION,
                                     allow_abbrev=False)
    parser.add_argument("files", nargs="+", metavar="FILE", help="result files, published .toml")
    parser.add_argument("-o", "--output", metavar="PAGE", default="report.html",
                        help="where the page goes (report.html); - is standard output")
    parser.add_argument("--prices", metavar="FILE", help="history of prices (the shipped one)")
    parser.add_argument("--run-price", metavar="USD[/GPUS]", default="",
                        help="$ per hour on the day of the runs, of a machine of so many GPUs (1)")
    parser.add_argument("--page", metavar="FILE", help="page.toml: title, author, dates, notes")
    parser.add_argument("--tokens", metavar="N", type=_tokens,
                        help="adds hours and $ of training on N tokens (such as 10e9)")
    parser.add_argument("--today", metavar="DATE", help="the day that counts as today (ISO 8601)")
    parser.add_argument("--redact", action="store_true",
                        help="leaves out hosts, UUIDs, paths, users and job ids")
    return parser


def _tokens(text: str) -> float:
    try:
        value = float(text.replace(",", "").replace("_", ""))
    except ValueError:
        value = math.nan
    if not math.isfinite(value) or value < 1:
        raise argparse.ArgumentTypeError(f"'{text}' is not a number of tokens, such as 10e9")
    return value


def _today(text: str | None) -> str:
    if text is None:
        return datetime.datetime.now(datetime.timezone.utc).date().isoformat()
    try:
        return datetime.date.fromisoformat(text).isoformat()
    except ValueError:
        raise ResultError(f"--today {text}: not a date; write it as 2026-01-31") from None


def gather(options: argparse.Namespace, paths: list[str], command: str) -> Inputs:
    """Reads everything. Raises ResultError."""
    files = [load(path) for path in paths if not published.is_published(path)]
    pages = [published.read(path) for path in paths if published.is_published(path)]
    rows = [row for file in files for row in rows_of(file)]
    fill_mfu(rows, files)
    rows += [row for page in pages for row in published_rows(page)]
    _check(files, rows)
    today = _today(options.today or (pages[0].today() if pages and not files else None))
    history = prices.load(options.prices) if options.prices else \
        None if pages and not files else prices.load_default()
    costing = Costing(history, today, options.run_price)
    for row in rows:
        costing.run_price(row)  # a wrong --run-price is told before anything is drawn
    return Inputs(files, rows, pages, costing, report_authors.load(options.page), command, paths,
                  today, options.tokens, _warnings(files))


def _command(options: argparse.Namespace, argv: Sequence[str], paths: list[str]) -> str:
    """The command that makes the page, without folders; of a redacted page without any name."""
    if options.redact:
        return shlex.join(["trainsuite-report", *map(os.path.basename, paths)])
    return shlex.join(["trainsuite-report", *(
        os.path.basename(word) if os.sep in word else word for word in argv)])


def make(options: argparse.Namespace, argv: Sequence[str]) -> Inputs:
    """Reads everything, from redacted copies if asked for, and writes the page."""
    paths = list(dict.fromkeys(options.files))
    with redact.copies(paths) if options.redact else contextlib.nullcontext(paths) as shown:
        inputs = gather(options, shown, _command(options, argv, shown))
        write(options.output, render(inputs))
    return inputs


def _check(files: list, rows: list) -> None:
    for file in files:
        if not file.cases:
            raise ResultError(f"{file.path} holds no finished case; run it again with --resume, "
                              "or leave it out")
    if not any(row.ok for row in rows):
        reasons = "; ".join(f"{row.name} {row.status_words}" for row in rows[:3])
        raise ResultError(f"no case is ok in {', '.join(dict.fromkeys(r.file for r in rows))} "
                          f"({reasons}): there is nothing to show")


def _warnings(files: list) -> list[str]:
    lines = []
    for file in files:
        if not file.complete:
            missing = file.missing()
            what = f"without a result of {', '.join(missing)}" if missing else \
                "its run did not end as planned"
            lines.append(f"{os.path.basename(file.path)} was cut short: {what}.")
    return lines


def write(path: str, page: str) -> None:
    """Writes the page; raises ResultError."""
    if path == "-":
        sys.stdout.write(page)
        return
    try:
        with open(path, "w", encoding="utf-8", newline="\n") as file:
            file.write(page)
    except OSError as error:
        raise ResultError(f"cannot write {path}: {error.strerror}") from error


def main(arguments: Sequence[str] | None = None) -> int:
    """Exit status: 0 fine, 2 for an input that cannot be read or used."""
    argv = list(sys.argv[1:] if arguments is None else arguments)
    options = make_parser().parse_args(argv)
    try:
        inputs = make(options, argv)
    except ResultError as error:
        print(f"trainsuite-report: {error}", file=sys.stderr)
        return 2
    for warning in inputs.warnings:
        print(f"trainsuite-report: {warning}", file=sys.stderr)
    if options.output != "-":
        print(f"{options.output}: {sum(row.ok for row in inputs.rows)} of {len(inputs.rows)} rows "
              f"measured, {len(inputs.paths)} file{'s' if len(inputs.paths) > 1 else ''}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
