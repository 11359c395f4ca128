#!/usr/bin/env python3
"""The ddp suite in plain PyTorch: the yardstick for `trainsuite ddp`.

    python suites/pytorch/ddp.py --case '*1gpu*'
    torchrun --nproc-per-node 4 suites/pytorch/ddp.py
"""

from __future__ import annotations

import argparse
from typing import Any

import cases
import record
import session
from cases import Case
from gpt2 import SIZES
from launch import World, leave
from measure import Measured
from results import CaseRecord
from train import run_case


def main() -> int:
    """Runs the chosen cases; returns the exit status."""
    options = cases.parser().parse_args()
    suite = session.Suite("ddp", cases.plan, None, run_case, settings, finish)
    return session.main(suite, options)


def settings(case: Case, world: World, options: argparse.Namespace) -> dict[str, Any]:
    """Flags and derived settings of a row."""
    ranks = 1 if case.one_rank else world.size
    batch = case.micro_batch * case.accumulate * ranks
    return record.common_settings("ddp", case, world, options) | {
        "communicator": world.backend if case.communicates else "none",
        "one_rank": case.one_rank,
        "communicates": case.communicates,
        "steps": case.steps,
        "warmup": case.warmup,
        "micro_batch": case.micro_batch,
        "accumulate": case.accumulate,
        "sequence": case.sequence,
        "vocabulary": case.vocabulary,
        "precision": case.precision,
        "attention": case.attention,
        "learning_rate": case.learning_rate,
        "compile_mode": "compile" if case.compiled else "eager",
        "wire": case.wire if case.communicates else "none",
        "tokens_per_step": batch * case.sequence,
        "global_batch": batch,
    }


def finish(row: CaseRecord, case: Case, ranks: list[Measured]) -> None:
    """The kernels that were chosen, FLOPs, and whether the replicas stayed equal."""
    kernel = str(row.results.pop("attention_kernel"))
    row.settings |= {"attention": kernel, "kernels": f"attention={kernel} loss=reference"}
    row.results |= flops(case)
    if case.communicates:
        record.check_replicas(row, ranks)


def flops(case: Case) -> dict[str, float]:
    """FLOPs a token, forward and backward, with and without causal halving (Chowdhery et al.
    2022, PaLM, appendix B): 6 a matrix parameter (head included, input embeddings excluded) and
    12 x layers x width x sequence of attention."""
    layers, width, _ = SIZES[case.size]
    matrices = 6.0 * (12 * layers * width * width + case.vocabulary * width)
    attention = 12.0 * layers * width * case.sequence
    return {
        "flops_per_token": matrices + attention / 2,
        "flops_per_token_uncausal": matrices + attention,
    }


if __name__ == "__main__":
    leave(main())
