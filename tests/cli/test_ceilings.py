"""The ceilings suite on a CPU: over MPI, tiny sizes, checked results."""

from __future__ import annotations

import json
from pathlib import Path

import h5py
import numpy as np
import pytest
from conftest import Program

FEW = ["--steps", "3", "--warmup", "1"]
ONE_THREAD = {"OMP_NUM_THREADS": "1"}  # threads that spin starve where others use the cores
TRAINED = (("ddp", "1gpu"), ("finetune", "lora-4x4"), ("compile", "eager-sdpa"))
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


@pytest.mark.parametrize(("suite", "case"), TRAINED)
def test_rates_are_of_the_measured_peak(
    program: Program, tmp_path: Path, suite: str, case: str
) -> None:
    peak, out = tmp_path / "peak.h5", tmp_path / "row.h5"
    assert program("ceilings", "--case", "matmul-fp32", *FEW, "--out", peak).returncode == 0
    flags = [suite, "--case", case, *FEW, "--ceilings", peak]
    ended = program(*flags, "--out", out, timeout=200, **ONE_THREAD)
    assert ended.returncode == 0, ended
    with h5py.File(peak, "r") as file:
        measured = file["ceilings/tiny-matmul-fp32/0"].attrs["ceiling_flops_per_second"]
    with h5py.File(out, "r") as file:
        row = file[f"{suite}/tiny-{case}/0"]
        assert row.attrs["peak_flops"] == measured
        assert row.attrs["peak_flops_source"] == "measured"
        assert row["check"].attrs["below_peak"] == 1


@pytest.mark.parametrize(("suite", "case"), TRAINED)
def test_a_rate_above_the_peak_is_said_to_be_wrong(
    program: Program, tmp_path: Path, suite: str, case: str
) -> None:
    peak, out = tmp_path / "peak.h5", tmp_path / "row.h5"
    assert program("ceilings", "--case", "matmul-fp32", *FEW, "--out", peak).returncode == 0
    with h5py.File(peak, "r+") as file:
        file["ceilings/tiny-matmul-fp32/0"].attrs.modify("ceiling_flops_per_second", 1e3)
    ended = program(suite, "--case", case, *FEW, "--ceilings", peak, "--out", out, timeout=200,
                    **ONE_THREAD)
    assert "faster than the peak" in ended.stdout
    with h5py.File(out, "r") as file:
        assert file[f"{suite}/tiny-{case}/0/check"].attrs["below_peak"] == 0


@pytest.mark.parametrize("kind", ("missing", "text", "without"))
def test_ceilings_that_cannot_be_used_are_refused(
    program: Program, tmp_path: Path, kind: str
) -> None:
    path = tmp_path / "x.h5"
    if kind == "text":
        path.write_text("no result")
    if kind == "without":
        assert program("ddp", "--case", "1gpu", *FEW, "--out", path).returncode == 0
    ended = program("ddp", "--case", "1gpu", "--ceilings", path, ranks=2)
    assert ended.returncode == 2
    (line,) = [line for line in ended.stderr.splitlines() if line.startswith("trainsuite: ")]
    assert str(path) in line and "--ceilings" in line


def test_self_check_says_what_measuring_costs(program: Program, tmp_path: Path) -> None:
    out = tmp_path / "s.h5"
    ended = program("ddp", "--case", "1gpu", "--self-check", "--repeats", "3", *FEW, "--out", out,
                    timeout=200, **ONE_THREAD)
    assert ended.returncode == 0, ended
    assert "tiny-1gpu: measuring costs " in ended.stdout and "3 rounds" in ended.stdout
    with h5py.File(out, "r") as file:
        bare, full = file["ddp/tiny-1gpu-bare/0"], file["ddp/tiny-1gpu/0"]
        assert "step_seconds" in full and "telemetry" in full
        assert "step_seconds" not in bare and "telemetry" not in bare
        assert bare.attrs["instrumentation"] == "off" and full.attrs["instrumentation"] == "on"


def test_pairs_of_ranks_are_swept_on_one_node(program: Program, tmp_path: Path) -> None:
    out = tmp_path / "p.h5"
    ended = program("ceilings", "--pairs", "--case", "pairs", *FEW, "--out", out, ranks=3,
                    timeout=200, **ONE_THREAD)
    assert ended.returncode == 0, ended
    with h5py.File(out, "r") as file:
        row = file["ceilings/tiny-pairs/0"]
        assert row.attrs["status"] == "ok" and row["check"].attrs["results_correct"] == 1
        seconds, pairs = row["step_seconds"][:], np.stack([row["pair_a"][0], row["pair_b"][0]])
        assert {tuple(pair) for pair in pairs.T} == {(0, 1), (0, 2), (1, 2)}
        for step, (a, b) in enumerate(pairs.T.astype(int)):
            took_part = ~np.isnan(seconds[:, step])
            assert took_part.nonzero()[0].tolist() == [a, b]
    assert all(f"{pair} " in ended.stdout for pair in ("0-1", "0-2", "1-2"))
