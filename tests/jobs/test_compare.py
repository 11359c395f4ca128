"""jobs/compare.sh: trainsuite and its PyTorch twin in turn, then the ratios."""

from pathlib import Path

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


def test_a_suite_without_twin_is_named(tmp_path: Path) -> None:
    done = run([COMPARE, "dpd"], cwd=tmp_path, timeout=60)
    assert done.returncode == 2
    assert "dpd" in done.stderr and len(done.stderr.strip().splitlines()) == 1
