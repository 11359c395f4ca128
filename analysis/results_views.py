"""trainsuite-results ranks and ceilings: who waits for whom, and what the machine can do at most."""

from __future__ import annotations

import argparse

from results_ceilings import lines
from results_model import Case
from results_reader import load
from results_steady import paces, straggler
from results_tables import number, table

CEILINGS_HEADER = ["case", "repeat", "size", "ms", "rate", "bus bandwidth", "wrong"]


def ranks(path: str) -> int:
    """How each rank of each row kept pace, and what the others wait for the slowest."""
    rows, late = [], []
    for case in load(path).cases:
        for pace in paces(case) if case.status == "ok" else []:
            rows.append([case.name, str(case.repeat), str(pace.rank),
                         *(number(value, 3, 1e3) for value in (pace.step, pace.busy, pace.wait))])
        if case.status == "ok" and (found := straggler(case)):
            late.append(f"{case.label}: rank {found[0]} has the most work of its own; the others "
                        f"wait {found[1] * 1e3:.3f} ms a step for it on average")
    print(table(["case", "repeat", "rank", "step ms", "own work ms", "exposed sync ms"], rows, 1))
    print("\n".join(late) if late else "no row has ranks that wait for one another")
    return 0


def ceilings_text(cases: list[Case]) -> str:
    """A line a problem size; empty without ceilings."""
    rows = [line for case in cases for line in lines(case)]
    return table(CEILINGS_HEADER, rows, 1) if rows else ""


def ceilings(path: str) -> int:
    """Every problem size of every ceiling; 1 when the file has none."""
    cases = load(path).cases
    text = ceilings_text(cases)
    if not text:
        print(f"{path} holds no ceilings; `trainsuite ceilings` measures them")
        return 1
    print(text)
    for case in cases:
        if case.suite == "ceilings" and case.status != "ok":
            print(f"{case.label}: {case.status}: {case.reason}")
    return 0


def register(commands: argparse._SubParsersAction) -> None:
    """Adds the two commands."""
    for name, work, text in (("ranks", ranks, "each rank's pace, and who the others wait for"),
                             ("ceilings", ceilings, "rates of every problem size")):
        command = commands.add_parser(name, help=text)
        command.add_argument("file", metavar="FILE")
        command.set_defaults(work=lambda options, work=work: work(options.file))
