"""The command line's common parts: flags and names as trainsuite's."""

from __future__ import annotations

import argparse
import difflib
import fnmatch
import os
import re
import sys
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any, NoReturn, Protocol, TypeVar


ATTENTION = ("auto", "cudnn", "flash", "efficient", "math")


class Named(Protocol):
    """A case as far as selecting goes."""

    size: str
    recipe: str

    @property
    def name(self) -> str:
        """Whole name, such as 124m-plain."""


SomeCase = TypeVar("SomeCase", bound=Named)


class UsageError(Exception):
    """A wrong command line, or a machine that cannot do what was asked: exit status 2."""


class Parser(argparse.ArgumentParser):
    """Says what is wrong in one line; the launcher's first rank alone says it."""

    def error(self, message: str) -> NoReturn:
        """Ends with status 2."""
        give_up(message, 2)


def give_up(message: str, status: int) -> NoReturn:
    """Prints one line and ends. Of torchrun's ranks one a host says it, of mpirun's the first."""
    if os.environ.get("LOCAL_RANK", os.environ.get("OMPI_COMM_WORLD_RANK", "0")) == "0":
        print(f"{Path(sys.argv[0]).name}: {message}", file=sys.stderr, flush=True)
    raise SystemExit(status)


class Once(argparse.Action):
    """Stores a value, of a switch True; a flag that is given twice is refused."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.given = False

    def __call__(self, parser: Any, namespace: Any, values: Any, option: str | None = None) -> None:
        if self.given:
            parser.error(f"{option} is given twice; give it once")
        self.given = True
        setattr(namespace, self.dest, True if self.nargs == 0 else values)


def whole(minimum: int, maximum: int) -> Callable[[str], int]:
    """Reads a whole number of that range; the ranges are those of src/cli/flag_table.cpp."""

    def read(text: str) -> int:
        if re.fullmatch("[0-9]{1,19}", text) and minimum <= int(text) <= maximum:
            return int(text)
        raise argparse.ArgumentTypeError(
            f"{text!r} is not a whole number from {minimum} to {maximum}"
        )

    return read


def above_zero(maximum: float) -> Callable[[str], float]:
    """Reads a number above 0, at most `maximum`."""

    def read(text: str) -> float:
        try:
            if 0 < float(text) <= maximum:
                return float(text)
        except ValueError:
            pass
        raise argparse.ArgumentTypeError(f"{text!r} is not a number above 0, at most {maximum:g}")

    return read


def below_one(text: str) -> float:
    """Reads a probability from 0 to below 1."""
    try:
        if 0 <= float(text) < 1:
            return float(text)
    except ValueError:
        pass
    raise argparse.ArgumentTypeError(f"{text!r} is not a number from 0 to below 1")


def file_name(text: str) -> str:
    """A name that is not empty."""
    if not text:
        raise argparse.ArgumentTypeError("has an empty value; give a file name")
    return text


def common_parser(description: str, sizes: Sequence[str]) -> Parser:
    """The flags of every suite."""
    p = Parser(prog=Path(sys.argv[0]).name, allow_abbrev=False, description=description)
    p.register("action", None, Once)  # of flags that name no other action
    p.add_argument("--case", action="append", default=[], metavar="GLOB")
    p.add_argument("--size", action="append", default=[], choices=tuple(sizes))
    p.add_argument("--list", nargs=0, default=False, help="print the case names and end")
    p.add_argument("--device", choices=("auto", "cuda", "cpu"), default="auto")
    p.add_argument("--link", choices=("auto", "shm", "socket"), default="auto")
    p.add_argument("--memory-limit", type=above_zero(1e6), metavar="GIB")
    p.add_argument("--steps", type=whole(1, 1000000))
    p.add_argument("--warmup", type=whole(0, 1000000), help="steps before the measured ones")
    p.add_argument("--repeats", type=whole(1, 10000), default=1)
    p.add_argument("--micro-batch", type=whole(1, 65536))
    p.add_argument(
        "--accumulate", type=whole(1, 65536), help="micro-batches of cases that accumulate"
    )
    p.add_argument("--sequence", type=whole(1, 1048576))
    p.add_argument("--vocabulary", type=whole(1, 16777216))
    p.add_argument("--seed", type=whole(0, 2**53 - 1), default=1)
    p.add_argument("--precision", choices=("auto", "bf16", "fp32"), default="auto")
    p.add_argument("--attention", choices=ATTENTION, default="auto", help="kernel of sdpa")
    p.add_argument("--learning-rate", type=above_zero(1000))
    p.add_argument("--out", type=file_name, metavar="FILE")
    p.add_argument("--ops-library", type=file_name, metavar="FILE", help="libtrainsuite_ops.so")
    return p


def or_default(value: int | float | None, default: int | float) -> int | float:
    """`value` where one was given."""
    return default if value is None else value


def precision_of(options: argparse.Namespace, cuda: bool) -> str:
    """bf16 or fp32; auto: bf16 on GPUs."""
    if options.precision == "auto":
        return "bf16" if cuda else "fp32"
    return options.precision


def selected(
    every: Sequence[SomeCase],
    options: argparse.Namespace,
    sizes: Iterable[str],
    default_sizes: list[str],
    on_request: Sequence[SomeCase] = (),
) -> list[SomeCase]:
    """The cases that the options choose, in the table's order, each once.

    Without --size these are `default_sizes`, or all for --list; a pattern that matches none of
    them may name cases of other sizes whole, and one that matches nothing in `every` those
    `on_request`. Raises UsageError where nothing matches.
    """
    chosen_sizes = options.size or (list(sizes) if options.list else default_sizes)
    names: set[str] = set()
    for pattern in options.case or ["*"]:
        found = matching(every, pattern, chosen_sizes, not options.size) or matching(
            on_request, pattern, chosen_sizes, not options.size
        )
        if not found:
            raise UsageError(without_match([*every, *on_request], pattern, chosen_sizes))
        names |= found
    unique = {case.name: case for case in [*every, *on_request] if case.name in names}
    return list(unique.values())


def matching(every: Sequence[Named], pattern: str, sizes: list[str], other_sizes: bool) -> set[str]:
    """Names that `pattern` selects among `sizes`, or else by whole name among the others."""
    whole = {case.name for case in every if fnmatch.fnmatchcase(case.name, pattern)}
    inside = {
        case.name
        for case in every
        if case.size in sizes
        and (case.name in whole or fnmatch.fnmatchcase(case.recipe, pattern))
    }
    return inside or (whole if other_sizes else set())


def without_match(every: Sequence[Named], pattern: str, sizes: list[str]) -> str:
    """What to say of a pattern that matches no case."""
    recipes = list(dict.fromkeys(case.recipe for case in every))
    near = difflib.get_close_matches(pattern, [*recipes, *(case.name for case in every)], 1)
    hint = f"; did you mean {near[0]!r}?" if near else "."
    return (
        f"no case matches {pattern!r}{hint} Sizes: {', '.join(sizes)}; "
        f"cases of each: {', '.join(recipes)}"
    )
