"""What needs root: a Slurm of two nodes, and two hosts in namespaces, on this machine."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Iterator

import h5py
import pytest
from slurm import Slurm

PROJECT = Path(__file__).resolve().parents[2]


def pytest_sessionstart() -> None:
    """Nothing here is skipped: without root the whole folder fails, and says how to leave it."""
    if os.geteuid() != 0:
        pytest.exit("these tests need root; jobs/test.sh -LE root leaves them out", returncode=1)


@pytest.fixture(scope="session")
def slurm(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Slurm]:
    """A running Slurm of the nodes n1 and n2, ended with its jobs after the tests."""
    cluster = Slurm(tmp_path_factory.mktemp("slurm"))
    try:
        cluster.start()
        yield cluster
    finally:
        cluster.stop()


def text(value: object) -> str:
    """An attribute as text, however h5py hands it over."""
    return value.decode() if isinstance(value, bytes) else str(value)


def column(table: h5py.Dataset, name: str) -> list[object]:
    """A column of a table: texts or whole numbers."""
    return [value.decode() if isinstance(value, bytes) else int(value) for value in table[name]]
