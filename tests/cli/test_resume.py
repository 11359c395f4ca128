"""--resume goes on with a file, or says why not and leaves it as it was."""

from __future__ import annotations

import signal
from pathlib import Path

import pytest
from conftest import Program
from running import Running, is_complete, rows

SHORT = ["ddp", "--case", "1gpu", "--steps", "2", "--warmup", "1"]


@pytest.fixture(name="file")
def _file(program: Program, tmp_path: Path) -> Path:
    out = tmp_path / "x.h5"
    assert program(*SHORT, "--out", out, timeout=280).returncode == 0
    return out


def test_only_what_is_missing_runs(program: Program, file: Path) -> None:
    ended = program(*SHORT, "--case", "plain", "--repeats", "2", "--out", file, "--resume",
                    timeout=280)
    assert ended.returncode == 0, ended
    runs = {name: row["run"] for name, row in rows(file).items()}
    assert runs == {"tiny-1gpu/0": 0, "tiny-1gpu/1": 1, "tiny-plain/0": 1, "tiny-plain/1": 1}
    assert is_complete(file)
    nothing = program(*SHORT, "--out", file, "--resume", timeout=280)
    assert nothing.returncode == 0, nothing
    assert len(rows(file)) == 4


REFUSED = {
    "another seed": (["--seed", "2"], 1, "seed was 1, is 2"),
    "other steps": (["--steps", "3"], 1, "steps was 2, is 3"),
    "more ranks": ([], 2, "ranks_total was 1, is 2"),
}


@pytest.mark.parametrize("difference", REFUSED)
def test_another_run_is_refused(program: Program, file: Path, difference: str) -> None:
    flags, ranks, words = REFUSED[difference]
    base = SHORT if "--steps" not in flags else [*SHORT[:3], *SHORT[5:]]
    before = file.read_bytes()
    ended = program(*base, *flags, "--out", file, "--resume", ranks=ranks, timeout=280)
    assert ended.returncode == 2, ended
    lines = ended.stderr.splitlines()
    assert len(lines) == 1 and words in lines[0], ended.stderr
    assert file.read_bytes() == before


def test_what_is_no_result_file_is_refused(program: Program, tmp_path: Path) -> None:
    other = tmp_path / "notes.h5"
    other.write_text("my notes")
    ended = program(*SHORT, "--out", other, "--resume")
    assert ended.returncode == 2 and str(other) in ended.stderr, ended
    assert other.read_text() == "my notes"


def test_without_a_file_it_starts_one(program: Program, tmp_path: Path) -> None:
    out = tmp_path / "new.h5"
    assert program(*SHORT, "--out", out, "--resume", timeout=280).returncode == 0
    assert is_complete(out)


@pytest.mark.parametrize("flags, words", [
    (["--resume"], "--out"), (["--retry", "--out", "x.h5"], "--resume")])
def test_flags_that_need_others(program: Program, flags: list[str], words: str) -> None:
    ended = program("ddp", *flags)
    assert ended.returncode == 2 and words in ended.stderr, ended


def test_a_file_that_is_being_written_is_left_alone(program: Program, tmp_path: Path) -> None:
    out = tmp_path / "x.h5"
    run = Running(tmp_path, *SHORT, "--repeats", "9000", "--out", out, ranks=1)
    run.wait_for(lambda: "[2/9000]" in run.said())
    ended = program(*SHORT, "--repeats", "9000", "--out", out, "--resume", timeout=280)
    assert ended.returncode == 2 and "another run is writing" in ended.stderr, ended
    assert run.process.poll() is None, run.said()
    run.send(signal.SIGTERM, 0)
    assert run.end() == 143
    assert {row["run"] for row in rows(out).values()} == {0}
