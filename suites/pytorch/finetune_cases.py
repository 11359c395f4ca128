"""The finetune suite's cases and command line: names and flags as `trainsuite finetune`."""

from __future__ import annotations

import argparse
from dataclasses import dataclass

from flags import (
    Parser,
    above_zero,
    below_one,
    common_parser,
    file_name,
    or_default,
    precision_of,
    selected,
    whole,
)

SIZES = ("1.5b", "0.5b", "tiny")
METHODS = ("full", "lora", "qlora")
BATCHES = ((4, 4), (8, 2))  # micro-batch x accumulation
LEARNING_RATES = {"full": 1e-5, "lora": 2e-4, "qlora": 2e-4}
EXAMPLES = {"tiny": (128, 32)}  # to train on and held out, without --data; else:
PUBLISHED_EXAMPLES = (4000, 300)


@dataclass(frozen=True)
class Case:
    """One row, all settings resolved."""

    size: str
    method: str
    micro_batch: int
    accumulate: int
    tuned: bool  # else as published: what a practitioner writes first
    compiled: bool  # tuned rows: each layer through torch.compile
    steps: int | None  # None: one pass over the training examples
    warmup: int
    learning_rate: float
    lora_rank: int
    lora_alpha: float
    lora_dropout: float
    nf4_double_quant: bool  # bitsandbytes' nested statistics
    qlora_upcast: bool  # what is not quantized in fp32, as peft prepares it
    checkpointing: bool
    loss_on: str
    precision: str
    attention: str  # kernel of sdpa
    seed: int
    vocabulary: int  # 0: the model's own
    model: str | None
    data: str | None
    train_examples: int | None
    held_out: int | None
    one_rank: bool = False

    @property
    def recipe(self) -> str:
        """The name's part after the size."""
        tuned = "-tuned" if self.tuned else ""
        return f"{self.method}-{self.micro_batch}x{self.accumulate}{tuned}"

    @property
    def name(self) -> str:
        """Whole name, such as 1.5b-lora-4x4."""
        return f"{self.size}-{self.recipe}"

    @property
    def adapts(self) -> bool:
        """Whether only adapters are trained."""
        return self.method != "full"


def parser() -> Parser:
    """The command line."""
    p = common_parser(
        "Fine-tuning with transformers, peft and bitsandbytes, measured as `trainsuite finetune`. "
        "Rows ending in -tuned add a fused optimizer and torch.compile. Start it alone (one rank) "
        "or with torchrun.",
        SIZES,
    )
    p.add_argument("--recipe", choices=("default", "published"), default="default",
                   help="published leaves the tuned rows out")
    p.add_argument("--execution", choices=("auto", "eager", "compile"), default="auto",
                   help="of tuned rows [auto: compile on GPUs]")
    p.add_argument("--lora-rank", type=whole(1, 4096), default=16)
    p.add_argument("--lora-alpha", type=above_zero(1e6), default=32.0)
    p.add_argument("--lora-dropout", type=below_one, default=0.0)
    p.add_argument("--nf4-double-quant", nargs=0, default=False)
    p.add_argument("--qlora-upcast", nargs=0, default=False,
                   help="also in tuned rows: fp32 for what is not quantized")
    p.add_argument("--checkpointing", choices=("auto", "on", "off"), default="auto")
    p.add_argument("--loss-on", choices=("all", "answer"), default="all")
    p.add_argument("--model", type=file_name, metavar="DIR")
    p.add_argument("--data", type=file_name, metavar="FILE")
    p.add_argument("--train-examples", type=whole(1, 100000000), metavar="N")
    p.add_argument("--held-out", type=whole(0, 100000000), metavar="N")
    return p


def plan(options: argparse.Namespace, cuda: bool) -> list[Case]:
    """The cases that the options choose. Raises UsageError where nothing matches."""
    every = [
        make_case(size, method, batches, tuned, options, cuda)
        for size in SIZES
        for method in METHODS
        for batches in BATCHES
        for tuned in ((False, True) if options.recipe == "default" else (False,))
    ]
    return selected(every, options, SIZES, ["1.5b"] if cuda else ["tiny"])


def make_case(
    size: str,
    method: str,
    batches: tuple[int, int],
    tuned: bool,
    options: argparse.Namespace,
    cuda: bool,
) -> Case:
    """One case with the flags' values or the suite's defaults."""
    compiled = options.execution == "compile" or (options.execution == "auto" and cuda)
    return Case(
        size=size,
        method=method,
        micro_batch=int(or_default(options.micro_batch, batches[0])),
        accumulate=int(or_default(options.accumulate, batches[1])),
        tuned=tuned,
        compiled=tuned and compiled,
        steps=options.steps,
        warmup=int(or_default(options.warmup, 0)),
        learning_rate=float(or_default(options.learning_rate, LEARNING_RATES[method])),
        lora_rank=options.lora_rank,
        lora_alpha=options.lora_alpha,
        lora_dropout=options.lora_dropout,
        nf4_double_quant=method == "qlora" and options.nf4_double_quant,
        qlora_upcast=method == "qlora" and (options.qlora_upcast or not tuned),
        checkpointing=options.checkpointing == "on",
        loss_on=options.loss_on,
        precision=precision_of(options, cuda),
        attention=options.attention,
        seed=options.seed,
        vocabulary=int(or_default(options.vocabulary, 0)),
        model=options.model,
        data=options.data,
        train_examples=options.train_examples,
        held_out=options.held_out,
    )
