"""From measurements to the records of the result file."""

from __future__ import annotations

import argparse
import sys
from typing import Any

from cases import Case
from gpt2 import SIZES
from launch import World
from machine import host_identity, rank_identity, software, utc_now
from results import CaseRecord, RankRecord, RankSeries, RunRecord
from train import Measured

SUITE = "ddp"


def run_record(world: World, options: argparse.Namespace, cases: list[Case]) -> RunRecord:
    """This invocation; collective, of use on rank 0."""
    identities = world.all_gather((rank_identity(world), host_identity()))
    hosts = {host.host: host for _, host in identities}
    return RunRecord(
        created_utc=utc_now(),
        argv=sys.argv,
        planned=[case.name for case in cases],
        attributes={
            **software(world),
            "implementation": "pytorch",
            "dry_run": not world.cuda,
            "ranks_total": world.size,
        },
        ranks=[identity for identity, _ in identities],
        hosts=list(hosts.values()),
    )


def settings(case: Case, world: World, options: argparse.Namespace) -> dict[str, Any]:
    """Flags and derived settings of a row."""
    ranks = 1 if case.one_rank else world.size
    batch = case.micro_batch * case.accumulate * ranks
    return {
        "suite": SUITE,
        "implementation": "pytorch",
        "compile_mode": "eager",
        "communicator": world.backend if case.communicates else "none",
        "size": case.size,
        "recipe": case.recipe,
        "ranks_total": world.size,
        "one_rank": case.one_rank,
        "communicates": case.communicates,
        "device": world.device.type,
        "link": options.link,
        "memory_limit_gib": options.memory_limit,
        "steps": case.steps,
        "warmup": case.warmup,
        "repeats": options.repeats,
        "micro_batch": case.micro_batch,
        "accumulate": case.accumulate,
        "sequence": case.sequence,
        "vocabulary": case.vocabulary,
        "seed": case.seed,
        "precision": case.precision,
        "attention": case.attention,
        "learning_rate": case.learning_rate,
        "wire": case.wire if case.communicates else "none",
        "tokens_per_step": batch * case.sequence,
        "global_batch": batch,
        "dry_run": not world.cuda,
    }


def case_record(
    case: Case,
    repeat: int,
    world: World,
    options: argparse.Namespace,
    gathered: list[tuple[str, str, Measured]],
) -> CaseRecord:
    """A row from (status, reason, measured) of every rank that took part, in rank order."""
    status, reason = worst(gathered)
    record = CaseRecord(
        suite=SUITE,
        name=case.name,
        repeat=repeat,
        status=status,
        reason=reason,
        settings=settings(case, world, options),
    )
    if status != "ok":
        return record
    record.warmup = [index < case.warmup for index in range(case.warmup + case.steps)]
    for rank, (_, _, measured) in enumerate(gathered):
        series = [
            RankSeries(name, unit(name), [float(value) for value in values])
            for name, values in measured.series.items()
        ]
        record.ranks.append(RankRecord(rank, series, dict(measured.facts)))
    record.results |= row_results([measured for _, _, measured in gathered])
    kernel = str(record.results.pop("attention_kernel"))
    record.settings |= {"attention": kernel, "kernels": f"attention={kernel} loss=reference"}
    record.results |= flops(case)
    hashes = {measured.facts["final_weights_hash"] for _, _, measured in gathered}
    if case.communicates:
        record.checks["replicas_equal"] = len(hashes) == 1
        if len(hashes) > 1:
            record.status = "failed"
            record.reason = "the replicas' weights differ after the last step"
    return record


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


def worst(gathered: list[tuple[str, str, Measured]]) -> tuple[str, str]:
    """Status and reason of the row. Lack of memory comes before failures, which are what the
    other ranks then see of it."""
    for wanted in ("oom", "failed"):
        for rank, (status, reason, _) in enumerate(gathered):
            if status == wanted:
                return status, f"rank {rank}: {reason}"
    return "ok", ""


def unit(series: str) -> str:
    """s, byte, token or 1."""
    if series.endswith("_seconds"):
        return "s"
    if series.endswith("tokens"):
        return "token"
    return "byte" if series.endswith("_bytes") else "1"


def row_results(ranks: list[Measured]) -> dict[str, Any]:
    """Scalars of the row: texts and hashes of the first rank, the largest of what is measured."""
    results: dict[str, Any] = {}
    for name, value in ranks[0].facts.items():
        measured = name.endswith(("_seconds", "_bytes"))
        results[name] = max(rank.facts[name] for rank in ranks) if measured else value
    return results
