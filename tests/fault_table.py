"""Prints the fault table of docs/reliability.md: makes each fault, looks at what became of the run.

    python3 tests/fault_table.py --binary build/trainsuite --ranks 2
    python3 tests/fault_table.py --ranks 2 --flags "--device cuda --comm mpi --oversubscribe"
    python3 tests/fault_table.py --only "process killed" --only hang --jobs 3

A finished case is lost when the program said on standard output that it was ok and its file does not
hold it. The exit status is 1 when a case is lost, a run does not end, or --resume does not complete
the file.
"""

from __future__ import annotations

import argparse
import os
import re
import shlex
import signal
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import h5py

PATIENCE = 240  # seconds for a run to end
# In the plan's order: one that is finished before, the one with the fault, one to run after it.
CASES = ["--case", "independent", "--case", "plain", "--case", "both"]


@dataclass
class Fault:
    """One line of the table."""

    name: str
    how: str
    hook: str = ""  # TRAINSUITE_FAULT
    flags: tuple[str, ...] = ()
    signal: int = 0  # sent `delay` seconds after the second case began
    to: str = ""  # "rank" (the last) or "mpirun"
    delay: float = 1.0
    gpu_only: bool = False


def faults(arguments: argparse.Namespace) -> list[Fault]:
    """Those that one machine can make; the last rank fails, unless it says otherwise."""
    last, limit = arguments.ranks - 1, ("--time-limit", str(arguments.time_limit))
    at = f"rank={last},step={arguments.step},case=plain,kind="
    hang, hang_text = at + "hang", f"pauses for ever, {' '.join(limit)}"
    others = [
        Fault("exception while others are blocked", "sleeps 10 s, throws", at + "late"),
        Fault("hang of rank 0", hang_text, hang.replace(f"rank={last}", "rank=0"), limit),
    ]
    alone = [
        Fault("exception", "throws", at + "throw"),
        Fault("out of memory", "asks for more than the GPU has" if arguments.gpu
              else "OutOfMemory is thrown", at + "oom"),
        Fault("NaN", "a loss becomes NaN", at + "nan"),
        Fault("hang in host code", hang_text, hang, limit),
        Fault("illegal kernel", "a device-side assertion", at + "assert", gpu_only=True),
        Fault("process exits", "_exit(3)", at + "exit"),
        Fault("process killed", "kill -9 of itself", at + "kill"),
        Fault("mpirun killed", "kill -9", hang, limit, signal.SIGKILL, "mpirun"),
        Fault("asked to stop", "SIGTERM to one rank", flags=("--steps", str(arguments.stop_steps)),
              signal=signal.SIGTERM, to="rank"),
        Fault("asked to stop, a rank hangs", "SIGTERM to rank 0", hang, ("--time-limit", "200"),
              signal.SIGTERM, "first"),
    ]
    return alone + (others if arguments.ranks > 1 else [])


def chosen(arguments: argparse.Namespace) -> list[Fault]:
    """By whole name, or by a part of it where no name equals it."""
    known = [fault for fault in faults(arguments) if arguments.gpu or not fault.gpu_only]
    if not arguments.only:
        return known
    names = [fault.name for fault in known]
    return [fault for fault in known
            if any(word == fault.name or (word not in names and word in fault.name)
                   for word in arguments.only)]


class Run:
    """One disturbed run in a folder of its own."""

    def __init__(self, arguments: argparse.Namespace, folder: Path) -> None:
        self._arguments = arguments
        self._folder = folder
        self.out = folder / "run.h5"
        self.log = folder / "log"

    def command(self, *flags: str) -> list[str]:
        common = [*CASES, "--warmup", "1", "--out", str(self.out),
                  *shlex.split(self._arguments.flags), *flags]
        if "--steps" not in common:
            common += ["--steps", "40"]
        return ["mpirun", "-q", "--oversubscribe", "-np", str(self._arguments.ranks),
                str(self._arguments.binary), "ddp", *common]

    def begin(self, fault: Fault) -> subprocess.Popen[bytes]:
        environment = dict(os.environ)
        if fault.hook:
            environment["TRAINSUITE_FAULT"] = fault.hook
        with self.log.open("wb") as log:
            return subprocess.Popen(self.command(*fault.flags), stdout=log, stderr=log,
                                    env=environment, stdin=subprocess.DEVNULL)

    def said(self) -> str:
        return self.log.read_text(errors="replace")

    def rows(self) -> dict[str, dict]:
        with h5py.File(self.out, "r") as file:
            return {f"{name}/{repeat}": dict(row.attrs) for name, repeats in
                    file.get("ddp", {}).items() for repeat, row in repeats.items()}


def rank_process(mpirun: int, rank: int) -> int:
    for child in Path(f"/proc/{mpirun}/task/{mpirun}/children").read_text().split():
        environment = Path(f"/proc/{child}/environ").read_bytes().split(b"\0")
        if f"OMPI_COMM_WORLD_RANK={rank}".encode() in environment:
            return int(child)
    raise LookupError(f"rank {rank}")


def disturb(run: Run, fault: Fault, process: subprocess.Popen[bytes], last: int) -> float:
    """Sends the fault's signal; returns when."""
    while process.poll() is None and "[1/" not in run.said():
        time.sleep(0.02)
    time.sleep(fault.delay)
    target = {"mpirun": lambda: process.pid, "first": lambda: rank_process(process.pid, 0),
              "rank": lambda: rank_process(process.pid, last)}[fault.to]()
    os.kill(target, fault.signal)
    return time.monotonic()


def lost_cases(run: Run) -> int:
    """Cases that the program said are ok, and the file does not have."""
    told = re.findall(r"\[\d+/\d+\] (\S+) ok", run.said())
    kept = [name.rpartition("/")[0] for name, row in run.rows().items() if row["status"] == "ok"]
    return len([name for name in told if name not in kept])


def outcome(run: Run, code: int) -> str:
    name = next((name for name in run.rows() if "-plain/" in name), None)
    if name is None:
        text = "no row of that case"
    else:
        row = run.rows()[name]
        text = f"row `{row['status']}`: {row['reason']}"
    after = any("-both/" in name for name in run.rows())
    return f"{text}; {'the next case runs' if after else 'the job ends'}; exit {code}"


def line_of(arguments: argparse.Namespace, fault: Fault) -> tuple[str, bool]:
    """The table's line, and whether all is well."""
    last = arguments.ranks - 1
    with tempfile.TemporaryDirectory() as folder:
        run = Run(arguments, Path(folder))
        begin = time.monotonic()
        process = run.begin(fault)
        if fault.signal:
            begin = disturb(run, fault, process, last)
        try:
            code = process.wait(timeout=PATIENCE)
        except subprocess.TimeoutExpired:
            process.kill()
            return f"| {fault.name} | {fault.how} | **did not end in {PATIENCE} s** | | |", False
        seconds = time.monotonic() - begin
        case = re.search(r"-plain \w+: .*, ([\d.]+) s", run.said())
        took = f"{case.group(1)} (case), {seconds:.0f} (job)" if case else f"{seconds:.0f} (job)"
        time.sleep(3 if fault.to == "mpirun" else 0)  # for orphans to end
        lost, ended = lost_cases(run), outcome(run, code)
        steps = fault.flags if "--steps" in fault.flags else ()
        again = subprocess.run(run.command("--resume", "--retry", *steps), capture_output=True,
                               text=True, timeout=PATIENCE, check=False)
        well = lost == 0 and again.returncode == 0
        if not well:
            print(run.said(), again.stdout, again.stderr, file=sys.stderr)
        return f"| {fault.name} | {fault.how} | {ended} | {took} | {lost} |", well


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--binary", type=Path, default=Path("build/trainsuite"))
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--step", type=int, default=3, help="before which the rank fails")
    parser.add_argument("--time-limit", type=int, default=15, help="seconds, of hanging cases")
    parser.add_argument("--stop-steps", type=int, default=400, help="of what is asked to stop")
    parser.add_argument("--flags", default="", help="of the program, such as '--device cuda'")
    parser.add_argument("--gpu", action="store_true", help="also faults that need a GPU")
    parser.add_argument("--only", action="append", default=[], help="a fault's name, or part of it")
    parser.add_argument("--jobs", type=int, default=1, help="faults made at the same time")
    arguments = parser.parse_args()
    print("| fault | how it is made | what happened | seconds | finished cases lost |")
    print("|---|---|---|---|---|")
    all_well = True
    with ThreadPoolExecutor(arguments.jobs) as pool:
        for line, well in pool.map(lambda fault: line_of(arguments, fault), chosen(arguments)):
            print(line, flush=True)
            all_well = all_well and well
    return 0 if all_well else 1


if __name__ == "__main__":
    sys.exit(main())
