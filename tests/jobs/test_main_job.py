"""The main job for real: set-up, mpirun, training, and a file that other programs can read."""

import os
from pathlib import Path

import h5py
import numpy as np
from conftest import PREFIX, PROJECT, run


def text(value: object) -> str:
    """An attribute or entry as text, however h5py hands it over."""
    return value.decode() if isinstance(value, bytes) else str(value)


def check_result_file(path: Path, ranks: int) -> None:
    """Every planned case is there, is ok or skipped with a reason, and holds its steps."""
    with h5py.File(path, "r") as file:
        assert text(file.attrs["schema"]) == "trainsuite"
        assert file.attrs["complete"] == 1
        planned = [text(name) for name in np.atleast_1d(file["runs/0"].attrs["planned"])]
        assert len(planned) >= 7 and len(set(planned)) == len(planned)
        assert len(file["runs/0/ranks"]) == ranks
        assert any(text(file[f"ddp/{name}/0"].attrs["status"]) == "ok" for name in planned)
        for name in planned:
            row = file[f"ddp/{name}/0"]
            status = text(row.attrs["status"])
            if status == "skipped":
                assert text(row.attrs["reason"])
                continue
            assert status == "ok", f"{name}: {status}, {text(row.attrs.get('reason', ''))}"
            steps = row["step_seconds"][...]
            taking_part = 1 if "1gpu" in name else ranks
            assert steps.shape == (taking_part, len(row["warmup"]))
            assert np.all(np.isfinite(steps)) and np.all(steps > 0)
            assert np.all(np.isfinite(row["loss"][...]))


def test_run_job_with_two_ranks(tmp_path: Path) -> None:
    out = tmp_path / "ddp.h5"
    installed = {k: v for k, v in os.environ.items() if k != "TRAINSUITE_BINARY"}
    done = run(
        [str(PROJECT / "jobs/run.sh"), "-np", "2", "ddp", "--out", str(out)],
        cwd=tmp_path,
        env=installed,
        timeout=580,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert str(out) in done.stdout
    check_result_file(out, ranks=2)
    summary = run([str(PREFIX / "bin/trainsuite-results"), "summary", str(out)], timeout=120)
    assert summary.returncode == 0, summary.stderr
    with h5py.File(out, "r") as file:
        for name in file["ddp"]:
            assert name in done.stdout and name in summary.stdout


def test_four_ranks_as_written_after_activation(tmp_path: Path) -> None:
    out = tmp_path / "ddp.h5"
    line = f". '{PREFIX}/bin/activate' && mpirun -np 4 trainsuite ddp --out '{out}'"
    done = run(["bash", "-c", line], cwd=tmp_path, timeout=580)
    assert done.returncode == 0, done.stdout + done.stderr
    check_result_file(out, ranks=4)
