"""Many cases in a row: each rank's memory stays flat and the file is right.

    python3 tests/soak.py                       # 200 cases, 4 ranks, some minutes
    python3 tests/soak.py --ranks 2 --repeats 8

Resident memory of every rank is read from /proc many times a second and its highest value kept for
each case. Growth is the Theil-Sen slope over the last 80% of the cases. The exit status is 1 when a
rank grows by more than --bound bytes a case, when the run fails, or when the file does not pass
`results.py verify` or lacks a row. Rank 0 keeps its rows for the summary and, while the file is
small, copies of the file: it may grow by six times the file's bytes a case more.
"""

from __future__ import annotations

import argparse
import re
import statistics
import subprocess
import sys
import tempfile
import time
from itertools import combinations
from pathlib import Path

import h5py

PROJECT = Path(__file__).resolve().parents[1]
RECIPES = ("1gpu", "independent", "plain", "bf16", "both")
SAMPLE_SECONDS = 0.02
PATIENCE_SECONDS = 1800


def ranks_of(mpirun: int) -> dict[int, int]:
    """Process ids of mpirun's ranks, by rank."""
    found = {}
    for child in Path(f"/proc/{mpirun}/task/{mpirun}/children").read_text().split():
        try:
            environment = Path(f"/proc/{child}/environ").read_bytes()
        except OSError:
            continue
        if rank := re.search(rb"(?:^|\0)OMPI_COMM_WORLD_RANK=(\d+)", environment):
            found[int(rank.group(1))] = int(child)
    return found


def resident_bytes(pid: int) -> int:
    """0 where the process is gone."""
    try:
        status = Path(f"/proc/{pid}/status").read_text()
    except OSError:
        return 0
    kib = re.search(r"VmRSS:\s+(\d+) kB", status)
    return int(kib.group(1)) * 1024 if kib else 0


def slope(values: list[int]) -> float:
    """Theil-Sen: the median of all pairs' slopes, a unit of values for each step of the index."""
    return statistics.median(
        (values[b] - values[a]) / (b - a) for a, b in combinations(range(len(values)), 2))


def watch(process: subprocess.Popen[bytes], log: Path) -> dict[int, dict[int, int]]:
    """Until the run ends: highest resident bytes by rank and by number of finished cases."""
    highest: dict[int, dict[int, int]] = {}
    pids: dict[int, int] = {}
    end = time.monotonic() + PATIENCE_SECONDS
    while process.poll() is None:
        if time.monotonic() > end:
            process.kill()
            raise TimeoutError(f"the run did not end in {PATIENCE_SECONDS} s")
        told = re.findall(r"\[(\d+)/\d+\] \S+ ok", log.read_text(errors="replace"))
        finished = int(told[-1]) if told else 0
        pids = pids or (ranks_of(process.pid) if told else {})
        for rank, pid in pids.items():
            of_rank = highest.setdefault(rank, {})
            of_rank[finished] = max(of_rank.get(finished, 0), resident_bytes(pid))
        time.sleep(SAMPLE_SECONDS)
    return highest


def rows_ok(path: Path) -> int:
    with h5py.File(path, "r") as file:
        return sum(row.attrs["status"] == "ok"
                   for repeats in file["ddp"].values() for row in repeats.values())


def complaints(arguments: argparse.Namespace, out: Path, code: int,
               highest: dict[int, dict[int, int]]) -> list[str]:
    """Prints a line for each rank; returns what is wrong."""
    wrong = [] if code == 0 else [f"the run ended with {code}"]
    wanted = arguments.repeats * len(RECIPES)
    row_bytes = out.stat().st_size / wanted
    for rank, of_rank in sorted(highest.items()):
        values = [of_rank[case] for case in sorted(of_rank) if wanted / 5 <= case < wanted]
        growth = slope(values)
        print(f"rank {rank}: {growth / 1024:8.2f} KiB a case over {len(values)} cases, "
              f"{min(values) / 2**20:.1f} to {max(values) / 2**20:.1f} MiB resident")
        if growth > arguments.bound + (0 if rank else 6 * row_bytes):
            wrong.append(f"rank {rank} grows by {growth:.0f} bytes a case")
    if len(highest) != arguments.ranks:
        wrong.append(f"memory of {len(highest)} ranks was seen")
    if (rows := rows_ok(out)) != wanted:
        wrong.append(f"{rows} rows are ok, not {wanted}")
    verified = subprocess.run([sys.executable, str(PROJECT / "analysis/results.py"), "verify", out],
                              capture_output=True, text=True, check=False)
    last = (verified.stdout or verified.stderr).strip().splitlines()[-1]
    print(f"{rows} rows of {row_bytes / 1024:.1f} KiB; verify: {last}")
    if verified.returncode != 0:
        wrong.append(f"verify: {verified.stdout}{verified.stderr}")
    return wrong


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--binary", type=Path, default=Path("build/trainsuite"))
    parser.add_argument("--ranks", type=int, default=4)
    parser.add_argument("--repeats", type=int, default=40, help=f"of {len(RECIPES)} cases")
    parser.add_argument("--bound", type=float, default=16384, help="bytes a case")
    parser.add_argument("--flags", nargs="*", default=["--comm", "mpi", "--oversubscribe"])
    arguments = parser.parse_args()
    cases = [word for recipe in RECIPES for word in ("--case", recipe)]
    with tempfile.TemporaryDirectory() as folder:
        out, log = Path(folder) / "soak.h5", Path(folder) / "log"
        command = ["mpirun", "-q", "--oversubscribe", "-np", str(arguments.ranks),
                   str(arguments.binary), "ddp", "--size", "tiny", *arguments.flags, *cases,
                   "--repeats", str(arguments.repeats), "--steps", "8", "--warmup", "1",
                   "--out", str(out)]
        begin = time.monotonic()
        with log.open("wb") as output:
            process = subprocess.Popen(command, stdout=output, stderr=output,
                                       stdin=subprocess.DEVNULL)
        highest = watch(process, log)
        print(f"{' '.join(command)}\n{time.monotonic() - begin:.0f} s")
        if not out.exists():
            print(log.read_text(errors="replace"), file=sys.stderr)
            return 1
        wrong = complaints(arguments, out, process.returncode, highest)
        if wrong:
            print("\n".join([log.read_text(errors="replace"), *wrong]), file=sys.stderr)
        return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
