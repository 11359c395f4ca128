"""What the program answers: help, version, names, plan, and a short run's table and status."""

from __future__ import annotations

import json
from pathlib import Path

import h5py
import pytest
from conftest import Program

RECIPES = ["1gpu", "1gpu-accumulate4", "independent", "plain", "bf16", "accumulate4", "both"]
SHORT = ["--steps", "2", "--warmup", "1"]


@pytest.mark.parametrize("ranks", [1, 2])
def test_list_holds_every_name_once(program: Program, ranks: int) -> None:
    """One a line, all sizes, printed by one rank."""
    ended = program("ddp", "--list", ranks=ranks)
    assert ended.returncode == 0, ended
    names = [
        f"{size}-{recipe}{kind}"
        for size in ("124m", "355m", "tiny")
        for kind in ("", "-compile", "-graph")
        for recipe in RECIPES
    ]
    assert ended.stdout.splitlines() == names


def test_list_of_what_the_flags_select(program: Program) -> None:
    """--size, --case and --accumulate count."""
    flags = ["ddp", "--list", "--size", "355m", "--case", "*accumulate*", "--accumulate", "8"]
    names = program(*flags).stdout.split()
    assert names == ["355m-1gpu-accumulate8", "355m-accumulate8"]


@pytest.mark.parametrize("ranks", [1, 2])
def test_help_and_version(program: Program, ranks: int) -> None:
    """Both answer without a suite, once."""
    help_ = program("--help", ranks=ranks)
    assert help_.returncode == 0
    assert help_.stdout.count("--micro-batch") == 1
    assert "Suites: ddp" in help_.stdout
    version = program("--version", ranks=ranks)
    assert version.returncode == 0
    assert len(version.stdout.splitlines()) == 1
    assert "trainsuite" in version.stdout


@pytest.mark.parametrize("ranks", [1, 2])
def test_plan_runs_nothing(program: Program, tmp_path: Path, ranks: int) -> None:
    """On a CPU the plan holds the tiny cases and says that it is a dry run."""
    ended = program("ddp", "--plan", ranks=ranks)
    assert ended.returncode == 0, ended
    for recipe in RECIPES:
        assert ended.stdout.count(f"tiny-{recipe} ") == 1, ended.stdout
    assert "124m-" not in ended.stdout
    assert "Dry run" in ended.stdout
    assert f"{ranks} rank" in ended.stdout
    assert not list(tmp_path.rglob("*.h5"))


def test_a_short_run_prints_its_table_and_path(program: Program, tmp_path: Path) -> None:
    """Two ranks, two of the cases, the file where it was asked for."""
    file = tmp_path / "x.h5"
    flags = ["ddp", "--case", "1gpu", "--case", "plain", *SHORT, "--out", file]
    ended = program(*flags, ranks=2, timeout=120)
    assert ended.returncode == 0, ended
    lines = ended.stdout.strip().splitlines()
    assert str(file) in lines[-1], ended.stdout
    rows = [line for line in lines if line.startswith(("tiny-1gpu ", "tiny-plain "))]
    assert [row.split()[1] for row in rows[-2:]] == ["ok", "ok"], ended.stdout
    assert "x 1gpu" in rows[-1], rows[-1]
    assert "Not comparable: CPU dry run of size tiny" in ended.stdout
    progress = [line.split(",")[0] for line in lines if line.startswith("[")]
    assert progress == ["[1/2] tiny-1gpu ok", "[2/2] tiny-plain ok"], ended.stdout
    with h5py.File(file) as content:
        assert set(content["ddp"]) == {"tiny-1gpu", "tiny-plain"}


@pytest.mark.parametrize("ranks", [1, 2])
def test_a_terminal_gets_one_updating_line(program: Program, ranks: int) -> None:
    """Each state is painted over the one before; nothing but the plan and the table stays."""
    flags = ["ddp", "--case", "1gpu", "--case", "plain", *SHORT]
    status, text = program.on_terminal(*flags, ranks=ranks)
    assert status == 0, text
    assert "\r\x1b[K[1/2] tiny-1gpu set-up" in text, text
    assert "\r\x1b[K[2/2] tiny-plain ok" not in text, text  # the last makes room for the table
    assert not [line for line in text.splitlines() if line.startswith("[")], text


def test_default_output_is_in_results(program: Program, tmp_path: Path) -> None:
    """Named by suite and time, and the same path is printed."""
    ended = program("ddp", "--case", "1gpu", *SHORT, timeout=120)
    assert ended.returncode == 0, ended
    (file,) = (tmp_path / "results").iterdir()
    assert file.name.startswith("ddp-")
    assert file.name in ended.stdout.strip().splitlines()[-1]


def test_json_is_all_of_standard_output(program: Program) -> None:
    """One object that a script can read."""
    ended = program("ddp", "--case", "plain", *SHORT, "--json", ranks=2, timeout=120)
    assert ended.returncode == 0, ended
    summary = json.loads(ended.stdout)
    assert summary["dry_run"] is True
    (case,) = summary["cases"]
    assert (case["case"], case["status"]) == ("tiny-plain", "ok")
    assert case["tokens_per_second"] > 0
    assert "speed_up_on_1gpu" not in case  # its base did not run


def test_untimed_steps_give_means_of_the_loop(program: Program) -> None:
    """With --instrumentation off there is still a rate, and it is said what it is of."""
    flags = ["ddp", "--case", "1gpu", *SHORT, "--instrumentation", "off"]
    ended = program(*flags, timeout=120)
    assert ended.returncode == 0, ended
    assert "(--instrumentation off): all rows." in ended.stdout
    ended = program(*flags, "--json", timeout=120)
    (case,) = json.loads(ended.stdout)["cases"]
    assert case["means_of_loop"] is True
    assert case["tokens_per_second"] == pytest.approx(2 * 64 / case["step_seconds"])
