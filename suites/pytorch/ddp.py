#!/usr/bin/env python3
"""The ddp suite in plain PyTorch: the yardstick for `trainsuite ddp`.

    python suites/pytorch/ddp.py --case '*1gpu*'
    torchrun --nproc-per-node 4 suites/pytorch/ddp.py
"""

from __future__ import annotations

import argparse
import traceback
from statistics import median

import torch

import cases
import record
from cases import Case, UsageError, give_up
from launch import World, leave, load_ops, release_memory
from results import CaseRecord, ResultError, ResultWriter, check_creatable, default_path
from train import Measured, run_case


def main() -> int:
    """Runs the chosen cases; returns the exit status."""
    options = cases.parser().parse_args()
    try:
        world = World(options.device, options.link, options.memory_limit)
        plan = cases.plan(options, world.cuda)
        check_attention(options.attention, world)
        if options.list:
            if world.rank == 0:
                print("\n".join(case.name for case in plan))
            return 0
        load_ops(options.ops_library)
        if options.out and world.rank == 0:
            check_creatable(options.out)
        world.connect()
    except (UsageError, ResultError) as error:
        give_up(str(error), 2)
    try:
        return run_all(plan, world, options)
    except ResultError as error:
        give_up(str(error), 1)


def check_attention(attention: str, world: World) -> None:
    """A kernel that the device cannot have is a usage error."""
    if not world.cuda and attention in ("cudnn", "efficient"):
        raise UsageError(f"--attention {attention} needs a GPU; a CPU has flash and math")


def run_all(plan: list[Case], world: World, options: argparse.Namespace) -> int:
    """Runs each case in order and appends its row; returns the exit status."""
    run = record.run_record(world, options, plan)
    writer = None
    if world.rank == 0:
        writer = ResultWriter(options.out or default_path(record.SUITE), run)
    failed = False
    for repeat in range(options.repeats):
        for case in plan:
            row = run_row(case, repeat, world, options)
            if writer is not None and row is not None:
                writer.append(row)
                print(summary(row), flush=True)
            failed |= world.broadcast(row.status if row else None) == "failed"
    if writer is not None:
        writer.finish()
        print(writer.path, flush=True)
    return 1 if failed else 0


def run_row(
    case: Case, repeat: int, world: World, options: argparse.Namespace
) -> CaseRecord | None:
    """One row on rank 0, None elsewhere; collective, also where a rank takes no part."""
    took_part = world.rank == 0 or not case.one_rank
    outcome = attempt(case, world) if took_part else None
    release_memory(world.device)
    gathered = [thing for thing in world.all_gather(outcome) if thing is not None]
    world.drop_groups()
    if world.rank != 0:
        return None
    return record.case_record(case, repeat, world, options, gathered)


def attempt(case: Case, world: World) -> tuple[str, str, Measured]:
    """Status, reason and measurements of this rank."""
    try:
        return "ok", "", run_case(case, world)
    except torch.OutOfMemoryError as error:
        return "oom", str(error).splitlines()[0], Measured()
    except MemoryError as error:
        return "oom", str(error) or "out of host memory", Measured()
    except Exception as error:  # noqa: BLE001: a failed row is a result, the next case runs
        traceback.print_exc()
        lines = str(error).splitlines() or [""]
        return "failed", f"{type(error).__name__}: {lines[0]}", Measured()


def summary(row: CaseRecord) -> str:
    """One line a case."""
    if row.status != "ok":
        return f"{row.name:24} {row.status}: {row.reason}"
    by_rank = []  # measured step times of each rank
    for rank in row.ranks:
        steps = next(series.values for series in rank.series if series.name == "step_seconds")
        by_rank.append(steps[sum(row.warmup) :])
    seconds = median(map(max, zip(*by_rank)))
    rate = row.settings["tokens_per_step"] / seconds
    if row.settings["recipe"] == "independent":  # nobody waits for the slowest
        rate = sum(row.settings["tokens_per_step"] / len(by_rank) / median(own) for own in by_rank)
    line = f"{row.name:24} {rate:12,.0f} tokens/s {seconds * 1e3:9.2f} ms"
    if "peak_allocated_bytes" in row.results:
        line += f" {row.results['peak_allocated_bytes'] / 2**30:7.2f} GiB"
    line += f"  launch {row.results['host_launch_seconds'] * 1e3:.2f} ms"
    line += f"  {row.settings['attention']}"
    return line


if __name__ == "__main__":
    leave(main())
