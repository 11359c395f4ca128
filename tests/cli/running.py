"""A run under mpirun that is disturbed while it goes on, and what its file then holds."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from pathlib import Path
from typing import Any

import h5py
from conftest import CPU, LAUNCH

PATIENCE = 280  # seconds for anything that must end


def environment_of(pid: int) -> dict[str, str]:
    try:
        entries = Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
    except OSError:
        return {}
    pairs = [entry.decode(errors="replace").partition("=") for entry in entries]
    return {name: value for name, _, value in pairs}


def children(pid: int) -> list[int]:
    try:
        text = Path(f"/proc/{pid}/task/{pid}/children").read_text()
    except OSError:
        return []
    return [int(word) for word in text.split()]


class Running:
    """`mpirun -np RANKS trainsuite FLAGS...` in the background."""

    def __init__(self, folder: Path, *flags: str | Path, ranks: int = 2, kill_delay: int = 1) -> None:
        """`kill_delay`: seconds that mpirun leaves its ranks after a SIGTERM. It waits twice that
        long whenever a run ends with another status than 0."""
        command = ["mpirun", "-q", "--oversubscribe", "--mca", "odls_base_sigkill_timeout",
                   str(kill_delay), "-np", str(ranks), os.environ["TRAINSUITE_BINARY"],
                   *map(str, flags)]
        self._output = folder / f"output-{time.monotonic_ns()}"
        with self._output.open("w") as output:
            self.process = subprocess.Popen(
                command, cwd=folder, env=os.environ | LAUNCH | CPU,
                stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.STDOUT)

    def said(self) -> str:
        return self._output.read_text(errors="replace")

    def wait_for(self, condition: Any) -> None:
        end = time.monotonic() + PATIENCE
        while not condition():
            assert self.process.poll() is None, self.said()
            assert time.monotonic() < end, self.said()
            time.sleep(0.02)

    def rank(self, number: int) -> int:
        """Process id of a rank."""
        for pid in children(self.process.pid):
            if environment_of(pid).get("OMPI_COMM_WORLD_RANK") == str(number):
                return pid
        raise LookupError(f"rank {number}")

    def ranks(self) -> list[int]:
        return children(self.process.pid)

    def send(self, number: signal.Signals, rank: int | None = None) -> None:
        """To mpirun, or to one rank alone."""
        os.kill(self.process.pid if rank is None else self.rank(rank), number)

    @staticmethod
    def wait_until_gone(pid: int) -> None:
        end = time.monotonic() + PATIENCE
        while Path(f"/proc/{pid}/exe").exists():
            assert time.monotonic() < end, f"process {pid} goes on"
            time.sleep(0.02)

    def end(self) -> int:
        return self.process.wait(timeout=PATIENCE)


def rows(path: Path) -> dict[str, dict[str, Any]]:
    """Attributes of every row, by "case/repeat"."""
    found = {}
    with h5py.File(path, "r") as file:
        for name, repeats in file.get("ddp", {}).items():
            for repeat, row in repeats.items():
                found[f"{name}/{repeat}"] = dict(row.attrs)
    return found


def is_complete(path: Path) -> bool:
    with h5py.File(path, "r") as file:
        return bool(file.attrs["complete"])


def ours(text: str) -> list[str]:
    """Lines that the program said about its end."""
    return [line for line in text.splitlines() if line.startswith("trainsuite: ")]
