"""Shared pieces of the command line's tests: the program, alone and under mpirun, on a CPU."""

from __future__ import annotations

import os
import pty
import subprocess
import threading
from pathlib import Path

import pytest

CPU = {"CUDA_VISIBLE_DEVICES": ""}
LAUNCH = {
    "OMP_NUM_THREADS": "1",  # threads that wait for each other crawl on a busy machine
    "OMPI_ALLOW_RUN_AS_ROOT": "1",
    "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
    "OMPI_MCA_mpi_yield_when_idle": "1",
}


class Program:
    """Runs the program and returns what it said and how it ended."""

    def __init__(self, binary: str, folder: Path) -> None:
        self._binary = binary
        self._folder = folder

    def _command(self, flags: tuple[str | Path, ...], ranks: int) -> list[str]:
        launcher = ["mpirun", "-q", "--oversubscribe", "-np", str(ranks)] if ranks > 1 else []
        return [*launcher, self._binary, *map(str, flags)]

    def __call__(
        self, *flags: str | Path, ranks: int = 1, timeout: int = 60, **environment: str
    ) -> subprocess.CompletedProcess[str]:
        """With more than one rank under mpirun, whose own messages are off."""
        return subprocess.run(
            self._command(flags, ranks),
            cwd=self._folder,
            env=os.environ | LAUNCH | CPU | environment,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=timeout,
            check=False,
        )

    def on_terminal(self, *flags: str | Path, ranks: int = 1) -> tuple[int, str]:
        """Exit status and all that a terminal was sent."""
        master, terminal = pty.openpty()
        process = subprocess.Popen(
            self._command(flags, ranks),
            cwd=self._folder,
            env=os.environ | LAUNCH | CPU,
            stdin=subprocess.DEVNULL,
            stdout=terminal,
            stderr=subprocess.STDOUT,
        )
        os.close(terminal)
        stop = threading.Timer(120, process.kill)
        stop.start()
        sent = b""
        try:
            while part := os.read(master, 65536):
                sent += part
        except OSError:  # the last writer has closed the terminal
            pass
        status = process.wait()
        stop.cancel()
        os.close(master)
        return status, sent.decode(errors="replace")


@pytest.fixture
def program(tmp_path: Path) -> Program:
    """The program named by TRAINSUITE_BINARY, run in an empty folder."""
    return Program(os.environ["TRAINSUITE_BINARY"], tmp_path)
