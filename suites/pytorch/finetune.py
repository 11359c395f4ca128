#!/usr/bin/env python3
"""The finetune suite with transformers, peft and bitsandbytes: the yardstick for
`trainsuite finetune`.

    python suites/pytorch/finetune.py --data alpaca.h5 --case 'lora-*'
    torchrun --nproc-per-node 4 suites/pytorch/finetune.py --data alpaca.h5
"""

from __future__ import annotations

import argparse
import math
from typing import Any

import finetune_cases
import finetune_data
import finetune_model
import record
import session
from finetune_cases import Case
from finetune_train import run_case
from flags import UsageError
from launch import World, leave
from measure import Measured
from results import CaseRecord

SUITE = "finetune"


def check(options: argparse.Namespace, world: World) -> None:
    """Data and model that cannot be read are usage errors, told before anything is measured."""
    finetune_model.check(options)
    if options.data:
        tokens = finetune_data.token_file.load(options.data)
        for split, most, name, flag in (
            (tokens.train, options.train_examples, "training", "--train-examples"),
            (tokens.held_out, options.held_out, "held-out", "--held-out"),
        ):
            if not finetune_data.first_of(split, most, name, flag).examples and name == "training":
                raise UsageError(f"{options.data} has no training examples")


def settings(case: Case, world: World, options: argparse.Namespace) -> dict[str, Any]:
    """Flags and derived settings of a row."""
    kernel = "sdpa" if case.attention == "auto" else case.attention  # PyTorch chooses by the mask
    values = {
        "compile_mode": "compile" if case.compiled else "eager",
        "communicator": world.backend if world.size > 1 else "none",
        "recipe_flags": options.recipe,
        "tuned": case.tuned,
        "optimizer": "fused" if case.tuned else "foreach",  # of torch's AdamW
        "schedule": "cosine",
        "one_rank": False,
        "communicates": world.size > 1,
        "method": case.method,
        "warmup": case.warmup,
        "micro_batch": case.micro_batch,
        "accumulate": case.accumulate,
        "precision": case.precision,
        "attention": kernel,
        "kernels": f"attention={kernel} loss=reference",
        "learning_rate": case.learning_rate,
        "seed": case.seed,
        "loss_on": case.loss_on,
        "checkpointing": "on" if case.checkpointing else "off",
        "packing": "off",
        "wire": "fp32" if world.size > 1 else "none",
        "global_batch": case.micro_batch * case.accumulate * world.size,
        "data": case.data or "synthetic",
        "model": case.model or "random",
        "held_out_comparable": case.data is not None and case.model is not None,
    }
    if case.adapts:
        values |= {"lora_rank": case.lora_rank, "lora_alpha": case.lora_alpha,
                   "lora_dropout": case.lora_dropout}
    if case.method == "qlora":
        values["qlora_upcast"] = case.qlora_upcast
        values["nf4_double_quant"] = case.nf4_double_quant
    return record.common_settings(SUITE, case, world, options) | values


def finish(row: CaseRecord, case: Case, ranks: list[Measured]) -> None:
    """Steps, finite losses, and whether the replicas stayed equal."""
    row.settings["steps"] = len(row.warmup) - case.warmup
    for name in ("train_examples", "held_out", "vocabulary"):
        row.settings[name] = row.results.pop(name)
    losses = [row.results.get(f"held_out_loss_{when}") for when in ("before", "after")]
    if any(loss is not None and not math.isfinite(loss) for loss in losses):
        row.status, row.reason = "failed", f"a held-out loss is not finite ({losses})"
    if len(ranks) > 1:
        record.check_replicas(row, ranks)


def main() -> int:
    """Runs the chosen cases; returns the exit status."""
    options = finetune_cases.parser().parse_args()
    suite = session.Suite(
        SUITE, finetune_cases.plan, check, run_case, settings, finish,
        finetune_model.versions(), vary_seed=True,
    )
    return session.main(suite, options)


if __name__ == "__main__":
    leave(main())
