#!/usr/bin/env python3
"""The same cases in two result files, against a reference, or beside published rows."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence

import compare_expect
import compare_pair
import compare_published
import published
from figures import check_units
from results_model import Results
from results_reader import load
from results_records import ResultError

EXAMPLE = os.path.join(os.path.dirname(os.path.abspath(__file__)), "examples", "published.toml")
DESCRIPTION = """\
compare A B           ratio B / A of each case, with an interval from repeats
compare --expect REFERENCE.h5 FILE...     acceptance: names the host and GPU that falls short
compare --against published FILE...       beside published rows ('published' is the shipped file)

Exit status: 0 compared, and passed where asked; 1 slower than allowed, or rejected; 2 bad input;
3 cannot tell: single runs, an interval that holds the limit, cases missing."""


def fraction(text: str) -> float:
    """"5%" or "0.05"."""
    try:
        value = float(text.removesuffix("%")) / (100 if text.endswith("%") else 1)
    except ValueError:
        value = -1.0
    if not 0 <= value < 1:
        raise argparse.ArgumentTypeError(f"'{text}' is no share; write 5% or 0.05")
    return value


def make_parser() -> argparse.ArgumentParser:
    """The command line."""
    parser = argparse.ArgumentParser(
        prog="trainsuite-compare", description=DESCRIPTION, allow_abbrev=False,
        formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("files", nargs="+", metavar="FILE")
    parser.add_argument("--fail-if-slower", type=fraction, metavar="SHARE",
                        help="exit 1 if B's tokens/s are more than SHARE (5%%) below A's")
    parser.add_argument("--confidence", type=fraction, default=0.95, metavar="SHARE",
                        help="of the intervals (95%%)")
    parser.add_argument("--expect", metavar="REFERENCE.h5",
                        help="exit 1 if a GPU falls short of the reference")
    parser.add_argument("--tolerance", type=fraction, default=0.1, metavar="SHARE",
                        help="of --expect (10%%)")
    parser.add_argument("--against", metavar="published", help="'published', or a published.toml")
    return parser


def read(path: str) -> Results:
    """A result file whose units are not mixed and that holds at least one finished case."""
    file = load(path)
    for case in file.cases:
        check_units(path, case)
    if not file.cases:
        raise ResultError(f"{path} has no finished case; there is nothing to compare")
    return file


def compare_two(options: argparse.Namespace) -> int:
    """A against B."""
    file_a, file_b = map(read, options.files)
    pairings = compare_pair.pair_up(file_a, file_b, options.confidence)
    print("\n".join(compare_pair.lines(file_a, file_b, pairings)))
    if options.fail_if_slower is not None:
        status, words = compare_pair.judge(file_a, file_b, pairings, options.fail_if_slower)
        print("\n".join(words))
        return status
    if not pairings:
        print("no case is ok in both files")
        return compare_pair.CANNOT_TELL
    return compare_pair.PASSED


def expect(options: argparse.Namespace) -> int:
    """The worst of the files' results: rejected over cannot tell over accepted."""
    reference, statuses = read(options.expect), []
    for path in options.files:
        status, words = compare_expect.judge(reference, read(path), options.tolerance)
        print("\n".join(words))
        statuses.append(status)
    return next(status for status in (compare_expect.REJECTED, compare_expect.CANNOT_TELL,
                                      compare_expect.ACCEPTED) if status in statuses)


def against(options: argparse.Namespace) -> int:
    """Beside published rows."""
    path = EXAMPLE if options.against == "published" else options.against
    rows = published.read(path)
    for file in options.files:
        print("\n".join(compare_published.lines(read(file), rows)))
    return 0


def work(options: argparse.Namespace) -> int:
    """Chooses by the options. Raises ResultError."""
    if options.expect and options.against:
        raise ResultError("--expect and --against are two questions; ask one at a time")
    if options.fail_if_slower is not None and (options.expect or options.against):
        raise ResultError("--fail-if-slower goes with two files A B (--expect has --tolerance)")
    if options.expect:
        return expect(options)
    if options.against:
        return against(options)
    if len(options.files) != 2:
        raise ResultError(f"two files A B are compared, {len(options.files)} given")
    return compare_two(options)


def main(arguments: Sequence[str] | None = None) -> int:
    """Exit status as DESCRIPTION says."""
    options = make_parser().parse_args(arguments)
    try:
        status = work(options)
        sys.stdout.flush()
        return status
    except ResultError as error:
        print(f"trainsuite-compare: {error}", file=sys.stderr)
        return 2
    except BrokenPipeError:  # the reader of our output has left
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0


if __name__ == "__main__":
    sys.exit(main())
