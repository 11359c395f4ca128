"""GPUs that a management library tells of: their states, links, and what differs."""

from __future__ import annotations

import os
from pathlib import Path

import h5py
import numpy as np
import pytest
from conftest import Program

SHORT = ["ddp", "--case", "1gpu", "--steps", "2", "--warmup", "1"]


@pytest.fixture(name="library")
def fixture_library() -> dict[str, str]:
    """The environment in which the tests' own libnvidia-ml.so.1 is found."""
    folder = Path(os.environ["TRAINSUITE_BINARY"]).parent / "tests/unit/fake_nvml"
    assert (folder / "libnvidia-ml.so.1").exists(), "build the target fake_nvml"
    paths = [str(folder), os.environ.get("LD_LIBRARY_PATH", "")]
    return {"LD_LIBRARY_PATH": ":".join(filter(None, paths))}


def test_gpus_and_links_are_recorded_and_differences_said(
    program: Program, tmp_path: Path, library: dict[str, str]
) -> None:
    out = tmp_path / "a.h5"
    ended = program(*SHORT, "--out", out, ranks=2, FAKE_NVML="different", **library)
    assert ended.returncode == 0, ended
    said = "the power limit differs between GPUs: 500 W on "
    assert said in ended.stdout and "ECC differs" in ended.stdout
    with h5py.File(out, "r") as file:
        run = file["runs/0"]
        gpus, links = run["gpus"][:], run["topology"][:]
        assert [uuid.decode() for uuid in gpus["uuid"]] == ["GPU-aaaa", "GPU-bbbb"]
        assert gpus["power_limit_watts"].tolist() == [700, 500]
        assert [ecc.decode() for ecc in gpus["ecc"]] == ["on", "off"]
        assert [(row["gpu_a"], row["gpu_b"], row["link"].decode()) for row in links] == [
            (0, 1, "PHB")]
        assert run.attrs["telemetry_source"] == "nvml, driver 580.1"
        assert said in run.attrs["gpu_differences"]


def test_on_a_cpu_the_host_alone_is_sampled(program: Program, tmp_path: Path) -> None:
    out = tmp_path / "a.h5"
    assert program(*SHORT, "--out", out).returncode == 0
    with h5py.File(out, "r") as file:
        run, row = file["runs/0"], file["ddp/tiny-1gpu/0"]
        source = run.attrs["telemetry_source"]
        assert ("gpus" in run) == source.startswith("nvml, driver ")
        assert source.startswith("nvml, driver ") or "host only: NVML is not here" in source
        assert sorted(row["telemetry"]) == ["host_load", "host_ram_used_bytes", "sample_seconds"]
        seconds = row["telemetry/sample_seconds"][0]
        assert seconds[0] >= 0 and (np.diff(seconds) > 0).all()
        facts = row["rank_facts"]
        assert 0 < facts["telemetry_loop_begin_seconds"][0] < facts["telemetry_loop_end_seconds"][0]
        assert "throttled" not in row.attrs and "shared_gpu" not in row.attrs


def test_telemetry_off_leaves_it_out(program: Program, tmp_path: Path) -> None:
    out = tmp_path / "a.h5"
    assert program(*SHORT, "--telemetry", "off", "--out", out).returncode == 0
    with h5py.File(out, "r") as file:
        row = file["ddp/tiny-1gpu/0"]
        assert "telemetry" not in row and row.attrs["telemetry"] == "off"
        assert "telemetry_loop_begin_seconds" not in row["rank_facts"]
