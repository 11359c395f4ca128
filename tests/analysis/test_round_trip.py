"""Files written from C++ and from Python hold the same tree and read back as what was recorded."""

import subprocess
from pathlib import Path

import numpy as np
import pytest

import results
import samples

MEBIBYTE = 1 << 20


@pytest.fixture(params=["c++", "c++ parts", "python"])
def awkward(request: pytest.FixtureRequest, tmp_path: Path, result_sample: str) -> str:
    """The same records, written thrice."""
    path = str(tmp_path / "awkward.h5")
    if request.param == "python":
        samples.write_awkward(path)
    else:
        small = 1000 if request.param == "c++ parts" else 8 * MEBIBYTE
        subprocess.run([result_sample, "awkward", path, str(small)], check=True, timeout=60)
    return path


def test_run_reads_back(awkward: str) -> None:
    read, wrote = results.load(awkward), samples.awkward_run()
    assert len(read.runs) == 1
    run = read.runs[0]
    assert (run.number, run.created_utc) == (0, wrote.created_utc)
    assert (run.argv, run.planned) == (wrote.argv, wrote.planned)
    assert run.attributes == wrote.attributes
    assert run.attributes["dry_run"] is True
    assert run.ranks == [vars(rank) for rank in wrote.ranks]
    assert run.hosts == [vars(host) for host in wrote.hosts]
    assert not read.complete
    assert read.missing() == ["tiny-missing"]


def test_case_scalars_read_back(awkward: str) -> None:
    read = results.load(awkward)
    assert [case.label for case in read.cases] == [
        "ddp/tiny-plain/0", "ddp/tiny-plain/1", "ddp/tiny-plain/2", "ddp/tiny-größe/0"]
    case, wrote = read.case("tiny-plain", 1), samples.plain_case(1)
    assert (case.status, case.reason, case.run) == ("ok", "", 0)
    settings = {**wrote.settings}
    assert np.isnan(case.settings.pop("unknown")) and np.isnan(settings.pop("unknown"))
    del settings["ranks"]  # the row's own attribute
    assert case.settings == settings
    assert case.settings["oversubscribe"] is False
    assert case.results == wrote.results
    assert case.checks == wrote.checks
    assert case.checks["replicas_equal"] is True
    failed = read.case("tiny-größe")
    assert (failed.status, failed.reason) == ("oom", samples.failed_case().reason)
    assert failed.series == {} and len(failed.ranks) == 0 and failed.checks == {}


def test_series_read_back(awkward: str) -> None:
    case = results.load(awkward).case("tiny-plain", 2)
    nan = np.nan
    assert case.ranks.tolist() == [0, 2]
    assert case.warmup.tolist() == [True, False, False, False]
    expected = {
        "step_seconds": ("s", np.float64, [[.125, .25, .375, .5], [250.125, 250.25, nan, nan]]),
        "loss": ("1", np.float64, [[1, 2, 3, 4], [nan] * 4]),
        "tokens": ("token", np.int64, [[1, 2, 3, 4], [2001, 2002, 2003, 2004]]),
        "allocated_peak_bytes": ("byte", np.float64, [
            [1e9, 2e9, 3e9, 4e9], [2001e9, 2002e9, 2003e9, nan]]),
        "odd_bytes": ("byte", np.float64, [[.5, 1, 1.5, 2], [nan] * 4]),
        "only_here_seconds": ("s", np.float64, [[nan] * 4, [2001, 2002, 2003, 2004]]),
    }
    assert case.series.keys() == expected.keys()
    for name, (unit, dtype, values) in expected.items():
        series = case.series[name]
        assert (series.unit, series.values.dtype) == (unit, dtype), name
        assert series.ranks.tolist() == [0, 2]
        np.testing.assert_array_equal(series.values, values, err_msg=name)


def test_rank_facts_read_back(awkward: str) -> None:
    facts = results.load(awkward).case("tiny-plain").facts
    assert facts.keys() == {"setup_seconds", "hash", "flag", "optimizer_bytes", "loop_steps"}
    assert facts["setup_seconds"].values.tolist() == [1.5, 2.5]
    assert facts["setup_seconds"].unit == "s"
    assert facts["optimizer_bytes"].values.tolist() == [8, 9]
    assert facts["optimizer_bytes"].values.dtype == np.int64
    assert facts["optimizer_bytes"].unit == "byte"
    assert facts["flag"].values.tolist() == [True, False]
    assert facts["hash"].values.tolist() == ["é", ""]
    np.testing.assert_array_equal(facts["loop_steps"].values, [3, np.nan])
    assert facts["hash"].ranks.tolist() == [0, 2]


def test_gpus_networks_and_telemetry_read_back(awkward: str) -> None:
    file, wrote = results.load(awkward), samples.awkward_run()
    run = file.runs[0]
    for name in ("gpus", "topology", "networks"):
        rows = [vars(one) for one in getattr(wrote, name)]
        assert len(getattr(run, name)) == len(rows)
        for read, row in zip(getattr(run, name), rows):
            np.testing.assert_equal(read, row)
    telemetry = file.case("tiny-plain").telemetry
    assert telemetry.keys() == {"sample_seconds", "power_watts"}
    assert telemetry["power_watts"].unit == "W"
    np.testing.assert_array_equal(telemetry["power_watts"].values,
                                  [[np.nan] * 2, [2001, 2002]])
    np.testing.assert_array_equal(telemetry["sample_seconds"].values,
                                  [[np.nan] * 3, [500.25, 500.5, 500.75]])


def test_cpp_and_python_write_the_same_tree(tmp_path: Path, result_sample: str) -> None:
    from_cpp, from_python = str(tmp_path / "cpp.h5"), str(tmp_path / "python.h5")
    subprocess.run([result_sample, "awkward", from_cpp, str(8 * MEBIBYTE)], check=True, timeout=60)
    samples.write_awkward(from_python)
    cpp, python = samples.tree(from_cpp), samples.tree(from_python)
    assert cpp.keys() == python.keys()
    for name in cpp:
        if name != "@file_id":  # random
            assert cpp[name] == python[name], name
    assert cpp["@file_id"][:3] == python["@file_id"][:3]
    assert cpp["@file_id"] != python["@file_id"]


def test_many_texts_are_a_dataset(tmp_path: Path) -> None:
    path = str(tmp_path / "many.h5")
    argv = [f"argument {index}" for index in range(5000)]
    results.ResultWriter(path, results.RunRecord("2026-01-02T03:04:05Z", argv=argv)).finish()
    assert samples.tree(path)["runs/0/argv"][0] == "dataset"
    assert results.load(path).runs[0].argv == argv


def test_beyond_eight_mebibytes_parts_are_joined(tmp_path: Path, result_sample: str) -> None:
    path = tmp_path / "large.h5"
    rows, steps = 40, 100_000
    subprocess.run([result_sample, "stream", path, str(8 * MEBIBYTE), str(rows), str(steps)],
                   check=True, timeout=120, stdout=subprocess.DEVNULL)
    assert path.stat().st_size > 24 * MEBIBYTE
    assert [entry.name for entry in tmp_path.iterdir()] == ["large.h5"]
    read = results.load(path)
    assert read.complete and len(read.cases) == rows
    for case in read.cases:
        expected = 1000 * case.repeat + np.arange(steps) + 1
        np.testing.assert_array_equal(case.series["loss"].values, [expected])
