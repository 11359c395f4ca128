"""trainsuite-compare: intervals over repeats, words, exit codes, acceptance, published rows."""

import contextlib
import io
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from scipy import stats

import compare
import compare_statistics
from made_files import case, repeats, run, write

PROGRAM = Path(compare.__file__)
STEADY = (1.00, 1.01, 0.99, 1.00)


def compared(*arguments: object) -> subprocess.CompletedProcess:
    """What trainsuite-compare does with these arguments, in this process."""
    out, errors = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(errors):
        try:
            status = compare.main([str(argument) for argument in arguments])
        except SystemExit as end:
            status = int(end.code)
    return subprocess.CompletedProcess(arguments, status, out.getvalue(), errors.getvalue())


def test_the_interval_is_welchs() -> None:
    a, b = [100.0, 104.0, 99.0], [111.0, 113.0, 108.0, 110.0, 119.0]
    found = compare_statistics.ratio(a, b, 0.9)
    peer = stats.ttest_ind(np.log(b), np.log(a), equal_var=False).confidence_interval(0.9)
    assert (found.low, found.high) == pytest.approx((np.exp(peer.low), np.exp(peer.high)))
    assert found.value == pytest.approx(stats.gmean(b) / stats.gmean(a))
    assert found.verdict == "faster"
    back = compare_statistics.ratio(b, a, 0.9)
    assert (back.low, back.high) == pytest.approx((1 / found.high, 1 / found.low))
    assert back.verdict == "slower"


def test_equal_programs_are_seldom_told_apart() -> None:
    """Runs differ by 3% and their steps by far less: a test over steps would nearly always see a
    difference; over runs it errs in about 5 of 100 comparisons."""
    random = np.random.default_rng(1)
    rates = np.exp(random.normal(0, 0.03, size=(400, 2, 5)))
    wrong = sum(compare_statistics.ratio(a, b).verdict != "tie" for a, b in rates)
    assert 4 <= wrong <= 40
    apart = sum(compare_statistics.ratio(a, 1.2 * b).verdict == "faster" for a, b in rates)
    assert apart > 390


def test_runs_without_spread_and_without_sense() -> None:
    same = compare_statistics.ratio([2.0, 2.0], [2.0, 2.0])
    assert (same.low, same.high, same.verdict) == (1.0, 1.0, "tie")
    assert compare_statistics.ratio([2.0], [4.0, 4.0]).verdict == "single run"
    for bad in ([], [0.0], [float("nan")], [float("inf")]):
        with pytest.raises(ValueError, match="positive rates"):
            compare_statistics.ratio([1.0], bad)


@pytest.mark.parametrize("factor, verdict, words", [
    (1.0, "tie", "tie: the interval holds 1"),
    (0.5, "faster", "faster: tokens/s of B are 100.0% above A's"),
    (2.0, "slower", "slower: tokens/s of B are 50.0% below A's")])
def test_words_of_a_comparison(tmp_path: Path, factor: float, verdict: str, words: str) -> None:
    a = write(tmp_path / "a.h5", repeats(STEADY))
    b = write(tmp_path / "b.h5", repeats([factor * value for value in STEADY],
                                         peak_allocated_bytes=5 << 29, implementation="pytorch"),
              run(device="NVIDIA H100 PCIe", torch_version="2.12"))
    done = compared(a, b)
    assert (done.returncode, done.stderr) == (0, "")
    lines = done.stdout.splitlines()
    assert lines[0].endswith(a) and lines[1].endswith(b)
    row = lines[3].split()
    assert row[:6] == ["124m-plain", "4,", "4", "512", f"{512 / factor:,.0f}", f"{1 / factor:.3f}"]
    assert row[7] == verdict
    assert row[8:10] == ["2.000", "+0.500"]
    assert f"124m-plain: {words}" in lines
    assert "implementation differs: trainsuite in A, pytorch in B" in lines
    assert "GPUs differs: 1x H200 in A, 1x H100 PCIe in B" in lines
    assert "torch_version differs: 2.11.0+cu130 in A, 2.12 in B" in lines


def test_a_single_run_says_only_that(tmp_path: Path) -> None:
    a = write(tmp_path / "a.h5", [case()])
    b = write(tmp_path / "b.h5", [case(seconds=[2.0])])
    done = compared(a, b, "--fail-if-slower", "5%")
    assert done.returncode == 3
    assert "single run (1 of A, 1 of B): no test" in done.stdout
    assert "a single run cannot tell" in done.stdout
    assert "slower:" not in done.stdout and ".." not in done.stdout.splitlines()[3]


@pytest.mark.parametrize("seconds, limit, status, words", [
    (STEADY, "5%", 0, "passed, not slower by more than 5.0%"),
    ([1.5 * value for value in STEADY], "5%", 1, "FAILED, slower by more than 5.0%"),
    ([1.5 * value for value in STEADY], "0.5", 0, "passed"),
    ((0.8, 1.3, 0.9, 1.2), "5%", 3, "cannot tell, the interval"),
    ((1.0, 1.5, 1.1, 1.4), "5%", 3, "cannot tell, the interval"),  # 20% slower, perhaps
    ([0.5 * value for value in STEADY], "0%", 0, "passed")])
def test_exit_codes_of_fail_if_slower(tmp_path: Path, seconds, limit: str, status: int,
                                      words: str) -> None:
    a = write(tmp_path / "a.h5", repeats(STEADY))
    b = write(tmp_path / "b.h5", repeats(seconds))
    done = compared(a, b, "--fail-if-slower", limit)
    assert (done.returncode, done.stderr) == (status, "")
    assert words in done.stdout


def test_dry_runs_are_named(tmp_path: Path) -> None:
    a = write(tmp_path / "a.h5", repeats(STEADY, "tiny-plain", dry_run=True))
    assert "tiny-plain: tie: the interval holds 1; dry run: no measurement of a real model" in \
        compared(a, a).stdout


def test_what_is_lost_or_missing_in_b(tmp_path: Path) -> None:
    a = write(tmp_path / "a.h5", repeats(STEADY) + repeats(STEADY, "124m-both"))
    oom = write(tmp_path / "oom.h5", repeats(STEADY) + [case("124m-both", status="oom")])
    gone = write(tmp_path / "gone.h5", repeats(STEADY))
    done = compared(a, oom, "--fail-if-slower", "5%")
    assert done.returncode == 1
    assert "124m-both: ok in A, oom (rank 0: out of memory) in B" in done.stdout
    assert "124m-both: FAILED, ok in A but not in B" in done.stdout
    done = compared(a, gone, "--fail-if-slower", "5%")
    assert done.returncode == 3
    assert "124m-both: ok in A, absent in B" in done.stdout
    done = compared(a, write(tmp_path / "other.h5", [case("124m-bf16")]))
    assert done.returncode == 3 and "no case is ok in both files" in done.stdout


def test_a_run_cut_short_is_named(tmp_path: Path) -> None:
    a = write(tmp_path / "a.h5", [case()], run(planned=["124m-plain", "124m-both"]))
    b = write(tmp_path / "b.h5", [case()], run(planned=["124m-plain"]))
    done = compared(a, b)
    assert "A is not complete: no result of 124m-both" in done.stdout
    assert "B is not complete" not in done.stdout


def test_other_work_gets_no_verdict(tmp_path: Path) -> None:
    a = write(tmp_path / "a.h5", repeats(STEADY))
    b = write(tmp_path / "b.h5", repeats([3 * value for value in STEADY], vocabulary=50257))
    done = compared(a, b, "--fail-if-slower", "5%")
    assert done.returncode == 3
    assert "124m-plain: other work, no verdict: vocabulary 50304 and 50257" in done.stdout
    assert "slower:" not in done.stdout


def two_nodes(path: Path, seconds, waiting=(0.0,) * 4, **changes) -> str:
    """Four ranks on two hosts, two repeats."""
    return write(path, [case(repeat=repeat, seconds=seconds, waiting=waiting, **changes)
                        for repeat in range(2)], run(2, ("node-a", "node-b")))


def test_acceptance_names_the_slow_gpu_not_those_that_wait(tmp_path: Path) -> None:
    reference = two_nodes(tmp_path / "reference.h5", (1.0, 1.0, 1.0, 1.0))
    slow = two_nodes(tmp_path / "slow.h5", (1.5, 1.5, 1.5, 1.5), (0.5, 0.5, 0.02, 0.5))
    done = compared("--expect", reference, slow)
    assert done.returncode == 1
    (line,) = done.stdout.splitlines()
    assert line.startswith("FAILED host node-b, GPU 0 (H200, GPU-10000000-")
    assert "124m-plain: its own part of a step takes 1,480.00 ms" in line
    assert compared("--expect", reference, slow, "--tolerance", "40%").returncode == 0
    done = compared("--expect", reference, slow, reference)
    assert done.returncode == 1 and "accepted" in done.stdout


def test_acceptance_when_all_wait_longer(tmp_path: Path) -> None:
    reference = two_nodes(tmp_path / "reference.h5", (1.0,) * 4)
    link = two_nodes(tmp_path / "link.h5", (1.5,) * 4, (0.5,) * 4)
    done = compared("--expect", reference, link)
    assert done.returncode == 1
    assert "hosts node-a, node-b, all GPUs alike" in done.stdout
    assert "33.3% below the reference's 2,048" in done.stdout


def test_acceptance_of_failures_checks_and_other_work(tmp_path: Path) -> None:
    reference = two_nodes(tmp_path / "reference.h5", (1.0,) * 4)
    oom = write(tmp_path / "oom.h5", [case(seconds=(1.0,) * 4, status="oom")],
                run(2, ("node-a", "node-b")))
    done = compared("--expect", reference, oom)
    assert done.returncode == 1
    (line,) = done.stdout.splitlines()  # of the rank that the reason names
    assert line.startswith("FAILED host node-b, GPU 1 (H200, GPU-11000000")
    assert line.endswith("124m-plain: oom: rank 3: out of memory")
    checked = [case(repeat=repeat, seconds=(1.0,) * 4) for repeat in range(2)]
    checked[1].checks = {"replicas_equal": False}
    done = compared("--expect", reference, write(tmp_path / "c.h5", checked,
                                                 run(2, ("node-a", "node-b"))))
    assert done.returncode == 1 and "its check 'replicas_equal' failed" in done.stdout
    other = two_nodes(tmp_path / "other.h5", (9.0,) * 4, vocabulary=512)
    done = compared("--expect", reference, other)
    assert done.returncode == 3 and "vocabulary 50304 and 512" in done.stdout


def test_acceptance_sees_a_missing_gpu(tmp_path: Path) -> None:
    reference = two_nodes(tmp_path / "reference.h5", (1.0,) * 4)
    three = write(tmp_path / "three.h5", [case(seconds=(1.0,) * 3)], run(3, ("node-c",)))
    done = compared("--expect", reference, three)
    assert done.returncode == 1
    assert done.stdout == "FAILED host node-c (CPU X): 124m-plain: 3 GPUs took part, 4 in the " \
        "reference\n"


def test_against_published_sets_beside_and_judges_nothing(tmp_path: Path) -> None:
    file = write(tmp_path / "a.h5", [case("124m-plain", seconds=(0.01,)), case("124m-mine")])
    done = compared("--against", "published", file)
    assert (done.returncode, done.stderr) == (0, "")
    lines = done.stdout.splitlines()
    assert lines[3].split()[:9] == ["124m-plain", "4x", "RTX", "A6000", "1x", "H200", "129,032",
                                    "51,200", "0.40"]
    assert "ddp, vocabulary: published not stated, measured 50,304" in lines
    assert any("published: hardware: 4x RTX A6000 48 GB in one VM" in line for line in lines)
    assert any("measured: hardware: 1x H200; host node-a" in line for line in lines)
    assert "faster" not in done.stdout and "slower" not in done.stdout


def finetuned(path: Path, seconds: float, after: float) -> str:
    """Four steps of 256 tokens that are no padding, the first of 9 s; every one counts."""
    return write(path, [case("1.5b-lora-4x4", repeat, [seconds + 0.01 * repeat], suite="finetune",
                             held_out_loss_before=1.1, held_out_loss_after=after)
                        for repeat in range(3)])


def test_finetune_rates_leave_padding_out_and_losses_are_told(tmp_path: Path) -> None:
    a, b = finetuned(tmp_path / "a.h5", 1.0, 1.06), finetuned(tmp_path / "b.h5", 0.5, 1.07)
    done = compared(a, b)
    row = next(line for line in done.stdout.splitlines() if line.startswith("1.5b-lora-4x4 "))
    assert row.split()[3:5] == [f"{4 * 256 / (9 + 3 * 1.01):,.0f}",
                                f"{4 * 256 / (9 + 3 * 0.51):,.0f}"]
    assert "above A's; held-out loss 1.100 to 1.060 in A, 1.100 to 1.070 in B" in done.stdout
    lines = compared("--against", "published", a).stdout.splitlines()
    assert lines[3].split()[:4] == ["1.5b-lora-4x4", "1x", "L40S", "1x"]
    assert " ".join(lines[3].split()).endswith(
        "14.5 GiB 2.0 GiB - 9.0 1.102 to 1.058 1.100 to 1.060")


def test_compile_rows_stand_beside_every_published_card_in_its_unit(tmp_path: Path) -> None:
    a = write(tmp_path / "a.h5", [case("468m-eager-naive", suite="compile", vocabulary=32000),
                                  case("468m-compile-sdpa", suite="compile", status="oom")])
    lines = compared("--against", "published", a).stdout.splitlines()
    rows = [line for line in lines if line.startswith("468m-")]
    assert len(rows) == 8
    naive = [line for line in rows if line.startswith("468m-eager-naive")]
    assert [" ".join(line.split()[1:3]) for line in naive] == \
        ["1x RTX", "1x L40S", "1x RTX", "1x H100"]
    assert naive[0].count("out of memory") == 1 and "2.1 GB" in naive[0]
    assert " 0.03 56.0 GB 2.1 GB 0.7 9.0 " in " ".join(naive[3].split())
    assert all(" oom " in line for line in rows if line.startswith("468m-compile-sdpa"))
    assert lines[-1] == "compile, vocabulary: published as in the model above, measured 32,000 " \
        "and 50,304"


def test_bad_input_is_one_sentence(tmp_path: Path) -> None:
    good = write(tmp_path / "a.h5", [case()])
    (tmp_path / "text.h5").write_text("hello")
    empty = write(tmp_path / "empty.h5", [])
    mixed = case()
    mixed.ranks[0].series[0].unit = "ms"
    mixed_path = write(tmp_path / "mixed.h5", [mixed])
    for arguments, words in (
            ([good, tmp_path / "text.h5"], "is not an HDF5 file"),
            ([good, empty], "has no finished case"),
            ([good, mixed_path], "step_seconds of ddp/124m-plain/0 is in 'ms', not 's'"),
            ([good], "two files A B are compared, 1 given"),
            (["--expect", good, "--against", "published", good], "two questions"),
            (["--against", good, good], "is not TOML"),
            (["--expect", good, good, "--fail-if-slower", "5%"], "--fail-if-slower goes with")):
        done = compared(*arguments)
        assert done.returncode == 2 and done.stdout == ""
        assert done.stderr.startswith("trainsuite-compare: ") and done.stderr.count("\n") == 1
        assert words in done.stderr
    done = subprocess.run([sys.executable, str(PROGRAM), good], capture_output=True, text=True,
                          timeout=120, check=False)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == "trainsuite-compare: two files A B are compared, 1 given\n"
    assert compared(good, good, "--fail-if-slower", "fast").returncode == 2
    assert compared(good, good, "--fail-if-slower", "-5%").returncode == 2
