"""Acceptance of a node: does it do what a reference file says, and if not, which GPU of which host?

A rank that waits for others is as slow as the slowest, so each rank is judged by its own work: the
step without the time spent waiting for communication.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

import numpy as np

import compare_settings
from compare_pair import good, groups
from figures import rate_of
from gpus import page_name
from results_model import Case, Results

ACCEPTED, REJECTED, CANNOT_TELL = 0, 1, 3


@dataclass(frozen=True)
class Finding:
    """One reason to reject a node."""

    case: str
    where: str  # host and GPU
    words: str

    def __str__(self) -> str:
        return f"FAILED {self.where}: {self.case}: {self.words}"


def own_seconds(case: Case) -> dict[int, float]:
    """rank -> median seconds of its own work in a step."""
    if "step_seconds" not in case.series:
        return {}
    steps = case.measured("step_seconds")
    if "exposed_sync_seconds" in case.series:
        steps = steps - np.nan_to_num(case.measured("exposed_sync_seconds"))
    return {int(rank): float(np.median(row[~np.isnan(row)]))
            for rank, row in zip(case.ranks, steps) if not np.isnan(row).all()}


def place(file: Results, case: Case, rank: int) -> str:
    """Host and GPU of a rank, in words."""
    run = compare_settings.run_of(file, case)
    for one in run.ranks if run else []:
        if one["rank"] == rank:
            name = page_name(one["device_name"]) or "CPU"
            identity = f", {one['uuid']}" if one["uuid"] else ""
            return f"host {one['host'] or 'not known'}, GPU {one['local_rank']} ({name}{identity})"
    return f"rank {rank}"


def judge(reference: Results, file: Results, tolerance: float) -> tuple[int, list[str]]:
    """(exit status, sentences)."""
    measured, findings, compared, words = groups(file), [], 0, []
    for key, expected in groups(reference).items():
        good_reference = good(expected)
        if not good_reference:
            continue
        if key not in measured:
            words.append(f"cannot tell {key[1]}: {file.path} does not hold it")
            continue
        fewer = _missing_gpus(good_reference[0], file, measured[key][0])
        if fewer:
            findings.append(fewer)
            continue
        other = _other_work(reference, good_reference[0], file, measured[key][0])
        if other:
            words.append(f"cannot tell {key[1]}: other work than the reference: {other}")
            continue
        compared += 1
        findings += _judge_case(good_reference, file, measured[key], tolerance)
    words += list(dict.fromkeys(map(str, findings)))
    if findings:
        return REJECTED, words
    if not compared or words:
        return CANNOT_TELL, words or [f"{file.path}: no case of the reference"]
    return ACCEPTED, [f"accepted {file.path}: {compared} cases within {tolerance:.1%} of the "
                      "reference"]


def _missing_gpus(expected: Case, file: Results, case: Case) -> Finding | None:
    """A node that brought fewer GPUs than the reference."""
    if len(case.ranks) >= len(expected.ranks) or not len(case.ranks):
        return None
    run = compare_settings.run_of(file, case)
    return Finding(case.name, f"host {compare_settings.hosts(run) or 'not known'}",
                   f"{len(case.ranks)} GPUs took part, {len(expected.ranks)} in the reference")


def _other_work(reference: Results, expected: Case, file: Results, case: Case) -> str:
    gaps = compare_settings.differing(compare_settings.facts_of(reference, expected),
                                      compare_settings.facts_of(file, case))
    if case.status != "ok":  # a row that ended early lacks what is known at its end
        gaps = [gap for gap in gaps if gap[0] != "ranks"]
    return "; ".join(compare_settings.other_work(gaps))


def _judge_case(expected: list[Case], file: Results, cases: list[Case],
                tolerance: float) -> list[Finding]:
    name, found = cases[0].name, []
    for case in cases:
        if case.status != "ok":
            found += [Finding(name, place_, f"{case.status}: {case.reason or 'no reason given'}")
                      for place_ in _blamed(file, case)]
    ok = good(cases)
    if not ok:
        return found
    slow = _slow_ranks(expected, file, ok, tolerance)
    wanted = float(np.median([rate for rate in map(rate_of, expected) if rate] or [np.nan]))
    rate = float(np.median([rate for rate in map(rate_of, ok) if rate] or [np.nan]))
    if not slow and rate < wanted * (1 - tolerance):
        run = compare_settings.run_of(file, ok[0])
        hosts = ", ".join(sorted({one["host"] for one in run.ranks})) if run else "not known"
        slow = [Finding(name, f"hosts {hosts}, all GPUs alike",
                        f"{rate:,.0f} tokens/s, {(1 - rate / wanted):.1%} below the reference's "
                        f"{wanted:,.0f}")]
    return found + slow + _failed_checks(file, ok)


def _blamed(file: Results, case: Case) -> list[str]:
    """The ranks that the reason names, else all of the row."""
    named = [int(rank) for rank in re.findall(r"\brank (\d+)", case.reason)]
    ranks = named or [int(rank) for rank in case.ranks]
    if not ranks:
        run = compare_settings.run_of(file, case)
        ranks = [one["rank"] for one in run.ranks] if run else []
    return [place(file, case, rank) for rank in ranks] or [file.path]


def _slow_ranks(expected: list[Case], file: Results, cases: list[Case],
                tolerance: float) -> list[Finding]:
    references = [seconds for case in expected for seconds in own_seconds(case).values()]
    if not references:
        return []
    reference, found = float(np.median(references)), []
    for rank in map(int, cases[0].ranks):
        times = [own[rank] for own in map(own_seconds, cases) if rank in own]
        if times and np.median(times) > reference / (1 - tolerance):
            loss = 1 - reference / float(np.median(times))
            found.append(Finding(cases[0].name, place(file, cases[0], rank),
                                 f"its own part of a step takes {np.median(times) * 1e3:,.2f} ms, "
                                 f"the reference's {reference * 1e3:,.2f} ms: {loss:.1%} slower"))
    return found


def _failed_checks(file: Results, cases: list[Case]) -> list[Finding]:
    return [Finding(case.name, _blamed(file, case)[0], f"its check '{name}' failed")
            for case in cases for name, passed in case.checks.items() if passed is False]
