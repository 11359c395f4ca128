"""Shared pieces of the command line's tests: the program, alone and under mpirun, on a CPU."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

CPU = {"CUDA_VISIBLE_DEVICES": ""}
LAUNCH = {
    "OMPI_ALLOW_RUN_AS_ROOT": "1",
    "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
    "OMPI_MCA_mpi_yield_when_idle": "1",
}


class Program:
    """Runs the program and returns what it said and how it ended."""

    def __init__(self, binary: str, folder: Path) -> None:
        self._binary = binary
        self._folder = folder

    def __call__(
        self, *flags: str | Path, ranks: int = 1, timeout: int = 60, **environment: str
    ) -> subprocess.CompletedProcess[str]:
        """With more than one rank under mpirun, whose own messages are off."""
        launcher = ["mpirun", "-q", "--oversubscribe", "-np", str(ranks)] if ranks > 1 else []
        return subprocess.run(
            [*launcher, self._binary, *map(str, flags)],
            cwd=self._folder,
            env=os.environ | LAUNCH | CPU | environment,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=timeout,
            check=False,
        )


@pytest.fixture
def program(tmp_path: Path) -> Program:
    """The program named by TRAINSUITE_BINARY, run in an empty folder."""
    return Program(os.environ["TRAINSUITE_BINARY"], tmp_path)
