"""The reader refuses what it cannot read, in words, and computes what it promises."""

import resource
import shutil
from pathlib import Path

import h5py
import numpy as np
import pytest

import results
import results_durable
import samples


def make_file(path: Path, *cases: results.CaseRecord, planned: tuple[str, ...] = ()) -> str:
    """A finished file of these rows."""
    run = results.RunRecord("2026-01-02T03:04:05Z", planned=list(planned))
    writer = results.ResultWriter(str(path), run)
    for case in cases:
        writer.append(case)
    writer.finish()
    return str(path)


def timed(name: str, *seconds: list[float], warmup: int = 0, **settings) -> results.CaseRecord:
    """A row of ranks 0, 1, ... with these step times."""
    ranks = [results.RankRecord(rank, [results.RankSeries("step_seconds", "s", own)])
             for rank, own in enumerate(seconds)]
    flags = [step < warmup for step in range(max(map(len, seconds)))]
    return results.CaseRecord("ddp", name, settings=settings, warmup=flags, ranks=ranks)


@pytest.mark.parametrize("change, words", [
    ({"schema_version": np.int64(2)}, "has schema version 2, this program reads version 1"),
    ({"schema_version": None}, "has schema version None"),
    ({"schema": "another"}, "is not a trainsuite result file"),
    ({"schema": None}, "is not a trainsuite result file"),
])
def test_foreign_schemas_are_refused(tmp_path: Path, change: dict, words: str) -> None:
    path = make_file(tmp_path / "a.h5")
    with h5py.File(path, "r+") as file:
        for name, value in change.items():
            del file.attrs[name]
            if value is not None:
                file.attrs[name] = value
    with pytest.raises(results.ResultError, match=words) as caught:
        results.load(path)
    assert path in str(caught.value) and "\n" not in str(caught.value)


def test_what_is_no_result_file_is_refused(tmp_path: Path) -> None:
    (tmp_path / "text.h5").write_text("step,loss\n")
    (tmp_path / "empty.h5").write_bytes(b"")
    whole = Path(make_file(tmp_path / "whole.h5", samples.plain_case(0))).read_bytes()
    (tmp_path / "torn.h5").write_bytes(whole[:len(whole) // 2])
    for name, words in [("text.h5", "is not an HDF5 file"), ("empty.h5", "is not an HDF5 file"),
                        ("torn.h5", "damaged"), ("none.h5", "No such file"), (".", "folder")]:
        with pytest.raises(results.ResultError, match=words):
            results.load(tmp_path / name)


def test_a_row_without_its_status_is_named(tmp_path: Path) -> None:
    path = make_file(tmp_path / "a.h5", samples.failed_case())
    with h5py.File(path, "r+") as file:
        del file["ddp/tiny-größe/0"].attrs["status"]
    with pytest.raises(results.ResultError, match="ddp/tiny-größe/0 lacks its attribute status"):
        results.load(path)


def test_a_file_that_this_process_has_open_is_read(tmp_path: Path) -> None:
    path = make_file(tmp_path / "a.h5", samples.plain_case(0))
    with h5py.File(path, "r"):
        assert results.load(path).cases


def test_parts_of_another_file_are_refused(tmp_path: Path) -> None:
    path = make_file(tmp_path / "a.h5")
    parts = tmp_path / "a.h5.parts"
    parts.mkdir()
    make_file(parts / "0.h5", samples.failed_case())
    with pytest.raises(results.ResultError, match="0.h5 belongs to another result file"):
        results.load(path)


def test_cases_come_in_the_order_of_the_plan(tmp_path: Path) -> None:
    path = make_file(tmp_path / "a.h5", timed("b", [1.0]), timed("a", [1.0]), timed("extra", [1.0]),
                     planned=("b", "a"))
    read = results.load(path)
    assert [case.name for case in read.cases] == ["b", "a", "extra"]
    assert read.complete
    with pytest.raises(KeyError):
        read.case("b", repeat=1)


def test_statistics_take_the_slowest_rank_and_drop_warmup(tmp_path: Path) -> None:
    path = make_file(tmp_path / "a.h5",
                     timed("a", [90, 1, 5, 1], [80, 2, 2], warmup=1, tokens_per_step=64))
    case = results.load(path).case("a")
    np.testing.assert_array_equal(case.measured("step_seconds"), [[1, 5, 1], [2, 2, np.nan]])
    assert case.per_step("step_seconds").tolist() == [2, 5, 1]
    assert (case.median("step_seconds"), case.p10("step_seconds"), case.p90("step_seconds")) == (
        2, pytest.approx(1.2), pytest.approx(4.4))
    assert case.tokens_per_second() == 32
    assert case.median("loss") is None
    with pytest.raises(KeyError):
        case.measured("loss")


def test_tokens_add_up_over_ranks_and_losses_are_means(tmp_path: Path) -> None:
    record = timed("a", [1.0, 1.0], [1.0, 1.0])
    for rank, loss in zip(record.ranks, ([1, 2], [3, 6])):
        rank.series += [results.RankSeries("loss", "1", loss),
                        results.RankSeries("tokens", "token", [10, 20]),
                        results.RankSeries("allocated_peak_bytes", "byte", loss)]
    case = results.load(make_file(tmp_path / "a.h5", record)).case("a")
    assert case.per_step("loss").tolist() == [2, 4]
    assert case.per_step("tokens").tolist() == [20, 40]
    assert case.per_step("allocated_peak_bytes").tolist() == [3, 6]


def test_independent_ranks_add_their_own_rates(tmp_path: Path) -> None:
    record = timed("a", [1.0, 2.0, 12.0], [4.0, 4.0, 9.0], recipe="independent", tokens_per_step=64)
    read = results.load(make_file(tmp_path / "a.h5", record))
    assert read.case("a").tokens_per_second() == 32 / 2 + 32 / 4
    record.ranks[0].series.append(results.RankSeries("tokens", "token", [10, 10, 70]))
    read = results.load(make_file(tmp_path / "b.h5", record))
    assert read.case("a").tokens_per_second() == 10 / 2 + 32 / 4
    record.ranks[1].series.clear()
    read = results.load(make_file(tmp_path / "c.h5", record))
    assert read.case("a").tokens_per_second() is None


def test_the_writer_refuses_what_the_schema_cannot_hold(tmp_path: Path) -> None:
    path = tmp_path / "a.h5"
    writer = results.ResultWriter(str(path), results.RunRecord("2026-01-02T03:04:05Z"))
    writer.append(timed("a", [1.0]))
    for record, words in [
            (timed("a", [1.0]), "ddp/a/0 is already recorded"),
            (timed("a/b", [1.0]), "'a/b' cannot name"),
            (timed("b", [1.0], odd=[1, 2]), "'odd' is a list"),
            (results.CaseRecord("ddp", "b", status="fine"), "status 'fine' is none of")]:
        with pytest.raises(results.ResultError, match=words):
            writer.append(record)
    writer.append(timed("b", [1.0]))  # and goes on
    for taken, words in [(path, "exists and is never overwritten"),
                         (tmp_path / "no" / "b.h5", "no' does not exist")]:
        with pytest.raises(results.ResultError, match=words):
            results.ResultWriter(str(taken), results.RunRecord("2026-01-02T03:04:05Z"))
    writer.finish()
    assert [case.name for case in results.load(path).cases] == ["a", "b"]


def test_the_writer_leaves_another_runs_file_alone(tmp_path: Path) -> None:
    path = tmp_path / "a.h5"
    writer = results.ResultWriter(str(path), results.RunRecord("2026-01-02T03:04:05Z"))
    path.unlink()
    make_file(path, timed("theirs", [1.0]))
    with pytest.raises(results.ResultError, match="replaced by another program"):
        writer.append(timed("ours", [1.0]))
    assert [case.name for case in results.load(path).cases] == ["theirs"]


def parts_writer(path: Path, monkeypatch: pytest.MonkeyPatch) -> results.ResultWriter:
    """A writer with six rows in its main file and the next ones in parts."""
    writer = results.ResultWriter(str(path), results.RunRecord("2026-01-02T03:04:05Z"))
    for repeat in range(6):
        writer.append(samples.plain_case(repeat))
    monkeypatch.setattr("results_writer.SMALL_FILE_BYTES", 1)
    return writer


def test_parts_left_after_their_join_are_not_read_twice(tmp_path: Path, monkeypatch) -> None:
    path = tmp_path / "a.h5"
    writer = parts_writer(path, monkeypatch)
    writer.append(samples.plain_case(6))
    shutil.copytree(tmp_path / "a.h5.parts", tmp_path / "kept")
    with pytest.raises(results.ResultError, match="ddp/tiny-plain/6 is already recorded"):
        writer.append(samples.plain_case(6))
    writer.finish()
    shutil.copytree(tmp_path / "kept", tmp_path / "a.h5.parts")  # as a kill at that moment
    assert [case.repeat for case in results.load(path).cases] == list(range(7))
    results.join_file(str(path))
    assert [case.repeat for case in results.load(path).cases] == list(range(7))
    assert not (tmp_path / "a.h5.parts").exists()


def test_file_systems_without_hard_links_serve(tmp_path: Path, monkeypatch) -> None:
    def refuse(*_: object) -> None:
        raise PermissionError(1, "Operation not permitted")

    monkeypatch.setattr("os.link", refuse)
    path = make_file(tmp_path / "a.h5", timed("a", [1.0]))
    assert [case.name for case in results.load(path).cases] == ["a"]
    assert [entry.name for entry in tmp_path.iterdir()] == ["a.h5"]
    assert results_durable.create_exclusively(str(tmp_path / "b"), b"mine")
    assert (tmp_path / "b").read_bytes() == b"mine"
    assert not results_durable.create_exclusively(str(tmp_path / "b"), b"other")
    assert (tmp_path / "b").read_bytes() == b"mine"


def test_a_full_disk_keeps_every_row(tmp_path: Path, monkeypatch) -> None:
    path = tmp_path / "a.h5"
    writer = parts_writer(path, monkeypatch)
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    try:  # parts still fit, the joined file does not
        resource.setrlimit(resource.RLIMIT_FSIZE, (path.stat().st_size - 1, hard))
        for repeat in range(6, 12):
            writer.append(samples.plain_case(repeat))
        large = timed("large", [1.0] * 1_000_000)
        with pytest.raises(results.ResultError, match="cannot write .*parts/6.h5: File too large"):
            writer.append(large)
        with pytest.raises(results.ResultError, match="trainsuite-results join"):
            writer.finish()
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert [case.repeat for case in results.load(path).cases] == list(range(12))
    writer.finish()
    assert [case.repeat for case in results.load(path).cases] == list(range(12))
    assert [entry.name for entry in tmp_path.iterdir()] == ["a.h5"]


def test_a_case_that_a_run_was_stopped_in_lacks_its_result(tmp_path: Path) -> None:
    stopped = results.CaseRecord("ddp", "tiny-a", status="skipped", reason="SIGTERM",
                                 results={"stopped": True})
    path = make_file(tmp_path / "a.h5", stopped, timed("tiny-b", [1.0]),
                     planned=("tiny-a", "tiny-b"))
    assert results.load(path).missing() == ["tiny-a"]
