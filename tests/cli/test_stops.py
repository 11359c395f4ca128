"""A run that is asked to stop saves what it has, says so, and goes on later."""

from __future__ import annotations

import signal
from pathlib import Path

import pytest
from conftest import Program
from running import Running, is_complete, ours, rows

ENDLESS = ["ddp", "--case", "plain", "--steps", "500000", "--warmup", "1"]
MANY = ["ddp", "--case", "plain", "--steps", "2", "--warmup", "1"]


@pytest.mark.parametrize("sent, to_rank", [
    (signal.SIGTERM, 1), (signal.SIGINT, 0), (signal.SIGUSR1, 0), (signal.SIGTERM, None)])
def test_a_signal_stops_all_ranks(
    tmp_path: Path, sent: signal.Signals, to_rank: int | None
) -> None:
    """To one rank alone, or to mpirun, which passes it on and ends with 1: all stop before one step."""
    out = tmp_path / "x.h5"
    run = Running(tmp_path, *ENDLESS, "--out", out, kill_delay=1 if to_rank is not None else 4)
    run.wait_for(lambda: "Plan:" in run.said() and out.exists())
    run.send(sent, to_rank)
    assert run.end() == (1 if to_rank is None else 128 + sent), run.said()
    row = rows(out)["tiny-plain/0"]
    assert (row["status"], row["stopped"]) == ("skipped", 1)
    assert row["reason"].startswith(f"{sent.name}: stopped before step ")
    assert not is_complete(out)
    last = ours(run.said())[-1]
    assert f"stopped by {sent.name}" in last and "--resume" in last


def test_a_stopped_run_goes_on(program: Program, tmp_path: Path) -> None:
    """Stopped among many short cases, it runs those that lack a result and no other."""
    out = tmp_path / "x.h5"
    run = Running(tmp_path, *MANY, "--repeats", "5000", "--out", out)
    run.wait_for(lambda: "[3/5000] tiny-plain ok" in run.said())
    run.send(signal.SIGTERM, 0)
    assert run.end() == 143, run.said()
    before = rows(out)
    finished = [name for name, row in before.items() if row["status"] == "ok"]
    assert 3 <= len(finished) < 5000
    assert len(before) - len(finished) <= 1, "at most the case that was under way"
    wanted = len(finished) + 2
    again = program(*MANY, "--repeats", str(wanted), "--out", out, "--resume", ranks=2, timeout=280)
    assert again.returncode == 0, again
    after = rows(out)
    assert sum(row["status"] == "ok" for row in after.values()) == wanted
    assert {name: row["run"] for name, row in after.items() if name in before} == dict.fromkeys(
        before, 0)
    assert is_complete(out)


def test_the_whole_run_has_a_limit(program: Program, tmp_path: Path) -> None:
    out = tmp_path / "x.h5"
    ended = program(*ENDLESS, "--case", "bf16", "--total-time-limit", "12", "--out", out, ranks=2,
                    timeout=280)
    assert ended.returncode == 1, ended
    row = rows(out)["tiny-plain/0"]
    assert (row["status"], row["stopped"]) == ("timeout", 1)
    assert row["reason"].startswith("--total-time-limit 12 s: stopped before step ")
    assert list(rows(out)) == ["tiny-plain/0"], "the limit of a run is no case's fault"
    assert not is_complete(out)
