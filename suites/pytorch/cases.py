"""The ddp suite's cases and command line: names and flags as `trainsuite ddp`."""

from __future__ import annotations

import argparse
import difflib
import fnmatch
import os
import re
import sys
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple, NoReturn

import gpt2

ATTENTION = ("auto", "cudnn", "flash", "efficient", "math")


@dataclass(frozen=True)
class Case:
    """One row: a size, a recipe and all settings resolved."""

    size: str
    recipe: str
    one_rank: bool  # on rank 0 alone while the others wait
    communicates: bool  # through DistributedDataParallel, also on one rank
    wire: str  # dtype of gradients on the wire: fp32 or bf16
    micro_batch: int
    accumulate: int
    sequence: int
    vocabulary: int
    steps: int  # measured steps, after the warm-up
    warmup: int
    learning_rate: float
    precision: str
    attention: str
    seed: int

    @property
    def name(self) -> str:
        """Whole name, such as 124m-plain."""
        return f"{self.size}-{self.recipe}"


class Recipe(NamedTuple):
    """What a case does; accumulating ones take --accumulate, default 4."""

    one_rank: bool
    communicates: bool
    accumulates: bool
    wire: str


RECIPES = {  # {} is the number of micro-batches
    "1gpu": Recipe(True, False, False, "fp32"),
    "1gpu-accumulate{}": Recipe(True, False, True, "fp32"),
    "independent": Recipe(False, False, False, "fp32"),
    "plain": Recipe(False, True, False, "fp32"),
    "bf16": Recipe(False, True, False, "bf16"),
    "accumulate{}": Recipe(False, True, True, "fp32"),
    "both": Recipe(False, True, True, "bf16"),
}


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
        print(f"ddp.py: {message}", file=sys.stderr, flush=True)
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


def file_name(text: str) -> str:
    """A name that is not empty."""
    if not text:
        raise argparse.ArgumentTypeError("has an empty value; give a file name")
    return text


def parser() -> Parser:
    """The command line."""
    p = Parser(
        prog="ddp.py",
        allow_abbrev=False,
        description="Data-parallel GPT-2 training in plain PyTorch, measured as `trainsuite ddp`. "
        "Start it alone (one rank) or with torchrun.",
    )
    p.register("action", None, Once)  # of flags that name no other action
    p.add_argument("--case", action="append", default=[], metavar="GLOB")
    p.add_argument("--size", action="append", default=[], choices=tuple(gpt2.SIZES))
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
    p.add_argument("--attention", choices=ATTENTION, default="auto")
    p.add_argument("--learning-rate", type=above_zero(1000))
    p.add_argument("--out", type=file_name, metavar="FILE")
    p.add_argument(
        "--ops-library", type=file_name, metavar="FILE", help="libtrainsuite_ops.so"
    )
    return p


def or_default(value: int | float | None, default: int | float) -> int | float:
    """`value` where one was given."""
    return default if value is None else value


def plan(options: argparse.Namespace, cuda: bool) -> list[Case]:
    """The cases that the options choose, in the table's order, each once.

    Without --size these are the device's default sizes, or all for --list; a pattern that matches
    none of them may name cases of other sizes whole. Raises UsageError where nothing matches.
    """
    every = [make_case(size, recipe, options, cuda) for size in gpt2.SIZES for recipe in RECIPES]
    default = ["124m", "355m"] if cuda else ["tiny"]
    sizes = options.size or (list(gpt2.SIZES) if options.list else default)
    selected: set[str] = set()
    for pattern in options.case or ["*"]:
        selected |= matching(every, pattern, sizes, other_sizes=not options.size)
    return [case for case in every if case.name in selected]


def matching(every: list[Case], pattern: str, sizes: list[str], other_sizes: bool) -> set[str]:
    """Names that `pattern` selects among `sizes`, or else by whole name among the others."""
    whole = {case.name for case in every if fnmatch.fnmatchcase(case.name, pattern)}
    inside = {
        case.name
        for case in every
        if case.size in sizes
        and (case.name in whole or fnmatch.fnmatchcase(case.recipe, pattern))
    }
    if found := inside or (whole if other_sizes else set()):
        return found
    recipes = list(dict.fromkeys(case.recipe for case in every))
    near = difflib.get_close_matches(pattern, [*recipes, *(case.name for case in every)], 1)
    hint = f"; did you mean {near[0]!r}?" if near else "."
    raise UsageError(
        f"no case matches {pattern!r}{hint} Sizes: {', '.join(sizes)}; "
        f"cases of each: {', '.join(recipes)}"
    )


def make_case(size: str, recipe: str, options: argparse.Namespace, cuda: bool) -> Case:
    """One case with the flags' values or the suite's defaults."""
    does = RECIPES[recipe]
    accumulate = int(or_default(options.accumulate, 4)) if does.accumulates else 1
    micro_batch, sequence, vocabulary = (2, 64, 512) if size == "tiny" else (8, 1024, 50304)
    precision = options.precision
    if precision == "auto":
        precision = "bf16" if cuda else "fp32"
    return Case(
        size=size,
        recipe=recipe.format(accumulate),
        one_rank=does.one_rank,
        communicates=does.communicates,
        wire=does.wire,
        micro_batch=int(or_default(options.micro_batch, micro_batch)),
        accumulate=accumulate,
        sequence=int(or_default(options.sequence, sequence)),
        vocabulary=int(or_default(options.vocabulary, vocabulary)),
        steps=int(or_default(options.steps, 40)),
        warmup=int(or_default(options.warmup, 10)),
        learning_rate=float(or_default(options.learning_rate, 1e-4)),
        precision=precision,
        attention=options.attention,
        seed=options.seed,
    )
