"""The ddp suite's cases and command line: names and flags as `trainsuite ddp`."""

from __future__ import annotations

import argparse
import difflib
import fnmatch
import os
import sys
from dataclasses import dataclass
from typing import NamedTuple, NoReturn

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
    """Prints one line, once among the ranks of a host, and ends."""
    if os.environ.get("LOCAL_RANK", "0") == "0":
        print(f"ddp.py: {message}", file=sys.stderr, flush=True)
    raise SystemExit(status)


def positive(text: str) -> int:
    """A whole number from 1."""
    value = int(text)
    if value < 1:
        raise argparse.ArgumentTypeError(f"{text} is not a whole number from 1")
    return value


def not_negative(text: str) -> int:
    """A whole number from 0."""
    value = int(text)
    if value < 0:
        raise argparse.ArgumentTypeError(f"{text} is not a whole number from 0")
    return value


def above_zero(text: str) -> float:
    """A finite number above 0."""
    value = float(text)
    if not 0 < value < float("inf"):
        raise argparse.ArgumentTypeError(f"{text} is not a number above 0")
    return value


def parser() -> Parser:
    """The command line."""
    p = Parser(
        prog="ddp.py",
        allow_abbrev=False,
        description="Data-parallel GPT-2 training in plain PyTorch, measured as `trainsuite ddp`. "
        "Start it alone (one rank) or with torchrun.",
    )
    p.add_argument("--case", action="append", default=[], metavar="GLOB")
    p.add_argument("--size", action="append", default=[], choices=tuple(gpt2.SIZES))
    p.add_argument("--list", action="store_true", help="print the case names and end")
    p.add_argument("--device", choices=("auto", "cuda", "cpu"), default="auto")
    p.add_argument("--link", choices=("auto", "shm", "socket"), default="auto")
    p.add_argument("--memory-limit", type=above_zero, metavar="GIB")
    p.add_argument("--steps", type=positive)
    p.add_argument("--warmup", type=not_negative, help="steps before the measured ones")
    p.add_argument("--repeats", type=positive, default=1)
    p.add_argument("--micro-batch", type=positive)
    p.add_argument("--accumulate", type=positive, help="micro-batches of cases that accumulate")
    p.add_argument("--sequence", type=positive)
    p.add_argument("--vocabulary", type=positive)
    p.add_argument("--seed", type=not_negative, default=1)
    p.add_argument("--precision", choices=("auto", "bf16", "fp32"), default="auto")
    p.add_argument("--attention", choices=ATTENTION, default="auto")
    p.add_argument("--learning-rate", type=above_zero)
    p.add_argument("--out", metavar="FILE")
    p.add_argument("--ops-library", metavar="FILE", help="libtrainsuite_ops.so")
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
