"""A run that is stopped while it compiles: nothing of the compiler stays behind."""

from __future__ import annotations

import signal
from pathlib import Path

import pytest
from running import Running, rows

CAPTURE = Path(__file__).resolve().parents[2] / "src" / "compile"

# Takes for ever, as capture.py does it: a child of its own beside it.
ENDLESS = f"""
import os, sys, time
sys.path.insert(0, {str(CAPTURE)!r})
import capture
capture.end_with_parent()
with open(os.path.join(os.path.dirname(__file__), "pids"), "a") as pids:
    if os.fork() == 0:
        capture.end_with_parent()
    print(os.getpid(), file=pids, flush=True)
    time.sleep(600)
"""


@pytest.fixture
def compiling(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The file with the compiler's process ids; trainsuite finds this compiler."""
    script = tmp_path / "capture.py"
    script.write_text(ENDLESS)
    monkeypatch.setenv("TRAINSUITE_CAPTURE", str(script))
    return tmp_path / "pids"


def start(folder: Path, pids: Path, *flags: str) -> tuple[Running, list[int]]:
    """A run in its compilation, and the compiler's processes."""
    run = Running(folder, "ddp", "--case", "plain-compile", "--compile-cache", folder / "cache",
                  "--out", folder / "x.h5", *flags)
    run.wait_for(lambda: pids.exists() and pids.read_text().count("\n") == 2)
    return run, [int(line) for line in pids.read_text().split()]


def test_a_signal_ends_the_compilation(tmp_path: Path, compiling: Path) -> None:
    """Told to the rank that does not compile; --resume would run the case again."""
    run, processes = start(tmp_path, compiling)
    run.send(signal.SIGTERM, 1)
    assert run.end() == 128 + signal.SIGTERM, run.said()
    for process in processes:
        run.wait_until_gone(process)
    row = rows(tmp_path / "x.h5")["tiny-plain-compile/0"]
    assert (row["status"], row["stopped"]) == ("skipped", 1)
    assert row["reason"] == "SIGTERM: stopped while packages were compiled"


def test_a_case_limit_ends_the_compilation(tmp_path: Path, compiling: Path) -> None:
    run, processes = start(tmp_path, compiling, "--time-limit", "12")
    assert run.end() == 1, run.said()
    for process in processes:
        run.wait_until_gone(process)
    assert rows(tmp_path / "x.h5")["tiny-plain-compile/0"]["status"] == "timeout"


def test_a_killed_run_leaves_no_compiler(tmp_path: Path, compiling: Path) -> None:
    """Its unfinished packages are removed by the next run, also those of a cold case."""
    run, processes = start(tmp_path, compiling, "--cold")
    run.send(signal.SIGKILL, 0)
    assert run.end() != 0
    for process in processes:
        run.wait_until_gone(process)
    cache = tmp_path / "cache"
    assert list(cache.glob("cold-*/making-*/request.json"))
    compiling.with_name("capture.py").write_text("raise SystemExit('it broke')\n")
    run = Running(tmp_path, "ddp", "--case", "plain-compile", "--compile-cache", cache, "--cold",
                  "--out", tmp_path / "y.h5")
    assert run.end() == 1, run.said()
    assert [entry.name for entry in cache.iterdir()] == ["logs"]
    reason = rows(tmp_path / "y.h5")["tiny-plain-compile/0"]["reason"]
    assert "it broke" in Path(reason.split()[-1]).read_text()
