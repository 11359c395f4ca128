"""Shared pieces for the tests of jobs/: where things are, and stand-ins for commands."""

import os
import subprocess
from pathlib import Path
from typing import Callable

import pytest

PROJECT = Path(__file__).resolve().parents[2]
PREFIX = PROJECT / os.environ.get("TRAINSUITE_PREFIX", ".venv")


@pytest.fixture
def stub(tmp_path: Path) -> Callable[[str, str], Path]:
    """Makes a command of the given name and shell body; all lie in one folder, returned."""
    folder = tmp_path / "stubs"
    folder.mkdir()

    def make(name: str, body: str) -> Path:
        path = folder / name
        path.write_text(f"#!/bin/sh\n{body}\n", encoding="utf-8")
        path.chmod(0o755)
        return folder

    return make


def run(command: list[str], **kwargs: object) -> subprocess.CompletedProcess[str]:
    """Runs a command without standard input and returns its text."""
    return subprocess.run(  # type: ignore[call-overload]
        command, stdin=subprocess.DEVNULL, capture_output=True, text=True, **kwargs
    )
