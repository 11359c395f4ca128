"""The ddp suite's cases and command line: names and flags as `trainsuite ddp`."""

from __future__ import annotations

import argparse
from dataclasses import dataclass, replace
from typing import NamedTuple

import gpt2
from flags import Parser, common_parser, or_default, precision_of, selected

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
    compiled: bool = False  # through torch.compile

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


def parser() -> Parser:
    """The command line."""
    return common_parser(
        "Data-parallel GPT-2 training in plain PyTorch, measured as `trainsuite ddp`. "
        "Start it alone (one rank) or with torchrun.",
        tuple(gpt2.SIZES),
    )


def plan(options: argparse.Namespace, cuda: bool) -> list[Case]:
    """The cases that the options choose. Raises UsageError where nothing matches."""
    every = [make_case(size, recipe, options, cuda) for size in gpt2.SIZES for recipe in RECIPES]
    on_request = [compiled(case) for case in every if case.one_rank]  # as trainsuite's
    default_sizes = ["124m", "355m"] if cuda else ["tiny"]
    return selected(every, options, gpt2.SIZES, default_sizes, on_request)


def compiled(case: Case) -> Case:
    """The case with the whole model through torch.compile."""
    return replace(case, recipe=f"{case.recipe}-compile", compiled=True)


def make_case(size: str, recipe: str, options: argparse.Namespace, cuda: bool) -> Case:
    """One case with the flags' values or the suite's defaults."""
    does = RECIPES[recipe]
    accumulate = int(or_default(options.accumulate, 4)) if does.accumulates else 1
    micro_batch, sequence, vocabulary = (2, 64, 512) if size == "tiny" else (8, 1024, 50304)
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
        precision=precision_of(options, cuda),
        attention=options.attention,
        seed=options.seed,
    )
