"""The compile suite's cases and command line: names and flags as `trainsuite compile`."""

from __future__ import annotations

import argparse
from dataclasses import dataclass

from flags import Parser, above_zero, common_parser, or_default, precision_of, selected

SIZES = ("468m", "tiny")
FORMS = ("sdpa", "naive")  # of attention
TORCH_MODES = {  # ours -> torch.compile's mode; None: not compiled
    "eager": None,
    "compile": "default",
    "graph": "reduce-overhead",
    "max-autotune": "max-autotune",
}


@dataclass(frozen=True)
class Case:
    """One row, all settings resolved."""

    size: str
    execution: str  # a key of TORCH_MODES
    attention: str  # sdpa or naive
    kernel: str  # of sdpa, as --attention
    micro_batch: int
    accumulate: int
    sequence: int
    vocabulary: int
    steps: int
    warmup: int
    learning_rate: float
    precision: str  # of weights, optimizer state and compute
    seed: int
    one_rank: bool = True

    @property
    def recipe(self) -> str:
        """The name's part after the size."""
        return f"{self.execution}-{self.attention}"

    @property
    def name(self) -> str:
        """Whole name, such as 468m-compile-sdpa."""
        return f"{self.size}-{self.recipe}"

    @property
    def graphs(self) -> bool:
        """Whether torch.compile captures CUDA graphs."""
        return self.execution in ("graph", "max-autotune")


def parser() -> Parser:
    """The command line."""
    p = common_parser(
        "Eager and compiled training of transformers' Llama, measured as `trainsuite compile`.",
        SIZES,
    )
    p.add_argument("--time-limit", type=above_zero(1e7), default=1800.0, metavar="SECONDS")
    p.add_argument(
        "--warm", nargs=0, default=False,
        help="also the first step of a second process that finds the first one's caches",
    )
    return p


def plan(options: argparse.Namespace, cuda: bool) -> list[Case]:
    """The cases that the options choose. Raises UsageError where nothing matches."""
    every = [
        make_case(size, execution, attention, options, cuda)
        for size in SIZES
        for attention in FORMS
        for execution in TORCH_MODES
    ]
    return selected(every, options, SIZES, ["468m"] if cuda else ["tiny"])


def make_case(
    size: str, execution: str, attention: str, options: argparse.Namespace, cuda: bool
) -> Case:
    """One case with the flags' values or the suite's defaults."""
    micro_batch, sequence, vocabulary = (2, 64, 512) if size == "tiny" else (4, 2048, 32000)
    return Case(
        size=size,
        execution=execution,
        attention=attention,
        kernel=options.attention,
        micro_batch=int(or_default(options.micro_batch, micro_batch)),
        accumulate=int(or_default(options.accumulate, 1)),
        sequence=int(or_default(options.sequence, sequence)),
        vocabulary=int(or_default(options.vocabulary, vocabulary)),
        steps=int(or_default(options.steps, 20)),
        warmup=int(or_default(options.warmup, 5)),
        learning_rate=float(or_default(options.learning_rate, 1e-4)),
        precision=precision_of(options, cuda),
        seed=options.seed,
    )
