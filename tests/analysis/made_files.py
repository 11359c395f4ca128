"""Result files with chosen step times, hosts and statuses."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import results

GIB = 1 << 30
TOKENS_A_STEP = 512  # of a rank: micro_batch 8 x sequence 64


def case(name: str = "124m-plain", repeat: int = 0, seconds: Sequence[float] = (1.0,),
         waiting: Sequence[float] = (0.0,), status: str = "ok", steps: int = 4,
         suite: str = "ddp", **changes: Any) -> results.CaseRecord:
    """A row of one rank for each of `seconds` (its steps), the first step a warm-up of 9 s.

    changes: settings; those of RESULTS are results.
    """
    count = len(seconds)
    settings = {"implementation": "trainsuite", "size": name.split("-")[0], "vocabulary": 50304,
                "recipe": name.split("-", 1)[1], "micro_batch": 8, "accumulate": 1,
                "sequence": 64, "tokens_per_step": TOKENS_A_STEP * count, "dry_run": False}
    facts = {"peak_allocated_bytes": 2 * GIB, "peak_reserved_bytes": 3 * GIB,
             "first_step_seconds": 9.0}
    for key, value in changes.items():
        (facts if key in facts else settings)[key] = value
    ranks = []
    for rank, own in enumerate(seconds):
        wait = waiting[rank] if rank < len(waiting) else 0.0
        series = [("step_seconds", "s", [9.0] + [own] * (steps - 1)),
                  ("exposed_sync_seconds", "s", [wait] * steps),
                  ("loss", "1", [4.0 - 0.5 * step for step in range(steps)]),
                  ("tokens", "token", [float(TOKENS_A_STEP)] * steps),
                  ("effective_tokens", "token", [float(TOKENS_A_STEP // 2)] * steps),
                  ("allocated_peak_bytes", "byte", [float(facts["peak_allocated_bytes"])] * steps)]
        ranks.append(results.RankRecord(rank, [results.RankSeries(*one) for one in series],
                                        dict(facts)))
    if status != "ok":
        return results.CaseRecord(suite, name, repeat, status, f"rank {count - 1}: out of memory",
                                  settings, {}, {}, [True], [results.RankRecord(rank)
                                                             for rank in range(count)])
    return results.CaseRecord(suite, name, repeat, "ok", "", settings, facts, {},
                              [True] + [False] * (steps - 1), ranks)


def run(ranks: int = 1, hosts: Sequence[str] = ("node-a",), device: str = "NVIDIA H200",
        planned: Sequence[str] = (), **attributes: Any) -> results.RunRecord:
    """An invocation with `ranks` ranks on each host."""
    identities = [results.RankIdentity(index * ranks + local, local, host, device,
                                       f"GPU-{index}{local}000000-0000-4000-8000-000000000000",
                                       f"0000:0{local}:00.0", 141 * 10**9, "0-7")
                  for index, host in enumerate(hosts) for local in range(ranks)]
    return results.RunRecord("2026-10-29T03:04:05Z", ["trainsuite", "ddp"], list(planned),
                             {"torch_version": "2.11.0+cu130", **attributes}, identities,
                             [results.HostIdentity(host, "CPU X", "Linux 6.1", "none", 2, 64,
                                                   1 << 38) for host in hosts])


def write(path: Path, cases: Sequence[results.CaseRecord],
          invocation: results.RunRecord | None = None) -> str:
    """A finished file."""
    writer = results.ResultWriter(str(path), invocation or run())
    for one in cases:
        writer.append(one)
    writer.finish()
    return str(path)


def repeats(seconds: Sequence[float], name: str = "124m-plain", **changes: Any
            ) -> list[results.CaseRecord]:
    """A repeat for each step time."""
    return [case(name, repeat, [value], **changes) for repeat, value in enumerate(seconds)]
