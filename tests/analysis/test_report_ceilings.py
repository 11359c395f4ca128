"""The page's ceilings, which peak MFU is of, and what each row says against itself."""

from __future__ import annotations

from pathlib import Path

import made_files
import pytest
import report
import report_steady
import report_stood_out_more
import results
from report_costs import Costing
from report_read import rows_of
from report_samples import PageReader, ceiling_case, ddp_case, make_file, oom_case
from report_suite import Suite
from results_repeats import over_repeats


def page_of(tmp_path: Path, *paths: str) -> PageReader:
    out = tmp_path / "page.html"
    assert report.main([*paths, "-o", str(out), "--today", "2026-10-30"]) == 0
    return PageReader(out.read_text(encoding="utf-8"))


def suite_of(tmp_path: Path, *rows: results.CaseRecord, **of_run) -> Suite:
    path = made_files.write(tmp_path / "s.h5", rows, made_files.run(**of_run))
    return Suite("ddp", rows_of(results.load(path)), Costing(None, "2026-10-29"), [], [path])


def test_ceilings_have_a_section_of_their_own(tmp_path: Path) -> None:
    # 2 n^3 FLOPs of 8192 rows in 1.375 ms: 799.6 TFLOP/s; listed 989.5
    seconds = 2 * 8192**3 / 799.6e12
    path = make_file(tmp_path / "c.h5", ceiling_case("matmul-bf16", seconds),
                     ceiling_case("copy-device", 0.5, largest=1 << 30),
                     ceiling_case("all-reduce", 0.25, largest=1 << 30),
                     ceiling_case("all-gather", 0.25, largest=1 << 30),
                     oom_case("ceilings", "full-matmul-fp32", "rank 0: out of memory", size="full",
                              recipe="matmul-fp32"))
    page = page_of(tmp_path, path)
    assert page.column("ceilings-products", "Measured, TFLOP/s a GPU") == ["800"]
    assert page.column("ceilings-products", "Listed, TFLOP/s") == ["989.5"]
    assert page.column("ceilings-products", "Measured / listed") == ["80.8%"]
    assert page.column("ceilings-copies", "Best size") == ["1 GiB"]
    assert page.column("ceilings-copies", "GB/s a rank") == ["4.29"]  # 2 x 2^30 bytes in 0.5 s
    assert page.column("ceilings-collectives", "Algorithm bandwidth, GB/s") == ["4.29", "4.29"]
    assert page.column("ceilings-collectives", "Bus bandwidth, GB/s") == ["4.29", "2.15"]
    assert page.column("ceilings-collectives", "Over repeats") == ["single run"] * 2
    assert len(page.tables["ceilings-sweep"]) == 1 + 4 * 2
    assert page.column("ceilings-sweep", "Time, ms")[2:4] == ["250.0000", "500.0000"]
    assert "fp32 product out of memory: rank 0: out of memory" in page.text
    assert page.column("gpu-table", "Measured bf16 product, TFLOP/s") == ["800"]
    assert "mpirun -np 2 trainsuite" in page.text
    assert "ceilings" in page.ids and "ddp" not in page.ids


def test_repeats_of_a_ceiling_make_one_row_with_its_interval(tmp_path: Path) -> None:
    path = make_file(tmp_path / "c.h5", *(
        ceiling_case("copy-device", 1 / rate, repeat=repeat, largest=5 * 10**11)
        for repeat, rate in enumerate((4.0, 4.2, 4.1))))
    page = page_of(tmp_path, path)
    spread = over_repeats([4e12, 4.2e12, 4.1e12])
    assert page.column("ceilings-copies", "GB/s a rank") == ["4,100"]
    low, high = (f"{value * 1e-9:,.0f}" for value in (spread.low, spread.high))
    assert page.column("ceilings-copies", "Over repeats") == [f"{low} to {high}"]


def test_one_rank_has_no_bus_bandwidth(tmp_path: Path) -> None:
    page = page_of(tmp_path, make_file(tmp_path / "c.h5", ceiling_case("all-reduce", 1.0, 1),
                                       ranks=1))
    assert page.column("ceilings-collectives", "Bus bandwidth, GB/s") == [
        "not defined for one rank"]
    assert "Bus bandwidth over the size" not in page.text


def test_mfu_of_two_gpus_is_of_the_peak_of_both(tmp_path: Path) -> None:
    # 8,192 tokens a GPU in 0.1 s at 0.8 GFLOP: 65.5 of 989.5 TFLOP/s
    page = page_of(tmp_path, make_file(tmp_path / "r.h5", ddp_case("1gpu", 0.1),
                                       ddp_case("plain", 0.1)))
    assert page.column("ddp-details", "MFU") == ["6.6%", "6.6%"]


def test_mfu_is_of_the_measured_product_of_the_device_and_says_so(tmp_path: Path) -> None:
    rows = make_file(tmp_path / "d.h5", ddp_case("1gpu", 0.1), ranks=1)
    alone = page_of(tmp_path, rows)
    # 8e8 FLOPs x 81,920 tokens/s
    assert alone.column("ddp-details", "MFU") == ["6.6%"]
    assert alone.column("ddp-details", "MFU is of, TFLOP/s a GPU") == ["989.5 listed"]
    assert "over the GPUs' listed dense peak" in alone.text

    def limits(name: str, peak: float, recipe: str = "matmul-bf16", **settings) -> str:
        return make_file(tmp_path / name, ceiling_case(recipe, 2 * 8192**3 / peak, **settings))

    other = [limits("a100.h5", 1e12, device_name="NVIDIA A100"),
             limits("tf32.h5", 1e12, "matmul-tf32")]
    assert page_of(tmp_path, rows, *other).column("ddp-details", "MFU") == ["6.6%"]
    page = page_of(tmp_path, rows, limits("l.h5", 655.36e12), *other)
    assert page.column("ddp-details", "MFU") == ["10.0%"]
    assert page.column("ddp-details", "MFU is of, TFLOP/s a GPU") == ["655.4 measured"]
    assert "over the GPUs' measured dense peak" in page.text
    assert "faster than the peak" not in page.text
    page = page_of(tmp_path, rows, limits("slow.h5", 30e12))
    assert "124M 1 GPU is faster than the peak of its GPUs" in page.text


def test_the_rows_own_file_comes_before_the_pages_others(tmp_path: Path) -> None:
    def product(peak: float, size: str = "full") -> results.CaseRecord:
        return ceiling_case("matmul-bf16", 2 * 8192**3 / peak, size=size)

    own = make_file(tmp_path / "d.h5", ddp_case("1gpu", 0.1), product(655.36e12),
                    product(1e12, "tiny"), ranks=1)
    other = make_file(tmp_path / "o.h5", product(100e12))
    page = page_of(tmp_path, own, other)
    assert page.column("ddp-details", "MFU is of, TFLOP/s a GPU") == ["655.4 measured"]


def sampled(**found) -> results.CaseRecord:
    """Two ranks, rank 1 late; the sample at 1 s lies in the timed loop."""
    record = made_files.case(seconds=(1.0, 1.0), waiting=(0.4, 0.1), steps=21)
    for rank in record.ranks:
        rank.facts |= {"telemetry_loop_begin_seconds": 0.9, "telemetry_loop_end_seconds": 1.5}
        rank.telemetry = [results.RankSeries("sample_seconds", "s", [0.0, 1.0, 2.0]),
                          results.RankSeries("power_watts", "W", [1.0, 650.0, 1.0]),
                          results.RankSeries("temperature_celsius", "degC",
                                             [90, 60 + rank.rank, 90])]
    record.results |= found
    return record


def test_the_table_of_steadiness_says_what_the_summary_says(tmp_path: Path) -> None:
    found = {"throttled": True, "throttled_share": 0.67, "throttle_reasons": "power cap",
             "shared_gpu": True, "other_processes": 2, "loop_energy_joules": 2048.0,
             "loop_steps": 4}
    record = sampled(**found)
    for rank in record.ranks:
        rank.series[0].values[5] = 3.0
    suite = suite_of(tmp_path, record, ranks=2)
    table = report_steady.steady_table(suite)
    shown = {column.title: cell.text for column, cell in zip(table.columns, table.rows[0])}
    assert shown == {
        "Row": "124M 2 GPUs, plain DDP", "Repeats": "single run", "Steps, first to last": "steady",
        "Outliers": "1 of 20", "Most work of its own": "rank 1",
        "The others wait, ms a step": "300", "GPU held back": "67%", "By": "power cap",
        "Other processes on it": "2", "Power, W": "650", "Most, °C": "61", "J a step": "512.0",
        "Tokens a J": "2.0"}
    (said,) = report_stood_out_more.stragglers(suite)
    assert "rank 1 has the most work of its own, the others wait 300.00 ms a step" in said


def test_a_quiet_row_shows_nothing_it_does_not_know(tmp_path: Path) -> None:
    suite = suite_of(tmp_path, made_files.case(steps=21))
    table = report_steady.steady_table(suite)
    assert [column.title for column in table.columns] == [
        "Row", "Repeats", "Steps, first to last", "Outliers"]
    assert [cell.text for cell in table.rows[0]][1:] == ["single run", "steady", "0 of 20"]
    assert list(report_steady.unsteady(suite)) == list(report_steady.disturbed(suite)) == []


def test_drift_and_outliers_are_kept_in_mind(tmp_path: Path) -> None:
    record = made_files.case(steps=41)
    steps = [9.0] + [1 + 0.001 * step for step in range(40)]
    steps[20] = 5.0
    record.ranks[0].series[0].values[:] = steps
    said = list(report_steady.unsteady(suite_of(tmp_path, record)))
    assert len(said) == 2
    assert "is not steady: its steps became 3.8% slower" in said[0]
    assert said[1].startswith("1 of 40 steps are outliers, beyond 3 interquartile ranges")


@pytest.mark.parametrize("reasons, words", [
    ("power cap", "at its power limit in 67% of the samples (power cap), as is usual"),
    ("power cap, thermal slowdown (hardware)", "slowed down in 67% of the samples (power cap, th"),
])
def test_a_power_cap_alone_is_told_as_usual(tmp_path: Path, reasons: str, words: str) -> None:
    record = made_files.case()
    record.results |= {"throttled": True, "throttled_share": 0.67, "throttle_reasons": reasons}
    (said,) = report_steady.disturbed(suite_of(tmp_path, record))
    assert words in said
