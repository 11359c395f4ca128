"""The command trainsuite-results: tables, checks and its one-line errors."""

import copy
from pathlib import Path

import pytest

import results

STEPS = 4
GIB = 1 << 30
PHASES = {"data": 0.01, "forward": 0.3, "backward": 0.6, "exposed_sync": 0.05, "optimizer": 0.04}


def sound_case(name: str = "tiny-plain", repeat: int = 0) -> results.CaseRecord:
    """A row of two ranks in which every identity holds."""
    settings = {"implementation": "trainsuite", "micro_batch": 2, "accumulate": 3, "sequence": 64,
                "tokens_per_step": 768, "recipe": "plain", "seed": 1}
    facts = {"loop_seconds": 3.0, "loop_steps": 3, "weight_bytes_float32": GIB // 4,
             "optimizer_bytes": GIB // 2, "peak_allocated_bytes": 2 * GIB,
             "peak_reserved_bytes": 3 * GIB, "host_launch_seconds": 0.005,
             "first_step_seconds": 5.0}
    ranks = []
    for rank in range(2):
        series = [results.RankSeries(f"{phase}_seconds", "s", [seconds] * STEPS)
                  for phase, seconds in PHASES.items()]
        series += [results.RankSeries("step_seconds", "s", [5.0] + [1.0] * (STEPS - 1)),
                   results.RankSeries("loss", "1", [4.0, 3.0, 2.0, 1.0]),
                   results.RankSeries("tokens", "token", [384.0] * STEPS)]
        ranks.append(results.RankRecord(rank, series, dict(facts)))
    return results.CaseRecord("ddp", name, repeat, settings=settings, results=dict(facts),
                              warmup=[True] + [False] * (STEPS - 1), ranks=ranks)


def series_of(case: results.CaseRecord, name: str, rank: int = 0) -> results.RankSeries:
    """A rank's series of that name."""
    return next(series for series in case.ranks[rank].series if series.name == name)


def make_file(path: Path, *cases: results.CaseRecord, planned: tuple[str, ...] = ()) -> str:
    """A finished file of these rows."""
    run = results.RunRecord("2026-01-02T03:04:05Z", planned=list(planned))
    writer = results.ResultWriter(str(path), run)
    for case in cases:
        writer.append(case)
    writer.finish()
    return str(path)


def test_summary_holds_the_figures_of_several_files(tmp_path: Path, command) -> None:
    oom = results.CaseRecord("ddp", "tiny-both", status="oom", reason="rank 1: out of memory")
    other = sound_case()
    other.settings["implementation"] = "pytorch"
    for rank in (0, 1):
        series_of(other, "step_seconds", rank).values = [5.0, 2.0, 2.0, 2.0]
    a = make_file(tmp_path / "a.h5", sound_case(), oom, planned=("tiny-plain", "tiny-both"))
    b = make_file(tmp_path / "b.h5", other, planned=("tiny-plain", "tiny-gone"))
    done = command("summary", a, b)
    assert (done.returncode, done.stderr) == (0, "")
    lines = done.stdout.splitlines()
    assert lines[0].split("  ")[0] == "implementation"
    assert lines[1].split() == ["trainsuite", "tiny-plain", "0", "ok", "768",
                                "1,000.00..1,000.00", "50.00", "2.000", "3.000", "5.00", "5.00"]
    assert lines[2].split()[:5] == ["pytorch", "tiny-plain", "0", "ok", "384"]
    assert lines[3].split() == ["?", "tiny-both", "0", "oom"] + ["-"] * 7
    assert "ddp/tiny-both/0: oom: rank 1: out of memory" in lines
    assert f"{b} is not complete: no result of tiny-gone" in lines
    assert not any(line.startswith(a) for line in lines)


def test_summary_of_untimed_steps_is_of_the_loop(tmp_path: Path, command) -> None:
    plain, alone = sound_case(), sound_case("tiny-independent")
    alone.settings["recipe"] = "independent"
    for case in (plain, alone):
        for rank in case.ranks:
            rank.series = [one for one in rank.series if not one.name.endswith("_seconds")]
        case.ranks[0].facts["loop_seconds"] = 1.5  # 3 steps; the other rank's loop took 3 s
    unknown = copy.deepcopy(plain)
    unknown.repeat = 1
    del unknown.ranks[1].facts["loop_seconds"]
    path = make_file(tmp_path / "a.h5", plain, alone, unknown, sound_case("tiny-timed"),
                     planned=("tiny-plain", "tiny-independent", "tiny-timed"))
    done = command("summary", path)
    assert (done.returncode, done.stderr) == (0, "")
    lines = done.stdout.splitlines()
    cells = [line.split() for line in lines]
    assert cells[1][4:7] == ["768", "1,000.00", "-"]
    assert cells[2][2:6] == ["1", "ok", "-", "-"]
    assert cells[3][4:6] == [f"{384 / 0.5 + 384 / 1.0:,.0f}", "1,000.00"]
    assert cells[4][4:6] == ["768", "1,000.00..1,000.00"]
    assert lines[5].endswith(": ddp/tiny-plain/0, ddp/tiny-independent/0")
    assert "--instrumentation off" in lines[5]
    assert cells[7][1:8] == ["tiny-plain", "2", "of", "2", "single", "run", "768"]
    assert len(lines) == 10  # the table over repeats


def test_compare_gives_ratios_and_the_largest_loss_gap(tmp_path: Path, command) -> None:
    other = sound_case()
    other.settings |= {"implementation": "pytorch", "seed": 2}
    other.results |= {"peak_allocated_bytes": 4 * GIB, "host_launch_seconds": 0.01}
    for rank in (0, 1):
        series_of(other, "step_seconds", rank).values = [5.0, 2.0, 2.0, 2.0]
    series_of(other, "loss", 1).values = [4.0, 3.0, 2.25, 1.0]
    a = make_file(tmp_path / "a.h5", sound_case(), sound_case("tiny-only"))
    b = make_file(tmp_path / "b.h5", other)
    done = command("compare", a, b)
    assert (done.returncode, done.stderr) == (0, "")
    lines = done.stdout.splitlines()
    assert lines[:2] == [f"A = {a} (trainsuite)", f"B = {b} (pytorch)"]
    assert lines[3].split() == ["tiny-plain", "768", "384", "2.000", "0.500", "1.000", "0.500",
                                "0.25"]
    assert lines[4] == "tiny-plain: seed differs: 1 and 2"
    assert len(lines) == 5


def test_compare_says_when_nothing_is_common(tmp_path: Path, command) -> None:
    a = make_file(tmp_path / "a.h5", sound_case())
    b = make_file(tmp_path / "b.h5", sound_case("tiny-other"))
    done = command("compare", a, b)
    assert done.returncode == 1
    assert "no case is ok in both files" in done.stdout


def test_verify_finds_nothing_in_a_sound_file(tmp_path: Path, command) -> None:
    done = command("verify", make_file(tmp_path / "a.h5", sound_case(), sound_case(repeat=1)))
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.endswith("all identities hold\n")


def forget_accumulation(case: results.CaseRecord) -> None:
    case.settings["tokens_per_step"] = 256


def forget_ranks_in_the_rate(case: results.CaseRecord) -> None:
    case.results["tokens_per_second"] = 384.0


def lose_tokens(case: results.CaseRecord) -> None:
    series_of(case, "tokens", 1).values[2] = 128.0


def lose_a_phase(case: results.CaseRecord) -> None:
    series_of(case, "backward_seconds", 1).values = [0.57] * STEPS


def read_the_clock_early(case: results.CaseRecord) -> None:
    case.ranks[1].facts["loop_seconds"] = 3.1


def reset_live_bytes(case: results.CaseRecord) -> None:
    case.ranks[0].facts["peak_allocated_bytes"] = GIB // 2


def swap_peaks(case: results.CaseRecord) -> None:
    case.ranks[0].facts["peak_reserved_bytes"] = GIB


def forget_a_unit(case: results.CaseRecord) -> None:
    series_of(case, "loss").unit = ""


def shorten_warmup(case: results.CaseRecord) -> None:
    case.warmup = case.warmup[:-1]


def run_backwards(case: results.CaseRecord) -> None:
    series_of(case, "data_seconds").values[0] = -0.01


@pytest.mark.parametrize("fault, words", [
    (forget_accumulation, "tokens_per_step is 256, micro_batch x accumulate x sequence x ranks "
                          "is 2 x 3 x 64 x 2 = 768"),
    (forget_ranks_in_the_rate, "tokens/s x step time is 384.0"),
    (lose_tokens, "tokens over all ranks are 512 to 768 a step"),
    (lose_a_phase, "rank 1: phases add up to 0.970000 s of a step of 1.000000 s (-3.0%"),
    (read_the_clock_early, "rank 1: 3 steps add up to 3.000000 s, their loop took 3.100000 s"),
    (reset_live_bytes, "rank 0: peak_allocated_bytes 536870912 is less than "
                       "weight_bytes_float32 268435456 + optimizer_bytes 536870912"),
    (swap_peaks, "rank 0: peak_allocated_bytes 2147483648 exceeds peak_reserved_bytes 1073741824"),
    (forget_a_unit, "loss has the unit ''"),
    (shorten_warmup, "has 4 steps, warmup 3"),
    (run_backwards, "data_seconds holds negative times"),
])
def test_verify_names_each_violation(tmp_path: Path, command, fault, words: str) -> None:
    case = copy.deepcopy(sound_case())
    fault(case)
    done = command("verify", make_file(tmp_path / "a.h5", case))
    assert done.returncode == 1
    assert words in done.stdout
    assert "ddp/tiny-plain/0: " in done.stdout
    assert all(line.startswith(str(tmp_path)) for line in done.stdout.splitlines())


def interrupt_ranks(case: results.CaseRecord) -> None:
    """The system takes a core away: of rank 1 within two of three steps, of rank 0 after the last."""
    series_of(case, "backward_seconds", 1).values = [0.6, 0.57, 0.57, 0.6]
    for name in ("step", *PHASES):
        values = series_of(case, f"{name}_seconds").values
        values[1:] = [value / 10 for value in values[1:]]
    case.ranks[0].facts["loop_seconds"] = 0.3 + 0.015


@pytest.mark.parametrize("dry_run, status", [(True, 0), (False, 1)])
def test_verify_forgives_interruptions_of_dry_runs_alone(
    tmp_path: Path, command, dry_run: bool, status: int
) -> None:
    case = copy.deepcopy(sound_case())
    interrupt_ranks(case)
    case.settings["dry_run"] = dry_run
    done = command("verify", make_file(tmp_path / "a.h5", case))
    assert done.returncode == status, done.stdout
    if not dry_run:
        assert "rank 0: 3 steps add up" in done.stdout and "rank 1: phases add up" in done.stdout


def test_errors_are_one_line_and_exit_2(tmp_path: Path, command) -> None:
    (tmp_path / "text.h5").write_text("hello")
    sound = make_file(tmp_path / "a.h5", sound_case())
    for arguments in (["summary", tmp_path / "none.h5"], ["verify", tmp_path / "text.h5"],
                      ["compare", sound, tmp_path / "none.h5"], ["join", tmp_path / "text.h5"],
                      ["summary", tmp_path]):
        done = command(*arguments)
        assert done.returncode == 2
        assert done.stdout == ""
        assert done.stderr.startswith("trainsuite-results: ") and done.stderr.count("\n") == 1
        assert str(arguments[-1]) in done.stderr
    assert command("sumary", sound).returncode == 2


def test_join_joins_parts_and_completes(tmp_path: Path, command, monkeypatch) -> None:
    path = str(tmp_path / "a.h5")
    writer = results.ResultWriter(path, results.RunRecord("2026-01-02T03:04:05Z",
                                                          planned=["tiny-plain"]))
    for repeat in range(12):
        if repeat == 10:
            monkeypatch.setattr("results_writer.SMALL_FILE_BYTES", 1)
        writer.append(sound_case(repeat=repeat))
    assert len(list((tmp_path / "a.h5.parts").iterdir())) == 2
    (tmp_path / ".a.h5.77.0123.tmp").write_bytes(b"half")
    (tmp_path / "a.h5.parts" / ".2.h5.77.0123.tmp").write_bytes(b"half")
    done = command("join", path)
    assert (done.returncode, done.stdout) == (0, f"{path}: 2 part files joined\n")
    assert [entry.name for entry in tmp_path.iterdir()] == ["a.h5"]
    read = results.load(path)
    assert read.complete and len(read.cases) == 12
