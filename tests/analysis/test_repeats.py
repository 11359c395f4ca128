"""Intervals over repeats: against scipy's own bootstrap and t, and against the C++ summary."""

from __future__ import annotations

import json
import math
import os
import subprocess
from pathlib import Path

import made_files
import numpy as np
import pytest
import results
from results_command import main
from results_repeats import over_repeats, resampled_medians
from scipy import stats

TEN = [12, 1, 2, 30, 4, 50, 6.5, 7, 8, 9.0]


def test_t_interval_is_scipys() -> None:
    values = [101.0, 99, 104, 100]
    logs = np.log(values)
    low, high = stats.t.interval(0.95, 3, logs.mean(), stats.sem(logs))
    found = over_repeats(values)
    assert found.low == pytest.approx(math.exp(low)) and found.high == pytest.approx(math.exp(high))
    assert found.median == 100.5 and found.method == "t on logarithms"


@pytest.mark.parametrize("values", (TEN, [*TEN, 11], [1.0] * 7 + [5] * 5))
def test_the_distribution_of_resampled_medians(values: list[float]) -> None:
    """200,000 resamples drawn with a fixed seed; a share's standard error is below 0.0012."""
    drawn = np.random.default_rng(1).choice(values, size=(200_000, len(values)))
    medians = np.median(drawn, axis=1)
    found, weights = resampled_medians(np.sort(values))
    assert weights.sum() == pytest.approx(1) and weights.min() > -1e-12
    for point in np.unique(found):
        assert weights[found <= point].sum() == pytest.approx((medians <= point).mean(), abs=0.005)


def test_bootstrap_is_scipys() -> None:
    found = over_repeats(TEN)
    theirs = stats.bootstrap((TEN,), np.median, n_resamples=50_000, method="percentile",
                             rng=np.random.default_rng(3)).confidence_interval
    assert found.low == pytest.approx(theirs.low) and found.high == pytest.approx(theirs.high)


@pytest.mark.parametrize("values", ([], [1, 0], [1, -2], [math.nan, 1], [math.inf]))
def test_what_is_no_rate_is_refused(values: list[float]) -> None:
    with pytest.raises(ValueError):
        over_repeats(values)


def test_summary_of_repeats(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    one = made_files.write(tmp_path / "one.h5", made_files.repeats([1.0]))
    assert main(["summary", one]) == 0
    assert "single run" in capsys.readouterr().out
    rows = made_files.repeats([1.0, 2.0, 4.0])
    rows.append(made_files.case("124m-plain", 3, status="oom"))
    many = made_files.write(tmp_path / "many.h5", rows)
    assert main(["summary", many]) == 0
    line = next(line for line in capsys.readouterr().out.splitlines() if "3 of 4" in line)
    rate = over_repeats([512, 256, 128])
    assert f"{rate.low:,.0f}..{rate.high:,.0f}" in line and " 256 " in line and "2,000.00" in line


def test_the_program_and_python_agree(tmp_path: Path) -> None:
    """A real run of three shuffled rounds: both summaries from the same raw steps."""
    out = tmp_path / "run.h5"
    ended = subprocess.run(
        [os.environ["TRAINSUITE_BINARY"], "ddp", "--case", "1gpu*", "--repeats", "3", "--steps",
         "3", "--warmup", "1", "--json", "--out", str(out)],
        env=os.environ | {"CUDA_VISIBLE_DEVICES": "", "OMP_NUM_THREADS": "1"}, text=True, capture_output=True, timeout=120,
        check=True)
    summary = json.loads(ended.stdout)
    file = results.load(str(out))
    assert [entry["case"] for entry in summary["over_repeats"]] == ["tiny-1gpu",
                                                                    "tiny-1gpu-accumulate4"]
    for entry in summary["over_repeats"]:
        rows = [file.case(entry["case"], repeat) for repeat in range(3)]
        mine = over_repeats([row.tokens_per_second() for row in rows])
        theirs = entry["tokens_per_second"]
        assert [theirs["median"], theirs["low"], theirs["high"]] == pytest.approx(
            [mine.median, mine.low, mine.high])
        assert theirs["method"] == mine.method
    turns = sorted((row.value("turn"), row.repeat, row.name) for row in file.cases)
    assert [turn for turn, _, _ in turns] == list(range(6))
    assert [repeat for _, repeat, _ in turns] == [0, 0, 1, 1, 2, 2], "rounds follow one another"
