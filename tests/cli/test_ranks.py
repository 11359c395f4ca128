"""Ranks that were started differently, cases that take too long, readers that leave."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import h5py
import pytest
from conftest import CPU, LAUNCH, Program

SHORT = ["ddp", "--steps", "3", "--warmup", "1"]
# Flags of rank 0, of rank 1, and what the one line must hold.
MIXED = {
    "case": (["--case", "plain"], ["--case", "accumulate4"], ["tiny-plain", "tiny-accumulate4"]),
    "number of cases": (["--case", "plain"], [], ["number of cases", "1 on rank 0"]),
    "steps": (["--seed", "1"], ["--seed", "2"], ["seed", "1 on rank 0", "2 on rank 1"]),
    "plan": (["--case", "plain"], ["--case", "plain", "--plan"], ["--plan"]),
}


def launch(tmp_path: Path, *each: list[str]) -> subprocess.CompletedProcess[str]:
    """One rank for each list of flags, in one job."""
    command = ["mpirun", "-q", "--oversubscribe"]
    for number, flags in enumerate(each):
        command += [":"] * (number > 0) + ["-np", "1", os.environ["TRAINSUITE_BINARY"], *flags]
    return subprocess.run(command, cwd=tmp_path, env=os.environ | LAUNCH | CPU, text=True,
                          stdin=subprocess.DEVNULL, capture_output=True, timeout=120, check=False)


@pytest.mark.parametrize("difference", MIXED)
def test_ranks_started_differently_do_not_train(tmp_path: Path, difference: str) -> None:
    first, second, parts = MIXED[difference]
    ended = launch(tmp_path, [*SHORT, *first], [*SHORT, *second])
    assert ended.returncode == 2, ended
    lines = ended.stderr.splitlines()
    assert len(lines) == 1 and lines[0].startswith("trainsuite: "), ended.stderr
    assert all(part in lines[0] for part in parts), lines[0]
    assert not list(tmp_path.iterdir()), "nothing was to be written"


def test_a_wrong_flag_on_another_rank_is_told(tmp_path: Path) -> None:
    ended = launch(tmp_path, SHORT, ["ddp", "--steps", "0"])
    assert ended.returncode == 2
    assert "rank 1: --steps '0'" in ended.stderr


@pytest.mark.parametrize("ranks", (1, 2))
def test_a_case_that_takes_too_long_is_given_up(
    program: Program, tmp_path: Path, ranks: int
) -> None:
    out = tmp_path / "late.h5"
    ended = program("ddp", "--case", "1gpu", "--case", "plain", "--steps", "500000", "--warmup",
                    "1", "--time-limit", "1.5", "--out", out, ranks=ranks, timeout=100)
    assert ended.returncode == 1, ended
    with h5py.File(out, "r") as file:
        assert file.attrs["complete"] == 1
        for case in ("tiny-1gpu", "tiny-plain"):
            row = file[f"ddp/{case}/0"].attrs
            assert row["status"] == "timeout"
            assert "1.5 s" in row["reason"]


def test_a_plan_writes_nothing(program: Program, tmp_path: Path) -> None:
    assert program("ddp", "--plan").returncode == 0
    assert not list(tmp_path.iterdir())


def test_a_reader_that_leaves_does_not_cost_the_results(program: Program, tmp_path: Path) -> None:
    out = tmp_path / "x.h5"
    command = f"'{os.environ['TRAINSUITE_BINARY']}' {' '.join(SHORT)} --case 1gpu --out '{out}'"
    ended = subprocess.run(["bash", "-c", f"{command} > /dev/full"], env=os.environ | LAUNCH | CPU,
                           capture_output=True, text=True, timeout=100, check=False)
    assert ended.returncode == 1
    assert str(out) in ended.stderr and len(ended.stderr.splitlines()) == 1
    with h5py.File(out, "r") as file:
        assert file["ddp/tiny-1gpu/0"].attrs["status"] == "ok"


def test_runs_of_one_second_take_different_names(tmp_path: Path) -> None:
    command = [os.environ["TRAINSUITE_BINARY"], *SHORT, "--case", "1gpu"]
    runs = [subprocess.Popen(command, cwd=tmp_path, env=os.environ | LAUNCH | CPU,
                             stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
            for _ in range(4)]
    assert [run.wait(timeout=200) for run in runs] == [0] * 4
    for run in runs:
        run.stderr.close()
    assert len(list((tmp_path / "results").glob("*.h5"))) == 4
