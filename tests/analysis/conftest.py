"""Finds the readers and the program that writes result files from C++."""

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "analysis"))


@pytest.fixture(scope="session")
def result_sample() -> str:
    """The program of tests/unit/result_sample.cpp, from the build of TRAINSUITE_BINARY."""
    build = Path(os.environ["TRAINSUITE_BINARY"]).parent
    program = build / "tests" / "unit" / "result_sample"
    assert program.is_file(), f"{program} is not built"
    return str(program)


@pytest.fixture
def command() -> Callable[..., subprocess.CompletedProcess]:
    """Runs trainsuite-results as a user does."""
    program = Path(__file__).resolve().parents[2] / "analysis" / "results.py"

    def run(*arguments: object) -> subprocess.CompletedProcess:
        return subprocess.run([sys.executable, str(program), *map(str, arguments)],
                              capture_output=True, text=True, timeout=60, check=False)

    return run
