"""A rank fails on purpose: the row says who, where and why; nothing that is finished is lost."""

from __future__ import annotations

from pathlib import Path

import pytest
from conftest import Program
from running import is_complete, ours, rows

SHORT = ["ddp", "--steps", "4", "--warmup", "1"]
TWO = [*SHORT, "--case", "plain", "--case", "bf16"]
REASONS = {
    "throw": ("failed", "this error was asked for"),
    "oom": ("oom", "out of memory was asked for"),
    "nan": ("failed", "the loss of step 3 is not finite"),
}


@pytest.mark.parametrize("kind", REASONS)
def test_a_failing_rank_costs_its_case_only(program: Program, tmp_path: Path, kind: str) -> None:
    out = tmp_path / "x.h5"
    fault = f"rank=1,step=3,kind={kind},case=plain"
    ended = program(*TWO, "--out", out, ranks=2, timeout=280, TRAINSUITE_FAULT=fault)
    status, reason = REASONS[kind]
    assert ended.returncode == (0 if status == "oom" else 1), ended
    assert f"Note: TRAINSUITE_FAULT makes a fault on purpose: {fault}" in ended.stdout
    found = rows(out)
    row = found["tiny-plain/0"]
    assert (row["status"], row["failed_rank"], row["fault"]) == (status, 1, fault)
    assert row["reason"].startswith("rank 1 (") and reason in row["reason"]
    if kind != "nan":  # found when the losses are read
        assert (row["failed_phase"], row["failed_step"]) == ("training", 3)
    assert found["tiny-bf16/0"]["status"] == "ok"
    assert is_complete(out)


@pytest.mark.parametrize("rank", (0, 1))
def test_a_rank_that_hangs_is_named_and_the_rest_is_run_later(
    program: Program, tmp_path: Path, rank: int
) -> None:
    """It hangs in host code that nothing can end: the row is kept, the job ends, --resume goes on."""
    out = tmp_path / "x.h5"
    flags = [*TWO, "--out", out, "--time-limit", "200"]
    first = program(*TWO[:5], "--case", "bf16", *flags[-4:], ranks=2, timeout=280)
    assert first.returncode == 0, first
    fault = f"rank={rank},step=0,kind=hang,case=plain"
    ended = program(*flags[:-2], "--time-limit", "8", "--resume", ranks=2, timeout=280,
                    TRAINSUITE_FAULT=fault)
    assert ended.returncode == 1, ended
    found = rows(out)
    assert found["tiny-bf16/0"]["status"] == "ok"
    row = found["tiny-plain/0"]
    assert row["status"] == "timeout" and "8 s" in row["reason"], row["reason"]
    assert f"rank {rank} (training, step 0, for " in row["reason"]
    assert f"rank {1 - rank} (" not in row["reason"].split(";")[-1]
    last = ours(ended.stderr)[-1]
    assert "tiny-plain" in last and f"rank {rank} (training" in last and "--resume" in last
    again = program(*flags, "--resume", "--retry", ranks=2, timeout=280)
    assert again.returncode == 0, again
    assert rows(out)["tiny-plain/1"]["status"] == "ok"
    assert is_complete(out)


@pytest.mark.parametrize("kind", ("exit", "kill"))
def test_a_rank_that_is_gone_loses_no_finished_case(
    program: Program, tmp_path: Path, kind: str
) -> None:
    out = tmp_path / "x.h5"
    flags = [*SHORT, "--case", "1gpu", "--case", "plain", "--out", out]
    ended = program(*flags, ranks=2, timeout=280,
                    TRAINSUITE_FAULT=f"rank=1,step=2,kind={kind},case=plain")
    assert ended.returncode != 0
    assert rows(out)["tiny-1gpu/0"]["status"] == "ok"
    assert not is_complete(out)
    again = program(*flags, "--resume", ranks=2, timeout=280)
    assert again.returncode == 0, again
    assert {row["status"] for name, row in rows(out).items() if name.endswith("plain/0")} == {"ok"}
    assert rows(out)["tiny-1gpu/0"]["run"] == 0
    assert is_complete(out)


@pytest.mark.parametrize("fault, word", [("kind=explode", "explode"), ("rank=x,kind=oom", "rank=x")])
def test_a_fault_that_is_not_understood_is_refused(
    program: Program, tmp_path: Path, fault: str, word: str
) -> None:
    ended = program(*SHORT, TRAINSUITE_FAULT=fault)
    assert ended.returncode == 2
    lines = ended.stderr.splitlines()
    assert len(lines) == 1 and "TRAINSUITE_FAULT" in lines[0] and word in lines[0]
    assert not list(tmp_path.iterdir())
