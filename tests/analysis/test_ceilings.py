"""Ceilings read back: medians of the slowest rank, bus bandwidth, MFU's denominator."""

from __future__ import annotations

from pathlib import Path

import made_files
import pytest
import results
from results_ceilings import best, lines, pairs, points, product_ceiling
from results_command import main


def ceiling(recipe: str, repeat: int = 0, factor: float = 1.0, ranks: int = 2,
            device: str = "NVIDIA H200") -> results.CaseRecord:
    """Two sizes, a warm-up and three repetitions each."""
    own = []
    for rank in range(ranks):
        seconds = [90, 1, 5, 2, 90, 8, 8, 8] if rank == 0 else [80, 2, 1, 3, 80, 4, 10, 4]
        own.append(results.RankRecord(rank, [
            results.RankSeries("step_seconds", "s", [factor * value for value in seconds]),
            results.RankSeries("problem_size", "1", [100.0] * 4 + [400.0] * 4),
            results.RankSeries("wrong_values", "1", [0.0] * 7 + [float(rank)])]))
    return results.CaseRecord(
        "ceilings", f"full-{recipe}", repeat, "ok", "",
        {"implementation": "trainsuite", "recipe": recipe, "size": "full", "device_name": device},
        {}, {"results_correct": True}, [True, False, False, False] * 2, own)


def test_points_and_bus_bandwidth(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    alone = ceiling("all-gather", ranks=1)
    path = made_files.write(tmp_path / "c.h5", [ceiling("all-reduce"), ceiling("matmul-bf16"),
                                                alone])
    file = results.load(path)
    small, large = points(file.case("full-all-reduce"))
    assert (small.size, small.seconds, small.wrong_values) == (100, 3, 0)
    assert small.rate == pytest.approx(100 / 3) and small.bus_rate == pytest.approx(100 / 3)
    assert (large.seconds, large.wrong_values) == (8, 1)
    assert best(file.case("full-matmul-bf16")).rate == 2 * 400**3 / 8
    assert points(file.case("full-all-gather"))[0].bus_rate is None
    assert main(["ceilings", path]) == 0
    out = capsys.readouterr().out
    assert "not defined for one rank" in out and "full-matmul-bf16" in out
    assert "8,000.0000" in out  # 8 s in ms
    assert results.violations(file) == []
    assert main(["summary", path]) == 0
    summary = capsys.readouterr().out
    assert "not defined for one rank" in summary and "tokens/s" not in summary


def test_the_ceiling_of_a_precision_on_a_device(tmp_path: Path) -> None:
    rows = [ceiling("matmul-bf16", repeat, factor) for repeat, factor in enumerate((1, 2, 4))]
    rows += [ceiling("matmul-tf32", device="NVIDIA A100")]
    file = results.load(made_files.write(tmp_path / "c.h5", rows))
    assert product_ceiling(file, "bf16", "NVIDIA H200") == 2 * 400**3 / 16
    assert product_ceiling(file, "bf16", "NVIDIA A100") is None
    assert product_ceiling(file, "fp32", "NVIDIA H200") is None


def test_pairs_take_the_fastest_size(tmp_path: Path) -> None:
    nan = float("nan")
    times = [[9, 1, 9, 5, 9, 4], [9, 2, 9, 5, nan, nan], [nan] * 4 + [9, 4]]
    own = [results.RankRecord(rank, [
        results.RankSeries("step_seconds", "s", seconds),
        results.RankSeries("problem_size", "1", [100, 100, 400, 400, 100, 100]),
        results.RankSeries("pair_a", "1", [0] * 6),
        results.RankSeries("pair_b", "1", [1, 1, 1, 1, 2, 2])]) for rank, seconds in enumerate(times)]
    row = results.CaseRecord("ceilings", "full-pairs", 0, "ok", "", {"recipe": "pairs"}, {}, {},
                             [True, False] * 3, own)
    case = results.load(made_files.write(tmp_path / "p.h5", [row])).cases[0]
    assert pairs(case) == {(0, 1): (400, 80), (0, 2): (100, 25)}
    assert points(case) == [] and len(lines(case)) == 2


def test_other_rows_have_none(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = made_files.write(tmp_path / "a.h5", [made_files.case()])
    assert points(results.load(path).cases[0]) == []
    assert main(["ceilings", path]) == 1
    assert "trainsuite ceilings" in capsys.readouterr().out


def test_a_row_above_its_peak_is_a_violation(tmp_path: Path) -> None:
    row = made_files.case()
    row.checks["below_peak"] = False
    (found,) = results.violations(results.load(made_files.write(tmp_path / "a.h5", [row])))
    assert "faster than the peak" in found
