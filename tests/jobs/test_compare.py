"""jobs/compare.sh: trainsuite and its PyTorch twin in turn, then the ratios."""

from pathlib import Path

import pytest
from conftest import PROJECT, run

COMPARE = str(PROJECT / "jobs/compare.sh")


def test_two_rounds_leave_four_files_and_ratios(tmp_path: Path) -> None:
    done = run(
        [COMPARE, "--rounds", "2", "--folder", str(tmp_path), "ddp", "--case", "1gpu",
         "--steps", "3", "--warmup", "1"],
        cwd=tmp_path,
        timeout=500,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert len(list(tmp_path.glob("*-trainsuite.h5"))) == 2
    assert len(list(tmp_path.glob("*-pytorch.h5"))) == 2
    assert done.stdout.count("tiny-1gpu ") >= 4  # each round's own row, and its ratio
    assert "A/B" in done.stdout


def test_options_after_dashes_go_to_trainsuite_alone(tmp_path: Path) -> None:
    done = run(
        [COMPARE, "--folder", str(tmp_path), "ddp", "--case", "1gpu", "--steps", "2",
         "--warmup", "1", "--", "--loss-kernel", "fused"],
        cwd=tmp_path,
        timeout=300,
    )
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["-np"], "-np needs a value"),
        (["-np", "two", "ddp"], "-np needs a number of ranks from 1, not 'two'"),
        (["-np", "0", "ddp"], "not '0'"),
        (["--rounds"], "--rounds needs a value"),
        (["--rounds", "-1", "ddp"], "--rounds needs a number of rounds from 1, not '-1'"),
        (["--rounds", "99999999", "ddp"], "--rounds"),
        (["--folder"], "--folder needs a value"),
        (["--folder", "", "ddp"], "--folder needs a folder"),
        (["--folder", "--rounds", "2", "ddp"], "--folder needs a folder, not '--rounds'"),
        (["--folder", __file__, "ddp"], "it is no folder"),
        (["--round", "2", "ddp"], "unknown option '--round'"),
    ],
)
def test_bad_options_are_one_line(tmp_path: Path, arguments: list[str], words: str) -> None:
    done = run([COMPARE, *arguments], cwd=tmp_path, timeout=60)
    assert (done.returncode, len(done.stderr.splitlines())) == (2, 1), done.stderr
    assert done.stderr.startswith("jobs/compare.sh: ") and words in done.stderr
    assert list(tmp_path.iterdir()) == []


def test_a_suite_without_twin_is_named(tmp_path: Path) -> None:
    done = run([COMPARE, "dpd"], cwd=tmp_path, timeout=60)
    assert done.returncode == 2
    assert "dpd" in done.stderr and len(done.stderr.strip().splitlines()) == 1
