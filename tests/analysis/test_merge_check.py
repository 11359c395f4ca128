"""trainsuite-results merge and check."""

import copy
from pathlib import Path

import numpy as np
import pytest

import results
import results_recheck
from made_files import case, repeats, run, write
from samples import tree, write_awkward


def test_merge_loses_nothing(tmp_path: Path, command) -> None:
    """Also texts beyond 64 KB, NaN, unequal ranks, other suites."""
    awkward, plain = str(tmp_path / "awkward.h5"), tmp_path / "plain.h5"
    write_awkward(awkward)
    write(plain, [case("124m-both")], run(planned=["124m-both"]))
    out = tmp_path / "out.h5"
    done = command("merge", awkward, plain, "--out", out)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout == f"{out}: 5 rows of 2 runs\n"
    merged = tree(str(out))
    for name, node in tree(awkward).items():
        if name not in ("@file_id", "@complete"):
            assert merged[name] == node, name
    moved = {"runs/0": "runs/1"}
    for name, node in tree(str(plain)).items():
        place = name.replace("runs/0", moved["runs/0"])
        if name not in ("@file_id", "@complete", "ddp/124m-both/0@run"):
            assert merged[place] == node, name
    loaded = results.load(str(out))
    assert loaded.case("124m-both").run == 1 and loaded.case("tiny-plain").run == 0
    assert not loaded.complete  # tiny-missing has no result


def test_pieces_of_an_array_become_repeats(tmp_path: Path, command) -> None:
    times = ((1.0,), (2.0, 2.5), (3.0,))
    pieces = [write(tmp_path / f"{index}.h5", repeats(seconds),
                    run(hosts=(f"node-{index}",), planned=["124m-plain"]))
              for index, seconds in enumerate(times)]
    out = tmp_path / "out.h5"
    assert command("merge", *pieces, "-o", out).returncode == 0
    loaded = results.load(str(out))
    assert [one.repeat for one in loaded.cases] == [0, 1, 2, 3]
    assert [one.run for one in loaded.cases] == [0, 1, 1, 2]
    assert [one.median("step_seconds") for one in loaded.cases] == [1, 2, 2.5, 3]
    assert [invocation.hosts[0]["host"] for invocation in loaded.runs] == \
        ["node-0", "node-1", "node-2"]
    assert loaded.complete


def test_merge_takes_what_a_killed_run_left(tmp_path: Path, command, monkeypatch) -> None:
    path = str(tmp_path / "a.h5")
    writer = results.ResultWriter(path, run())
    writer.append(case("124m-plain"))
    monkeypatch.setattr("results_writer.SMALL_FILE_BYTES", 1)
    for name in [f"124m-{number}" for number in range(12)]:
        writer.append(case(name))
    writer.append(case("124m-both"))
    assert list((tmp_path / "a.h5.parts").iterdir())
    out = tmp_path / "out.h5"
    done = command("merge", path, "-o", out)
    assert (done.returncode, done.stderr) == (0, "")
    assert len(results.load(str(out)).cases) == 14


@pytest.mark.parametrize("changes, invocation, words", [
    ({"implementation": "pytorch"}, run(), "implementation trainsuite and pytorch"),
    ({"vocabulary": 50257}, run(), "vocabulary 50304 and 50257"),
    ({"seconds": (1.0, 1.0)}, run(2), "number of ranks 1 and 2"),
    ({}, run(device="NVIDIA L40S"), "GPU NVIDIA H200 and NVIDIA L40S")])
def test_merge_refuses_other_work_of_one_name(tmp_path: Path, command, changes, invocation,
                                              words: str) -> None:
    a = write(tmp_path / "a.h5", [case()])
    b = write(tmp_path / "b.h5", [case(**changes)], invocation)
    done = command("merge", a, b, "-o", tmp_path / "out.h5")
    assert (done.returncode, done.stdout) == (2, "")
    assert words in done.stderr and a in done.stderr and b in done.stderr
    assert done.stderr.count("\n") == 1 and not (tmp_path / "out.h5").exists()


def test_merge_refuses_what_would_count_twice(tmp_path: Path, command) -> None:
    noisy = case()
    noisy.ranks[0].series[0].values = [9.0, 1.01, 1.02, 1.03]
    a = write(tmp_path / "a.h5", [noisy])
    b = write(tmp_path / "b.h5", [case()])
    out = tmp_path / "out.h5"
    done = command("merge", a, a, "-o", out)
    assert done.returncode == 2 and "is the same result file as" in done.stderr
    assert command("merge", a, b, "-o", out).returncode == 0
    done = command("merge", out, a, "-o", tmp_path / "more.h5")
    assert done.returncode == 2
    assert f"ddp/124m-plain/0 of {a} is also in {out}; it would count twice" in done.stderr
    done = command("merge", b, "-o", a)
    assert done.returncode == 2 and "is never overwritten" in done.stderr


def sound() -> results.CaseRecord:
    """Two ranks, unequal steps, figures that fit."""
    record = case("124m-plain", seconds=(1.0, 1.0), steps=6, train_seconds=14.2,
                  tokens_per_second=1024 / 1.03, global_batch=16, warmup=1)
    record.settings["steps"] = 5
    record.ranks[0].series[0].values = [9.0, 1.00, 1.01, 1.01, 1.03, 1.04]
    record.ranks[1].series[0].values = [9.0, 1.05, 1.02, 1.03, 1.01, 1.07]
    for rank in record.ranks:
        rank.series.append(results.RankSeries("host_seconds", "s", [9.0] + [1.0] * 5))
    return record


def test_check_agrees_with_sound_files(tmp_path: Path, command) -> None:
    done = command("check", write(tmp_path / "a.h5", [sound()], run(2)))
    assert (done.returncode, done.stderr) == (0, ""), done.stdout
    assert "all agree" in done.stdout and int(done.stdout.split(": ")[1].split()[0]) > 12


def wrong(name: str, value: float):
    """Changes a stored figure alone."""
    def change(record: results.CaseRecord) -> None:
        place = record.results if name in record.results else record.settings
        place[name] = value
    return change


def lose_a_rank(record: results.CaseRecord) -> None:
    record.ranks[1].rank = 7


def blow_up(record: results.CaseRecord) -> None:
    record.ranks[1].series[2].values[3] = float("nan")


def no_steps(record: results.CaseRecord) -> None:
    for rank in record.ranks:
        del rank.series[0]


@pytest.mark.parametrize("change, words", [
    (wrong("peak_allocated_bytes", 1 << 30),
     "peak_allocated_bytes is 1073741824, the raw steps give 2147483648"),
    (wrong("peak_reserved_bytes", 5 << 30),
     "peak_reserved_bytes (largest of the ranks) is 5368709120, the raw steps give 3221225472"),
    (wrong("tokens_per_second", 1000.0), "tokens_per_second is 1000, the raw steps give 994.17"),
    (wrong("train_seconds", 4.0), "train_seconds is 4, the raw steps give 14.2"),
    (wrong("first_step_seconds", 3.0), "first_step_seconds is 3, the raw steps give 9"),
    (wrong("global_batch", 8), "global_batch is 8, the raw steps give 16"),
    (wrong("steps", 4), "steps is 4, the raw steps give 5"),
    (wrong("warmup", 2), "warmup is 2, the raw steps give 1"),
    (lose_a_rank, "ranks [7] took part but are not among the run's"),
    (blow_up, "loss of rank 1 is nan at step 3"),
    (no_steps, "ok, but without a measured step")])
def test_check_says_where_a_file_is_inconsistent(tmp_path: Path, command, change, words: str
                                                 ) -> None:
    record = copy.deepcopy(sound())
    change(record)
    path = write(tmp_path / "a.h5", [record], run(2))
    done = command("check", path)
    assert done.returncode == 1, done.stdout
    assert f"{path}: ddp/124m-plain/0: " in done.stdout and words in done.stdout
    assert "inconsistenc" in done.stdout.splitlines()[-1]


def test_check_catches_wrong_arithmetic(tmp_path: Path, monkeypatch) -> None:
    """The recomputation is not that of the reader: a median of means would be seen."""
    path = write(tmp_path / "a.h5", [sound()], run(2))
    assert results_recheck.check(path) == 0
    monkeypatch.setattr(results.Case, "per_step", lambda self, name: np.nanmean(
        self.measured(name).astype(float), axis=0) if name in self.series else np.empty(0))
    assert results_recheck.check(path) == 1


def test_summary_counts_what_is_no_padding_in_fine_tuning(tmp_path: Path, command) -> None:
    record = case("1.5b-lora-4x4", suite="finetune", train_seconds=8.0, vocabulary=151936)
    done = command("summary", write(tmp_path / "a.h5", [record]))
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.splitlines()[1].split()[4] == "128"  # 4 steps of 256 tokens in 8 s
