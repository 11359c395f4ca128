"""Trends, outliers, stragglers and what telemetry says, against scipy and by hand."""

from __future__ import annotations

from pathlib import Path

import made_files
import numpy as np
import pytest
import results
from results_command import main
from results_steady import notes, outliers, paces, straggler, trend, within_loop
from scipy import stats


@pytest.mark.parametrize("seed", (1, 2, 3))
def test_trend_is_scipys(seed: int) -> None:
    values = np.random.default_rng(seed).normal(1, 0.1, 60) + np.linspace(0, 0.2, 60)
    found = trend(values)
    assert found.change == pytest.approx(stats.theilslopes(values).slope * 59 / np.median(values))
    tau = stats.kendalltau(np.arange(60), values, method="asymptotic")
    # scipy leaves the continuity correction out: S - 1 in place of S
    score = tau.statistic * 60 * 59 / 2
    z = stats.norm.isf(tau.pvalue / 2) * (abs(score) - 1) / abs(score)
    assert found.p_value == pytest.approx(2 * stats.norm.sf(z))


def test_trend_with_ties_and_few_values() -> None:
    assert trend(np.array([1.0] * 5 + [2.0] * 5)).p_value == pytest.approx(0.012186, abs=1e-6)
    assert trend(np.arange(1.0, 10)) is None
    assert trend(np.full(30, 2.0)).p_value == 1


def test_outliers_by_hand() -> None:
    assert outliers(np.arange(1.0, 10)) == (0, 0)
    assert outliers(np.array([1, 2, 3, 4, 5, 6, 7, 8, 9, 15])) == (0, 0)  # within 3 x 4.5 of 7.75
    assert outliers(np.array([1, 2, 3, 4, 5, 6, 7, 8, 19.1, 30, -9.1, 5, 5])) == (2, 1)
    assert outliers(np.empty(0)) == (0, 0)


def sampled_case(throttled: bool) -> results.CaseRecord:
    """Two ranks; the samples at 1 s and 2 s lie in the loop."""
    record = made_files.case(seconds=(1.0, 1.0), waiting=(0.4, 0.1))
    for rank in record.ranks:
        rank.facts |= {"telemetry_loop_begin_seconds": 0.9, "telemetry_loop_end_seconds": 2.5}
        rank.telemetry = [results.RankSeries("sample_seconds", "s", [0.0, 1.0, 2.0, 3.0]),
                          results.RankSeries("power_watts", "W", [1, 2, float("nan"), 4])]
    if throttled:
        record.results |= {"throttled": True, "throttled_share": 0.25, "shared_gpu": True,
                           "throttle_reasons": "power cap", "other_processes": 2,
                           "loop_energy_joules": 1024.0, "loop_steps": 3}
    return record


def test_rows_say_what_was_found(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = made_files.write(tmp_path / "a.h5", [sampled_case(True)])
    case = results.load(path).cases[0]
    assert [values.tolist() for values in within_loop(case, "power_watts")] == [[2], [2]]
    assert [(pace.rank, pace.busy, pace.wait) for pace in paces(case)] == [
        (0, pytest.approx(0.6), pytest.approx(0.4)), (1, pytest.approx(0.9), pytest.approx(0.1))]
    assert straggler(case) == (1, pytest.approx(0.3))
    text = "\n".join(notes(case))
    for part in ("at its power limit in 25% of the samples (power cap), as is usual",
                 "up to 2 other processes had contexts", "wait 300.00 ms a step for "
                 "rank 1", "341.3 J a step, 3.0 tokens a joule"):
        assert part in text
    assert main(["summary", path]) == 0
    assert "at its power limit in 25%" in capsys.readouterr().out
    assert main(["ranks", path]) == 0
    out = capsys.readouterr().out
    assert "rank 1 has the most work of its own; the others wait 300.000 ms" in out
    assert "900.000" in out


def test_a_straggler_is_late_by_the_mean_of_the_others(tmp_path: Path) -> None:
    record = made_files.case(seconds=(1.0, 1.0, 1.0), waiting=(0.4, 0.1, 0.7))
    case = results.load(made_files.write(tmp_path / "a.h5", [record])).cases[0]
    assert straggler(case) == (1, pytest.approx(0.9 - (0.6 + 0.3) / 2))


def test_energy_of_steps_that_differ_is_of_tokens_without_padding(tmp_path: Path) -> None:
    record = sampled_case(True)
    record.settings.pop("tokens_per_step", None)
    for rank, tokens in zip(record.ranks, ([99, 100, 200, 300], [99, 50, 60, 58])):
        rank.series = [one for one in rank.series if one.name != "effective_tokens"]
        rank.series.append(results.RankSeries("effective_tokens", "token", tokens))
    said = "\n".join(notes(results.load(made_files.write(tmp_path / "a.h5", [record])).cases[0]))
    assert "341.3 J a step, 0.8 tokens a joule" in said  # 768 tokens of the last 3 steps, 1024 J


def test_other_reasons_than_the_power_cap_are_throttling(tmp_path: Path) -> None:
    record = sampled_case(True)
    record.results |= {"throttle_reasons": "power cap, power brake", "other_processes": 1}
    said = notes(results.load(made_files.write(tmp_path / "a.h5", [record])).cases[0])
    assert "throttled in 25% of the samples: power cap, power brake" in said
    assert "the GPU was shared: up to 1 other process had a context on it" in said


def test_a_quiet_row_says_nothing(tmp_path: Path) -> None:
    path = made_files.write(tmp_path / "a.h5", [made_files.case(steps=20)])
    case = results.load(path).cases[0]
    assert notes(case) == [] and straggler(case) is None
    assert results.violations(results.load(path)) == []
