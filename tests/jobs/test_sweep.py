"""jobs/sweep.sh: each case in a launch of its own, into one result."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from pathlib import Path

import h5py
import pytest
from conftest import PROJECT, run

SWEEP = str(PROJECT / "jobs/sweep.sh")
CASES = ["--case", "1gpu", "--case", "plain", "--case", "bf16", "--warmup", "1"]
CPU = os.environ | {"CUDA_VISIBLE_DEVICES": "", "OMPI_MCA_odls_base_sigkill_timeout": "2"}


def text(value: object) -> str:
    return value.decode() if isinstance(value, bytes) else str(value)


def rows(path: Path) -> dict[str, tuple[str, int]]:
    """Status and number of the run, by case."""
    with h5py.File(path) as file:
        return {
            name: (text(repeats["0"].attrs["status"]), int(repeats["0"].attrs["run"]))
            for name, repeats in file["ddp"].items()
        }


def test_a_case_that_kills_its_processes_takes_no_other_with_it(tmp_path: Path) -> None:
    out = tmp_path / "sweep.h5"
    command = [SWEEP, "-np", "2", "ddp", *CASES, "--steps", "3", "--out", str(out)]
    fault = {"TRAINSUITE_FAULT": "rank=1,step=2,kind=kill,case=plain"}
    first = run(command, cwd=tmp_path, env=CPU | fault, timeout=300)
    assert first.returncode not in (0, 2), first.stdout + first.stderr
    assert "sweep: tiny-plain ended with status" in first.stderr
    before = rows(out)
    assert before["tiny-1gpu"][0] == before["tiny-bf16"][0] == "ok"
    assert before.get("tiny-plain", ("failed",))[0] == "failed"
    again = run([*command, "--retry"], cwd=tmp_path, env=CPU, timeout=300)
    assert again.returncode == 0, again.stdout + again.stderr
    after = rows(out)
    assert {status for status, _ in after.values()} == {"ok"}
    for name in ("tiny-1gpu", "tiny-bf16"):
        assert after[name] == before[name], "kept as it was"
    with h5py.File(out) as file:
        assert file.attrs["complete"] == 1


def test_a_signal_ends_the_case_and_the_sweep(tmp_path: Path) -> None:
    out = tmp_path / "sweep.h5"
    with (tmp_path / "said").open("w") as said:
        sweep = subprocess.Popen(
            [SWEEP, "-np", "2", "ddp", *CASES, "--case", "plain", "--steps", "500000", "--out",
             str(out)],
            cwd=tmp_path, env=CPU, stdin=subprocess.DEVNULL, stdout=said, stderr=said)
    deadline = time.monotonic() + 120
    while not out.exists():
        assert sweep.poll() is None and time.monotonic() < deadline
        time.sleep(0.1)
    time.sleep(1)
    sweep.send_signal(signal.SIGTERM)
    assert sweep.wait(timeout=120) == 128 + signal.SIGTERM
    words = (tmp_path / "said").read_text(encoding="utf-8")
    assert "sweep: 1 of 3, tiny-1gpu" in words and "sweep: 2 of 3" not in words
    assert "stopped by SIGTERM" in words
    assert set(rows(out)) <= {"tiny-1gpu"}


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["-np"], "-np needs a value"),
        (["-np", "two", "ddp"], "not 'two'"),
        (["--np", "2", "ddp"], "unknown option '--np'"),
        (["--hostfile", "/nowhere", "ddp"], "--hostfile /nowhere: names no host"),
        (["ddp", "--case", "plian"], "plian"),
    ],
)
def test_a_wrong_start_is_one_line(tmp_path: Path, arguments: list[str], words: str) -> None:
    done = run([SWEEP, *arguments], cwd=tmp_path, env=CPU, timeout=120)
    assert (done.returncode, len(done.stderr.splitlines())) == (2, 1), done.stderr
    assert words in done.stderr
    assert list(tmp_path.glob("**/*.h5")) == []
