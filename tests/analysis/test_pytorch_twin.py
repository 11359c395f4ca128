"""The PyTorch twin: alone and under torchrun, and against our program from the same weights."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import h5py
import numpy as np
import pytest

ROOT = Path(__file__).resolve().parents[2]
TWIN = ROOT / "suites" / "pytorch" / "ddp.py"
SUFFIXES = ("1gpu", "1gpu-accumulate4", "independent", "plain", "bf16", "accumulate4", "both")
PHASES = ("data", "forward", "backward", "exposed_sync", "optimizer")
STEPS = 20


def run(*command: str | Path) -> subprocess.CompletedProcess[str]:
    """Runs a command to its end on one thread a rank; it may fail."""
    environment = os.environ | {"OMP_NUM_THREADS": "1"}
    return subprocess.run(
        [str(part) for part in command],
        capture_output=True,
        text=True,
        timeout=300,
        env=environment,
        check=False,
    )


def twin(ranks: int, *flags: str | Path) -> subprocess.CompletedProcess[str]:
    """The twin on a CPU, alone or with as many ranks."""
    launcher: list[str] = [sys.executable]
    if ranks > 1:
        launcher += ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(ranks)]
    return run(*launcher, TWIN, "--device", "cpu", *flags)


def ours(ranks: int, *flags: str | Path) -> subprocess.CompletedProcess[str]:
    """Our program on a CPU."""
    launcher = ["mpirun", "-q", "-np", str(ranks), "--oversubscribe", "--bind-to", "none"]
    return run(*launcher, os.environ["TRAINSUITE_BINARY"], "ddp", "--device", "cpu", *flags)


def finished(done: subprocess.CompletedProcess[str]) -> None:
    """Fails with the program's own words where it did not end well."""
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.fixture(scope="module", params=[1, 2])
def all_cases(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory):
    """(ranks, result file) of every case with one and with two ranks."""
    path = tmp_path_factory.mktemp("twin") / f"{request.param}.h5"
    finished(twin(request.param, "--steps", "6", "--warmup", "2", "--out", path))
    with h5py.File(path) as file:
        yield request.param, file


def test_file_is_valid_and_complete(all_cases) -> None:
    ranks, file = all_cases
    assert file.attrs["complete"] == 1
    assert len(file["runs/0/ranks"]) == ranks
    assert sorted(file["ddp"]) == sorted(f"tiny-{suffix}" for suffix in SUFFIXES)
    finished(run(sys.executable, os.environ["TRAINSUITE_RESULTS"], "verify", file.filename))


def test_compiled_rows_come_on_request_and_train_as_eager(tmp_path: Path) -> None:
    path = tmp_path / "compiled.h5"
    flags = ["--case", "1gpu", "--case", "1gpu-compile", "--steps", "3", "--warmup", "1"]
    finished(twin(1, *flags, "--learning-rate", "0.01", "--out", path))
    with h5py.File(path) as file:
        eager, compiled = (file[f"ddp/tiny-{name}/0"] for name in ("1gpu", "1gpu-compile"))
        assert len(file["ddp"]) == 2
        assert (eager.attrs["compile_mode"], compiled.attrs["compile_mode"]) == ("eager", "compile")
        np.testing.assert_allclose(compiled["loss"][:], eager["loss"][:], rtol=1e-4)


def test_rows_hold_every_rank_and_step(all_cases) -> None:
    ranks, file = all_cases
    for suffix in SUFFIXES:
        row = file[f"ddp/tiny-{suffix}/0"]
        taking_part = 1 if suffix.startswith("1gpu") else ranks
        accumulate = 4 if suffix.endswith("accumulate4") or suffix == "both" else 1
        assert row.attrs["status"] == "ok", row.attrs["reason"]
        assert row.attrs["implementation"] == "pytorch"
        assert row.attrs["ranks"].tolist() == list(range(taking_part))
        assert (type(row.attrs["ranks_total"]), row.attrs["ranks_total"]) == (np.int64, ranks)
        assert row.attrs["tokens_per_step"] == 2 * 64 * accumulate * taking_part
        assert row["warmup"][:].tolist() == [1, 1, 0, 0, 0, 0, 0, 0]
        for name in ("step_seconds", "host_seconds", "loss", "tokens"):
            assert row[name].shape == (taking_part, 8)
            assert np.isfinite(row[name][:]).all()
        assert row["tokens"][:].sum(axis=0).tolist() == [row.attrs["tokens_per_step"]] * 8
        assert row.attrs["first_step_seconds"] > 0
        assert 0 < row.attrs["host_launch_seconds"] < row.attrs["case_seconds"]


def test_phases_add_up_and_steps_fill_the_loop(all_cases) -> None:
    _, file = all_cases
    for suffix in SUFFIXES:
        row = file[f"ddp/tiny-{suffix}/0"]
        communicates = not suffix.startswith(("1gpu", "independent"))
        assert ("exposed_sync_seconds" in row) == communicates
        phases = [row[f"{p}_seconds"][:] for p in PHASES if f"{p}_seconds" in row]
        steps = row["step_seconds"][:]
        np.testing.assert_allclose(sum(phases), steps, rtol=1e-6)
        assert all((phase > 0).all() for phase in phases)
        loops = row["rank_facts/loop_seconds"][:]
        assert steps[:, 1:].sum(axis=1) == pytest.approx(loops, rel=0.02)


def test_data_parallel_replicas_are_equal_and_independent_ones_differ(all_cases) -> None:
    ranks, file = all_cases
    for suffix in ("plain", "bf16", "accumulate4", "both"):
        row = file[f"ddp/tiny-{suffix}/0"]
        assert row["check"].attrs["replicas_equal"] == 1
        assert len(set(row["rank_facts/final_weights_hash"][:].tolist())) == 1
    apart = set(file["ddp/tiny-independent/0/rank_facts/final_weights_hash"][:].tolist())
    assert len(apart) == ranks


@pytest.mark.parametrize(
    ("ranks", "case", "tolerance"),
    [
        (1, "1gpu", 2e-6),
        (1, "1gpu-accumulate4", 2e-6),
        (2, "plain", 2e-6),
        (2, "accumulate4", 2e-6),
        (2, "both", 3e-4),
    ],
)
def test_losses_equal_ours(ranks: int, case: str, tolerance: float, tmp_path: Path) -> None:
    """Same weights, tokens and recipe. At this learning rate 20 steps show another weight decay,
    epsilon or GELU by 2e-5; sums in another order give 1e-7, gradients sent as bf16 3e-5."""
    flags = ("--case", case, "--size", "tiny", "--precision", "fp32", "--learning-rate", "0.003")
    flags += ("--steps", str(STEPS), "--warmup", "0")
    finished(twin(ranks, *flags, "--out", tmp_path / "twin.h5"))
    finished(ours(ranks, *flags, "--out", tmp_path / "ours.h5"))
    with h5py.File(tmp_path / "twin.h5") as a, h5py.File(tmp_path / "ours.h5") as b:
        theirs, mine = (file[f"ddp/tiny-{case}/0"] for file in (a, b))
        for name in ("initial_weights_hash", "tokens_hash", "tokens_per_step", "parameters_total"):
            assert theirs.attrs[name] == mine.attrs[name], name
        assert theirs["loss"].shape == (ranks, STEPS)
        np.testing.assert_allclose(theirs["loss"][:], mine["loss"][:], rtol=tolerance)
        assert set(theirs) - set(mine) == set(), "the twin has what ours lacks"


def test_two_ranks_train_as_one_with_the_joined_batch(tmp_path: Path) -> None:
    common = ("--steps", "8", "--warmup", "0", "--learning-rate", "0.003", "--case", "plain")
    finished(twin(2, *common, "--micro-batch", "2", "--out", tmp_path / "two.h5"))
    finished(twin(1, *common, "--micro-batch", "4", "--out", tmp_path / "one.h5"))
    with h5py.File(tmp_path / "two.h5") as a, h5py.File(tmp_path / "one.h5") as b:
        two, one = (file["ddp/tiny-plain/0/loss"][:] for file in (a, b))
        np.testing.assert_allclose(two.mean(axis=0), one[0], rtol=1e-5)


@pytest.mark.parametrize(
    ("flags", "words"),
    [
        (("--case", "plian"), "did you mean 'plain'?"),
        (("--steps", "0"), "--steps"),
        (("--steps", "1000001"), "--steps: '1000001' is not a whole number from 1 to 1000000"),
        (("--steps", "1_0"), "--steps: '1_0'"),
        (("--warmup", "-1"), "--warmup"),
        (("--warmup", "1000001"), "--warmup"),
        (("--repeats", "10001"), "--repeats"),
        (("--micro-batch", "65537"), "--micro-batch"),
        (("--accumulate", "65537"), "--accumulate"),
        (("--sequence", "1048577"), "--sequence"),
        (("--vocabulary", "16777217"), "--vocabulary"),
        (("--seed", str(2**53)), "--seed"),
        (("--memory-limit", "nan"), "--memory-limit: 'nan' is not a number above 0"),
        (("--learning-rate", "1001"), "--learning-rate: '1001' is not a number above 0, at most"),
        (("--steps", "3", "--steps", "4"), "--steps is given twice; give it once"),
        (("--out", "a.h5", "--out", "b.h5"), "--out is given twice"),
        (("--list", "--list"), "--list is given twice"),
        (("--out", ""), "--out: has an empty value"),
        (("--stepz", "3"), "--stepz"),
        (("--link", "shm"), "--link shm"),
        (("--attention", "cudnn"), "--attention cudnn"),
        (("--ops-library", "none.so"), "none.so"),
        (("--out", "missing/a.h5"), "missing"),
    ],
)
def test_wrong_use_is_one_line(flags: tuple[str, ...], words: str) -> None:
    done = twin(1, *flags)
    assert done.returncode == 2
    assert len(done.stderr.splitlines()) == 1
    assert words in done.stderr


def test_lists_may_be_repeated_and_ranges_hold_their_ends() -> None:
    flags = ("--size", "tiny", "--size", "355m", "--case", "both", "--case", "*plain")
    flags += ("--steps", "1000000", "--seed", str(2**53 - 1), "--warmup", "0")
    done = twin(1, "--list", *flags)
    assert done.stdout.split() == ["355m-plain", "355m-both", "tiny-plain", "tiny-both"]


@pytest.mark.parametrize("flags", [(), ("--stepz", "3")])
def test_mpirun_is_refused_once(flags: tuple[str, ...]) -> None:
    launcher = ("mpirun", "-q", "-np", "2", "--oversubscribe", "--bind-to", "none")
    done = run(*launcher, sys.executable, TWIN, "--device", "cpu", *flags)
    assert done.returncode == 2
    assert len(done.stderr.splitlines()) == 1, done.stderr
    assert (flags[0] if flags else "torchrun") in done.stderr


def test_list_names_every_case() -> None:
    done = twin(1, "--list", "--size", "tiny")
    assert done.stdout.split() == [f"tiny-{suffix}" for suffix in SUFFIXES]


FAULTY = f"""
import gc, sys, weakref
sys.path.insert(0, {str(TWIN.parent)!r})
import torch, ddp, session, train

models, kept = [], []
build, step, release = train.gpt2.build, train.Trainer.step, session.release_memory


def watched_build(*arguments):
    models.append(weakref.ref(model := build(*arguments)))
    return model


def failing_step(self, index, batch, sequence):
    if self.case.recipe == "plain" and self.rank == 1 and index == 2:
        raise torch.OutOfMemoryError("pretended")
    step(self, index, batch, sequence)


def watched_release(device):
    release(device)
    kept.extend(model() for model in models if model() is not None)


train.gpt2.build, train.Trainer.step = watched_build, failing_step
session.release_memory = watched_release
status = ddp.main()
assert len(models) >= 2 and not kept, f"{{len(kept)}} of {{len(models)}} models outlive their case"
ddp.leave(status)
"""


def test_a_rank_without_memory_ends_its_case_alone(tmp_path: Path) -> None:
    """The other rank leaves the case too, the next case runs, and no model outlives
    its case on either (its memory would count in the next case's peak)."""
    script, path = tmp_path / "faulty.py", tmp_path / "faulty.h5"
    script.write_text(FAULTY, encoding="utf-8")
    launcher = (sys.executable, "-m", "torch.distributed.run", "--standalone")
    launcher += ("--nproc-per-node", "2")
    cases = ("--case", "plain", "--case", "bf16", "--steps", "3", "--warmup", "1")
    finished(run(*launcher, script, "--device", "cpu", *cases, "--out", path))
    with h5py.File(path) as file:
        row = file["ddp/tiny-plain/0"].attrs
        assert row["status"] == "oom"
        assert row["reason"] == "rank 1: out of memory in data: pretended"
        assert file["ddp/tiny-bf16/0"].attrs["status"] == "ok"
        assert file.attrs["complete"] == 1


def test_clock_sums_phases_over_micro_batches(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(TWIN.parent)
    import torch
    from measure import StepClock

    ticks = iter([0, 0, 1, 3, 4, 7, 10, 10, 12, 13, 15, 18, 30, 30])
    monkeypatch.setattr("time.perf_counter", lambda: float(next(ticks)))
    clock = StepClock(torch.device("cpu"), steps=2, marks_per_step=5)
    for _ in range(2):
        clock.boundary()
        for label in ("data", "forward", "data", "forward"):
            clock.mark(label)
    clock.boundary()
    assert clock.read() == {
        "step_seconds": [10.0, 20.0],
        "host_seconds": [10.0, 20.0],
        "data_seconds": [1.0 + 1.0, 2.0 + 2.0],
        "forward_seconds": [2.0 + 3.0, 1.0 + 3.0],
        "optimizer_seconds": [3.0, 12.0],
    }


def test_accumulated_gradients_are_those_of_one_batch(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of the mean loss, that is: AdamW would hide a wrong scale from every other test."""
    monkeypatch.syspath_prepend(TWIN.parent)
    import torch
    from cases import make_case, parser
    from launch import load_ops
    from train import Trainer

    load_ops(None)
    world = SimpleNamespace(device=torch.device("cpu"), rank=0, size=1)
    gradients = []
    for recipe, micro_batch in (("1gpu-accumulate{}", "2"), ("1gpu", "8")):
        options = parser().parse_args(["--micro-batch", micro_batch])
        case = make_case("tiny", recipe, options, cuda=False)
        trainer = Trainer(case, world, None)
        trainer.optimizer.zero_grad = lambda set_to_none: None
        trainer.step(0, case.micro_batch, case.sequence)
        gradients.append([parameter.grad for parameter in trainer.bare.parameters()])
    for accumulated, joined in zip(*gradients, strict=True):
        torch.testing.assert_close(accumulated, joined, rtol=1e-4, atol=1e-8)
