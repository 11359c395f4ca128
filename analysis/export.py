#!/usr/bin/env python3
"""Result files as CSV, JSON, Markdown, a tidy CSV of every step, or redacted result files."""

from __future__ import annotations

import argparse
import contextlib
import io
import os
import sys
from collections.abc import Sequence

import export_json
import export_tables
import published
import redact
from figures import check_units
from results_durable import create_exclusively
from results_model import Results
from results_reader import load
from results_records import ResultError
from results_writer import check_creatable

FORMATS = ("csv", "steps", "json", "markdown", "h5")
ENDINGS = {".csv": "csv", ".json": "json", ".md": "markdown", ".h5": "h5"}
DESCRIPTION = """\
csv       one line a row (a repeat of a case): figures, results, settings, versions
steps     one line for each step of each rank
json      everything that the files hold; export_json.loads gives it back bit by bit
markdown  a table for people, rounded
h5        a copy as a result file (with --redact); one FILE

Units stand in the headings; a plain number has none. An empty cell is unknown. Numbers are written
with all their digits (not in markdown)."""


def make_parser() -> argparse.ArgumentParser:
    """The command line."""
    parser = argparse.ArgumentParser(
        prog="trainsuite-export", description=DESCRIPTION, allow_abbrev=False,
        formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("files", nargs="+", metavar="FILE",
                        help="result files; a published.toml with csv")
    parser.add_argument("--format", choices=FORMATS,
                        help="by default OUT's ending (.csv, .json, .md, .h5), else csv")
    parser.add_argument("-o", "--out", metavar="OUT",
                        help="a new file; by default the text goes to standard output")
    parser.add_argument("--redact", action="store_true",
                        help="no hosts, UUIDs, paths, users, job ids, addresses")
    return parser


def read(path: str) -> Results:
    """A result file whose units are not mixed."""
    file = load(path)
    for case in file.cases:
        check_units(path, case)
    return file


def text_of(files: list[Results], form: str) -> str:
    """The files in that format."""
    if form == "json":
        return export_json.dumps(files) + "\n"
    if form == "markdown":
        return export_tables.markdown(files)
    out = io.StringIO()
    (export_tables.steps_csv if form == "steps" else export_tables.rows_csv)(files, out)
    return out.getvalue()


def published_text(paths: list[str], form: str) -> str:
    """Published rows have no steps: csv alone."""
    if form != "csv":
        raise ResultError(f"{paths[0]} holds published rows, which have summary figures only; "
                          "export them as csv")
    rows = [row for path in paths for row in published.rows(path)]
    out = io.StringIO()
    export_tables.published_csv(rows, out)
    return out.getvalue()


def _read_all(options: argparse.Namespace) -> list[Results]:
    if not options.redact:
        return [read(path) for path in options.files]
    with redact.copies(options.files) as paths:
        files = [read(path) for path in paths]
    for file in files:
        file.path = os.path.basename(file.path)
    return files


def _as_result_file(options: argparse.Namespace) -> int:
    if not options.out:
        raise ResultError("h5 needs a new file to write: -o OUT.h5")
    if len(options.files) != 1:
        raise ResultError(f"h5 copies one file, {len(options.files)} given; "
                          "`trainsuite-results merge` makes one of several")
    if not options.redact:
        raise ResultError("h5 without --redact would be a plain copy; use cp")
    redact.copy(options.files[0], options.out)
    return 0


def work(options: argparse.Namespace) -> int:
    """Writes what was asked for. Raises ResultError."""
    ending = os.path.splitext(options.out or "")[1].lower()
    form = options.format or ENDINGS.get(ending, "csv")
    if options.out:
        check_creatable(options.out)
    toml = [path for path in options.files if published.is_published(path)]
    if toml and len(toml) != len(options.files):
        raise ResultError("published rows and result files have different columns; "
                          "export them one after the other")
    if form == "h5" and not toml:
        return _as_result_file(options)
    text = published_text(toml, form) if toml else text_of(_read_all(options), form)
    if not options.out:
        sys.stdout.write(text)
        sys.stdout.flush()
    elif not create_exclusively(options.out, text.encode("utf-8", "surrogateescape")):
        check_creatable(options.out)
    return 0


def main(arguments: Sequence[str] | None = None) -> int:
    """Exit status: 0 written, 2 bad input."""
    options = make_parser().parse_args(arguments)
    try:
        with contextlib.suppress(AttributeError):  # a stream that cannot be told
            sys.stdout.reconfigure(encoding="utf-8", errors="surrogateescape")
        return work(options)
    except ResultError as error:
        print(f"trainsuite-export: {error}", file=sys.stderr)
        return 2
    except BrokenPipeError:  # the reader of our output has left
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0


if __name__ == "__main__":
    sys.exit(main())
