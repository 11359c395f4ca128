"""The job scripts under a real Slurm of two nodes."""

from __future__ import annotations

import os
from pathlib import Path

import h5py
import pytest
from conftest import PROJECT, column, text
from slurm import Slurm

SHORT = ["--case", "plain", "--steps", "2", "--warmup", "1"]
DDP = str(PROJECT / "jobs/ddp.sbatch")
FROM_PROJECT = {"TRAINSUITE_PROJECT": str(PROJECT)}


@pytest.mark.parametrize("launcher", ["mpirun", "srun"])
def test_two_nodes_make_one_result(slurm: Slurm, tmp_path: Path, launcher: str) -> None:
    job = slurm.submit(tmp_path, "--nodes=2", "--ntasks-per-node=2", DDP, *SHORT,
                       TRAINSUITE_LAUNCHER=launcher, **FROM_PROJECT)
    (facts,) = slurm.wait(job)
    said = (tmp_path / f"{job}.out").read_text(encoding="utf-8")
    assert facts["JobState"] == "COMPLETED", said
    with h5py.File(tmp_path / f"results/ddp-{job}.h5") as file:
        run = file["runs/0"]
        assert column(run["ranks"], "host") == ["n1", "n1", "n2", "n2"]
        assert column(run["ranks"], "local_rank") == [0, 1, 0, 1]
        assert column(run["hosts"], "host") == ["n1", "n2"]
        assert text(run.attrs["env_SLURM_JOB_ID"]) == job
        assert text(run.attrs["env_SLURM_JOB_NUM_NODES"]) == "2"
        assert text(run.attrs["env_SLURM_JOB_NODELIST"]) == "n[1-2]"
        assert text(run.attrs["env_SLURM_NTASKS"]) == "4"
        row = file["ddp/tiny-plain/0"]
        assert text(row.attrs["status"]) == "ok"
        assert row["loss"].shape == (4, 3)


def test_an_array_makes_a_result_for_each_task(slurm: Slurm, tmp_path: Path) -> None:
    array = slurm.submit(tmp_path, "--array=0-1", "--ntasks=2", DDP, *SHORT,
                         TRAINSUITE_SIZES="tiny", **FROM_PROJECT)
    assert [one["JobState"] for one in slurm.wait(array)] == ["COMPLETED"] * 2
    for task in "01":
        with h5py.File(tmp_path / f"results/ddp-{array}_{task}.h5") as file:
            run = file["runs/0"]
            assert text(run.attrs["env_SLURM_ARRAY_JOB_ID"]) == array
            assert text(run.attrs["env_SLURM_ARRAY_TASK_ID"]) == task
            assert list(file["ddp"]) == ["tiny-plain"]


def test_uneven_tasks_are_told_and_run(slurm: Slurm, tmp_path: Path) -> None:
    job = slurm.submit(tmp_path, "--nodes=2", "--ntasks=3", DDP, *SHORT, **FROM_PROJECT)
    (facts,) = slurm.wait(job)
    said = (tmp_path / f"{job}.out").read_text(encoding="utf-8")
    assert facts["JobState"] == "COMPLETED", said
    assert "3 ranks lie unevenly on 2 nodes (2,1); --ntasks-per-node" in said


REFUSALS = {
    "elsewhere": ({}, "is not the project's folder; submit from there, or export"),
    "no program on the nodes": (
        FROM_PROJECT | {"TRAINSUITE_BINARY": "/nowhere/trainsuite"},
        "no /nowhere/trainsuite on n1 n2: set up once in a folder that all nodes share",
    ),
    "nothing installed": (
        FROM_PROJECT | {"TRAINSUITE_PREFIX": "/nowhere"},
        "nothing is installed in /nowhere; run jobs/setup.sh first",
    ),
    "unknown launcher": (
        FROM_PROJECT | {"TRAINSUITE_LAUNCHER": "prun"},
        "TRAINSUITE_LAUNCHER=prun: known are mpirun and srun",
    ),
}


@pytest.mark.parametrize("name", REFUSALS)
def test_a_wrong_start_is_told_in_one_line(slurm: Slurm, tmp_path: Path, name: str) -> None:
    environment, words = REFUSALS[name]
    job = slurm.submit(tmp_path, "--nodes=2", DDP, *SHORT, **environment)
    (facts,) = slurm.wait(job)
    said = (tmp_path / f"{job}.out").read_text(encoding="utf-8")
    assert facts["ExitCode"] == "2:0", said
    assert words in said and len(said.splitlines()) == 1, said
    assert not (tmp_path / "results").exists()


def test_srun_without_pmix_is_told_before_mpi_starts(slurm: Slurm) -> None:
    done = slurm.command("srun", "--mpi=none", "--nodes=2", "--ntasks=2",
                         os.environ["TRAINSUITE_BINARY"], "ddp", *SHORT)
    ours = [line for line in done.stderr.splitlines() if not line.startswith("srun:")]
    assert done.returncode == 2, done.stderr
    assert len(ours) == 1 and "srun --mpi=pmix" in ours[0], done.stderr


@pytest.mark.parametrize("sweep", [[], ["--sweep"]])
def test_before_the_time_limit_it_saves_and_goes_on_after_a_requeue(
    slurm: Slurm, tmp_path: Path, sweep: list[str]
) -> None:
    repeats = 30
    job = slurm.submit(tmp_path, "--ntasks=2", DDP, *sweep, "--case", "plain", "--steps", "10",
                       "--warmup", "1", "--repeats", str(repeats), **FROM_PROJECT)
    result = tmp_path / f"results/ddp-{job}.h5"
    slurm.until("the run has begun", result.exists, 240)
    sent = slurm.command("scancel", "--signal=USR1", "--batch", job)  # as --signal=B:USR1@120 does
    assert sent.returncode == 0, sent.stderr
    (facts,) = slurm.wait(job)
    said = (tmp_path / f"{job}.out").read_text(encoding="utf-8")
    assert (facts["JobState"], facts["Restarts"]) == ("COMPLETED", "1"), said
    assert "requeued to go on (restart 1)" in said
    with h5py.File(result) as file:
        assert file.attrs["complete"] == 1
        rows = list(file["ddp/tiny-plain"].values())
        ok = [int(row.attrs["run"]) for row in rows if text(row.attrs["status"]) == "ok"]
        assert len(ok) == repeats and ok.count(1) > 0
        assert len(rows) - len(ok) <= 1, "at most the case that was under way"
        assert text(file["runs/1"].attrs["env_SLURM_RESTART_COUNT"]) == "1"
