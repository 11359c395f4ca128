"""From measurements to the records of the result file, for every suite."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from typing import Any

from flags import Named
from launch import World
from machine import host_identity, rank_identity, software, utc_now
from measure import Measured
from results import CaseRecord, RankRecord, RankSeries, RunRecord

Outcome = tuple[str, str, Measured]  # status, reason, measurements of one rank
FLAGS = {  # recorded as given, under the names of docs/schema.md
    "link": "link",
    "memory_limit": "memory_limit_gib",
    "repeats": "repeats",
    "seed": "seed",
}


def run_record(world: World, cases: Sequence[Named], versions: dict[str, str]) -> RunRecord:
    """This invocation; collective, of use on rank 0."""
    identities = world.all_gather((rank_identity(world), host_identity()))
    hosts = {host.host: host for _, host in identities}
    return RunRecord(
        created_utc=utc_now(),
        argv=sys.argv,
        planned=[case.name for case in cases],
        attributes={
            **software(world),
            **versions,
            "implementation": "pytorch",
            "dry_run": not world.cuda,
            "ranks_total": world.size,
        },
        ranks=[identity for identity, _ in identities],
        hosts=list(hosts.values()),
    )


def common_settings(
    suite: str, case: Named, world: World, options: argparse.Namespace
) -> dict[str, Any]:
    """Settings that rows of every suite have."""
    return {
        "suite": suite,
        "implementation": "pytorch",
        "compile_mode": "eager",
        "size": case.size,
        "recipe": case.recipe,
        "ranks_total": world.size,
        "device": world.device.type,
        "dry_run": not world.cuda,
        **{recorded: getattr(options, flag) for flag, recorded in FLAGS.items()},
    }


def case_record(
    name: str,
    repeat: int,
    warmup: int,
    settings: dict[str, Any],
    gathered: list[Outcome],
) -> CaseRecord:
    """A row from what every rank that took part says, in rank order."""
    status, reason = worst(gathered)
    record = CaseRecord(
        suite=settings["suite"],
        name=name,
        repeat=repeat,
        status=status,
        reason=reason,
        settings=settings,
    )
    if status != "ok":
        return record
    steps = max(len(measured.series["step_seconds"]) for _, _, measured in gathered)
    record.warmup = [index < warmup for index in range(steps)]
    for rank, (_, _, measured) in enumerate(gathered):
        series = [
            RankSeries(name, unit(name), [float(value) for value in values])
            for name, values in measured.series.items()
        ]
        record.ranks.append(RankRecord(rank, series, dict(measured.facts)))
    record.results |= row_results([measured for _, _, measured in gathered])
    return record


def check_replicas(record: CaseRecord, ranks: list[Measured]) -> None:
    """All ranks must end with the same weights; a row where they do not has failed."""
    hashes = {measured.facts["final_weights_hash"] for measured in ranks}
    record.checks["replicas_equal"] = len(hashes) == 1
    if len(hashes) > 1:
        record.status = "failed"
        record.reason = "the replicas' weights differ after the last step"


def worst(gathered: list[Outcome]) -> tuple[str, str]:
    """Status and reason of the row. Lack of memory comes before failures, which are what the
    other ranks then see of it."""
    for wanted in ("oom", "failed", "timeout", "skipped"):
        for rank, (status, reason, _) in enumerate(gathered):
            if status == wanted:
                return status, reason if wanted == "skipped" else f"rank {rank}: {reason}"
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
