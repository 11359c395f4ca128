"""The ceilings suite on a CPU: over MPI, tiny sizes, checked results."""

from __future__ import annotations

import json
from pathlib import Path

import h5py
import numpy as np
import pytest
from conftest import Program

FEW = ["--steps", "3", "--warmup", "1"]
GPU_ONLY = {"tiny-matmul-tf32", "tiny-copy-host-to-device-pinned",
            "tiny-copy-device-to-host-pinned", "tiny-copy-host-to-device-pageable",
            "tiny-copy-device-to-host-pageable"}


@pytest.mark.parametrize("ranks", (1, 3))
def test_every_ceiling_is_measured_or_absent_with_a_reason(
    program: Program, tmp_path: Path, ranks: int
) -> None:
    out = tmp_path / "c.h5"
    ended = program("ceilings", *FEW, "--out", out, ranks=ranks, timeout=200)
    assert ended.returncode == 0, ended
    with h5py.File(out, "r") as file:
        assert file.attrs["complete"] == 1
        rows = {name: file[f"ceilings/{name}/0"] for name in file["ceilings"]}
        skipped = {name for name, row in rows.items() if row.attrs["status"] == "skipped"}
        assert skipped == GPU_ONLY
        assert all("GPU" in rows[name].attrs["reason"] for name in skipped)
        for name in rows.keys() - skipped:
            check_row(rows[name], name.removeprefix("tiny-"), ranks)
    reduced = [line for line in ended.stdout.splitlines() if "GB/s" in line and "KiB" in line]
    assert reduced and ("not defined for one rank" in ended.stdout) == (ranks == 1)


def check_row(row: h5py.Group, recipe: str, ranks: int) -> None:
    """Rates recomputed from the raw repetitions."""
    assert row.attrs["status"] == "ok", row.attrs["reason"]
    assert row["check"].attrs["results_correct"] == 1
    seconds, sizes = row["step_seconds"][:], row["problem_size"][0]
    assert seconds.shape == (ranks, len(row["warmup"])) and (seconds > 0).all()
    assert not row["wrong_values"][:].any()
    measured = row["warmup"][:] == 0
    assert measured.sum() == 3 * len(set(sizes))
    slowest = seconds.max(axis=0)
    rates = []
    for size in sorted(set(sizes)):
        work = {"matmul": 2 * size**3, "copy": 2 * size}.get(recipe.split("-")[0], size)
        rates.append(work / np.median(slowest[measured & (sizes == size)]))
    flops = recipe.startswith("matmul")
    name = "ceiling_flops_per_second" if flops else "ceiling_bytes_per_second"
    assert row.attrs[name] == pytest.approx(max(rates))
    bus = {"all-reduce": 2, "all-gather": 1, "reduce-scatter": 1}.get(recipe)
    if bus and ranks > 1:
        assert row.attrs["ceiling_bus_bytes_per_second"] == pytest.approx(
            max(rates) * bus * (ranks - 1) / ranks)
    else:
        assert "ceiling_bus_bytes_per_second" not in row.attrs


def test_ceilings_as_json(program: Program) -> None:
    ended = program("ceilings", "--case", "matmul-fp32", *FEW, "--json")
    (case,) = json.loads(ended.stdout)["cases"]
    assert case["status"] == "ok" and case["ceiling_flops_per_second"] > 0
