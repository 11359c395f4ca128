"""The disk fills, or the folder goes, while a run writes: a clear line, and the rows before are kept."""

from __future__ import annotations

import os
import shutil
import subprocess
import time
from pathlib import Path

import h5py

SHORT = ["ddp", "--case", "1gpu", "--steps", "20", "--warmup", "1", "--repeats", "9000"]
ENVIRONMENT = os.environ | {"CUDA_VISIBLE_DEVICES": "", "OMP_NUM_THREADS": "1",
                            "OMPI_ALLOW_RUN_AS_ROOT": "1",
                            "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}
IN_A_SMALL_DISK = """
mount -t tmpfs -o size=256k tmpfs "$1" || exit 90
status=0
cd "$1" && shift && "$@" || status=$?
cp -r . ../copy
exit $status
"""


def test_a_full_disk(tmp_path: Path) -> None:
    """In a file system of 256 KB, mounted for this test alone."""
    disk, copy = tmp_path / "disk", tmp_path / "copy"
    disk.mkdir()
    ended = subprocess.run(
        ["unshare", "--mount", "bash", "-c", IN_A_SMALL_DISK, "bash", str(disk),
         os.environ["TRAINSUITE_BINARY"], *SHORT, "--out", "x.h5"],
        env=ENVIRONMENT, capture_output=True, text=True, timeout=300, check=False)
    assert ended.returncode == 1, ended
    lines = [line for line in ended.stderr.splitlines() if "ORTE" not in line]  # Open MPI's own
    assert len(lines) == 1 and "cannot write x.h5: No space left on device" in lines[0], ended.stderr
    told = ended.stdout.count("tiny-1gpu ok")
    with h5py.File(copy / "x.h5", "r") as file:
        kept = {name: row.attrs["status"] for name, row in file["ddp/tiny-1gpu"].items()}
    assert set(kept.values()) == {"ok"}
    assert len(kept) in (told, told + 1) and told > 1
    assert [entry.name for entry in copy.iterdir()] == ["x.h5"], "nothing half-written stays"


def test_a_folder_that_vanishes(tmp_path: Path) -> None:
    folder = tmp_path / "results"
    folder.mkdir()
    run = subprocess.Popen([os.environ["TRAINSUITE_BINARY"], *SHORT, "--out", folder / "x.h5"],
                           env=ENVIRONMENT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    for line in run.stdout:
        if line.startswith("[2/"):
            break
    while folder.exists():  # the run may be writing a file in it
        shutil.rmtree(folder, ignore_errors=True)
        time.sleep(0.01)
    _, told = run.communicate(timeout=120)
    assert run.returncode == 1, told
    lines = [line for line in told.splitlines() if "ORTE" not in line]
    assert len(lines) == 1 and str(folder / "x.h5") in lines[0], told
    assert "removed or replaced" in lines[0] or "No such file" in lines[0], told
