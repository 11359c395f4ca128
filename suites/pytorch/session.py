"""What every suite's command does: plan, run each case, write its row, print a line."""

from __future__ import annotations

import argparse
import dataclasses
import traceback
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from statistics import median
from typing import Any

import torch

import record
from flags import UsageError, give_up
from launch import World, load_ops, release_memory
from measure import Measured
from record import Outcome
from results import CaseRecord, ResultError, ResultWriter, check_creatable, default_path


class Skipped(Exception):
    """A case that cannot run here; its text is the row's reason."""


class CaseFailed(Exception):
    """A failure that was told where it happened; its text is the row's reason."""


@dataclass
class Suite:
    """A suite's own parts. A case has `name`, `size`, `recipe`, `one_rank`, `warmup`."""

    name: str
    plan: Callable[[argparse.Namespace, bool], list[Any]]  # by options and whether there are GPUs
    check: Callable[[argparse.Namespace, World], None] | None  # raises UsageError
    run_case: Callable[[Any, World], Measured]  # on every rank that takes part
    settings: Callable[[Any, World, argparse.Namespace], dict[str, Any]]
    finish: Callable[[CaseRecord, Any, list[Measured]], None]  # completes a row that is ok
    versions: dict[str, str] = field(default_factory=dict)
    vary_seed: bool = False  # repeat N runs with seed + N, as trainsuite's suite does


def main(suite: Suite, options: argparse.Namespace) -> int:
    """Runs the chosen cases; returns the exit status."""
    try:
        world = World(options.device, options.link, options.memory_limit)
        plan = suite.plan(options, world.cuda)
        check_attention(options.attention, world)
        if suite.check is not None:
            suite.check(options, world)
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
        return run_all(suite, plan, world, options)
    except ResultError as error:
        give_up(str(error), 1)


def check_attention(attention: str, world: World) -> None:
    """A kernel that the device cannot have is a usage error."""
    if not world.cuda and attention in ("cudnn", "efficient"):
        raise UsageError(f"--attention {attention} needs a GPU; a CPU has flash and math")


def run_all(
    suite: Suite, plan: Sequence[Any], world: World, options: argparse.Namespace
) -> int:
    """Runs each case in order and appends its row; returns the exit status."""
    run = record.run_record(world, plan, suite.versions)
    writer = None
    if world.rank == 0:
        writer = ResultWriter(options.out or default_path(suite.name), run)
    failed = False
    for repeat in range(options.repeats):
        for case in plan:
            row = run_row(suite, of_repeat(suite, case, repeat), repeat, world, options)
            if writer is not None and row is not None:
                writer.append(row)
                print(summary(row), flush=True)
            failed |= world.broadcast(row.status if row else None) in ("failed", "timeout")
    if writer is not None:
        writer.finish()
        print(writer.path, flush=True)
    return 1 if failed else 0


def of_repeat(suite: Suite, case: Any, repeat: int) -> Any:
    """The case as that repeat runs it."""
    return dataclasses.replace(case, seed=case.seed + repeat) if suite.vary_seed else case


def run_row(
    suite: Suite, case: Any, repeat: int, world: World, options: argparse.Namespace
) -> CaseRecord | None:
    """One row on rank 0, None elsewhere; collective, also where a rank takes no part."""
    took_part = world.rank == 0 or not case.one_rank
    outcome = attempt(suite, case, world) if took_part else None
    release_memory(world.device)
    gathered = [thing for thing in world.all_gather(outcome) if thing is not None]
    world.drop_groups()
    if world.rank != 0:
        return None
    settings = suite.settings(case, world, options)
    row = record.case_record(case.name, repeat, case.warmup, settings, gathered)
    if row.status == "ok":
        suite.finish(row, case, [measured for _, _, measured in gathered])
    return row


def attempt(suite: Suite, case: Any, world: World) -> Outcome:
    """Status, reason and measurements of this rank."""
    try:
        return "ok", "", suite.run_case(case, world)
    except Skipped as why:
        return "skipped", str(why), Measured()
    except torch.OutOfMemoryError as error:
        return "oom", str(error).splitlines()[0], Measured()
    except MemoryError as error:
        return "oom", str(error) or "out of host memory", Measured()
    except TimeoutError as error:
        return "timeout", str(error), Measured()
    except CaseFailed as error:
        return "failed", str(error), Measured()
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
    line = f"{row.name:24} {rate(row, by_rank, seconds):12,.0f} tokens/s {seconds * 1e3:9.2f} ms"
    if "peak_allocated_bytes" in row.results:
        line += f" {row.results['peak_allocated_bytes'] / 2**30:7.2f} GiB"
    if "host_launch_seconds" in row.results:
        line += f"  launch {row.results['host_launch_seconds'] * 1e3:.2f} ms"
    if "held_out_loss_after" in row.results:
        before, after = (row.results[f"held_out_loss_{when}"] for when in ("before", "after"))
        line += f"  held-out loss {before:.4f} to {after:.4f}"
    line += f"  {row.settings['attention']}"
    return line


def rate(row: CaseRecord, by_rank: list[list[float]], seconds: float) -> float:
    """tokens/s as docs/schema.md says; where steps differ, tokens that are no padding."""
    if "train_seconds" in row.results:
        series = (series for rank in row.ranks for series in rank.series)
        tokens = sum(sum(one.values) for one in series if one.name == "effective_tokens")
        return tokens / row.results["train_seconds"]
    if row.settings["recipe"] == "independent":  # nobody waits for the slowest
        return sum(row.settings["tokens_per_step"] / len(by_rank) / median(own) for own in by_rank)
    return row.settings["tokens_per_step"] / seconds
