"""The compile suite's PyTorch twin on a CPU, against the ops library's decoder."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import h5py
import numpy as np
import pytest
import torch

ROOT = Path(__file__).resolve().parents[2]
FOLDER = ROOT / "suites" / "pytorch"
sys.path.insert(0, str(ROOT / "analysis"))

import results  # noqa: E402
from results_checks import violations  # noqa: E402

STEPS, WARMUP, RATE = 4, 2, 0.01
FLAGS = ("--size", "tiny", "--steps", STEPS, "--warmup", WARMUP, "--learning-rate", RATE)


def twin(*flags: object, **variables: str) -> subprocess.CompletedProcess[str]:
    """The twin on a CPU."""
    command = [sys.executable, FOLDER / "compile.py", "--device", "cpu", *flags]
    return subprocess.run(
        [str(part) for part in command],
        capture_output=True,
        text=True,
        timeout=500,
        env=os.environ | {"OMP_NUM_THREADS": "2"} | variables,
        check=False,
    )


@pytest.fixture(scope="module")
def rows(tmp_path_factory: pytest.TempPathFactory):
    """The file of an eager, a compiled, a naive and a graph case, and a cache that was there."""
    folder = tmp_path_factory.mktemp("compile")
    cases = ("eager-sdpa", "compile-sdpa", "eager-naive", "graph-sdpa")
    chosen = [part for case in cases for part in ("--case", case)]
    done = twin(*FLAGS, *chosen, "--out", folder / "twin.h5",
                TORCHINDUCTOR_CACHE_DIR=str(folder / "mine"))
    assert done.returncode == 0, done.stdout + done.stderr
    with h5py.File(folder / "twin.h5") as file:
        yield file


def reference_losses(ops, naive: bool) -> np.ndarray:
    """The same training by the ops library's decoder and an unfused AdamW."""
    parameters = ops.decoder_initial_parameters("tiny", 512, 1, "cpu")
    leaves = [parameter.requires_grad_() for parameter in parameters]
    uses, _ = ops.decoder_uses("tiny")
    optimizer = torch.optim.AdamW(leaves, lr=RATE, weight_decay=0.01, foreach=False)
    losses = []
    for step in range(WARMUP + STEPS):
        tokens = ops.random_tokens(1, step, 0, 2, 65, 512, "cpu")
        loss = ops.decoder_loss("tiny", [leaves[use] for use in uses], tokens[:, :-1],
                                tokens[:, 1:].contiguous(), 1 / 128, naive, False)
        loss.backward()
        losses.append(loss.item())
        optimizer.step()
        optimizer.zero_grad()
    return np.array(losses)


@pytest.mark.parametrize("case", ["eager-sdpa", "compile-sdpa", "eager-naive"])
def test_losses_are_those_of_the_ops_library(ops, rows: h5py.File, case: str) -> None:
    row = rows[f"compile/tiny-{case}/0"]
    assert row.attrs["status"] == "ok", row.attrs["reason"]
    expected = reference_losses(ops, case.endswith("naive"))
    assert np.ptp(expected) > 0.05  # every step shows
    np.testing.assert_allclose(row["loss"][0], expected, rtol=2e-5)


def test_rows_hold_what_the_suite_promises(ops, rows: h5py.File) -> None:
    assert rows.attrs["complete"] == 1
    run = rows["runs/0"].attrs
    assert run["transformers_version"] and run["implementation"] == "pytorch"
    tokens = ops.random_tokens(1, 0, 0, 2, 65, 512, "cpu")
    for case, mode in (("eager-sdpa", "none"), ("compile-sdpa", "default"),
                       ("eager-naive", "none")):
        row = rows[f"compile/tiny-{case}/0"]
        assert row.attrs["torch_compile_mode"] == mode
        assert (row.attrs["attention"] == "naive") == case.endswith("naive")
        assert row.attrs["tokens_hash"] == int(ops.tensor_hash(tokens))
        assert row.attrs["tokens_per_step"] == 128
        assert row["warmup"][:].tolist() == [1] * WARMUP + [0] * STEPS
        assert row["tokens"][0].tolist() == [128] * (WARMUP + STEPS)
        phases = [row[f"{p}_seconds"][:] for p in ("data", "forward", "backward", "optimizer")]
        np.testing.assert_allclose(sum(phases), row["step_seconds"][:], rtol=1e-6)
        assert ("first_step_seconds_cold" in row.attrs) == (mode != "none")
        assert ("host_launch_seconds" in row.attrs) == (mode == "none")
    # Steps this short cannot be held to the loop's time on a busy machine.
    found = [line for line in violations(results.load(rows.filename)) if "loop" not in line]
    assert not found, found


def test_graphs_are_skipped_with_the_reason(rows: h5py.File) -> None:
    row = rows["compile/tiny-graph-sdpa/0"].attrs
    assert row["status"] == "skipped"
    assert row["reason"] == "reduce-overhead captures CUDA graphs, and there is no GPU"


def test_the_cache_is_the_cases_own(rows: h5py.File) -> None:
    """A cold first step: the user's cache is neither read nor filled."""
    assert not (Path(rows.filename).parent / "mine").exists()
    first = rows["compile/tiny-compile-sdpa/0"].attrs["first_step_seconds"]
    later = rows["compile/tiny-compile-sdpa/0/host_seconds"][0, 1:].max()
    assert first > later  # compiling is in it


def test_accumulated_gradients_are_those_of_one_batch(ops, monkeypatch) -> None:
    """Of the mean loss, that is: AdamW would hide a wrong scale from every other test."""
    monkeypatch.syspath_prepend(FOLDER)
    from compile_case import Trainer
    from compile_cases import make_case, parser

    gradients = []
    for accumulate, micro_batch in ((4, 1), (1, 4)):
        options = parser().parse_args(
            ["--micro-batch", str(micro_batch), "--accumulate", str(accumulate)]
        )
        trainer = Trainer(make_case("tiny", "eager", "sdpa", options, cuda=False),
                          torch.device("cpu"))
        trainer.optimizer.zero_grad = lambda set_to_none: None
        trainer.step(0, micro_batch, 32)
        gradients.append([parameter.grad for parameter in trainer.bare.parameters()])
    for accumulated, joined in zip(*gradients, strict=True):
        torch.testing.assert_close(accumulated, joined, rtol=1e-4, atol=1e-7)


def test_a_case_ends_with_its_time_limit(tmp_path: Path) -> None:
    """Importing PyTorch alone takes longer than this one."""
    done = twin("--case", "eager-sdpa", "--time-limit", "0.05", "--out", tmp_path / "late.h5")
    assert done.returncode == 1, done.stderr
    with h5py.File(tmp_path / "late.h5") as file:
        row = file["compile/tiny-eager-sdpa/0"].attrs
        assert row["status"] == "timeout"
        assert "longer than its 0.05 s" in row["reason"]


def test_a_process_without_a_result_fails_its_case(monkeypatch, tmp_path: Path) -> None:
    monkeypatch.syspath_prepend(FOLDER)
    import compile as suite
    from compile_cases import make_case, parser
    from session import CaseFailed

    options = parser().parse_args([])
    case = make_case("tiny", "eager", "sdpa", options, cuda=False)
    monkeypatch.setattr(sys, "executable", "/bin/false")
    with pytest.raises(CaseFailed, match="ended with status 1 and without a result"):
        suite.Processes(options).run_case(case, None)


@pytest.mark.parametrize(("flags", "words"), [
    (("--case", "eager-spda"), "did you mean 'eager-sdpa'?"),
    (("--size", "124m"), "--size"),
    (("--time-limit", "0"), "--time-limit"),
    (("--link", "shm"), "--link shm"),
    (("--attention", "cudnn"), "--attention cudnn"),
])
def test_wrong_use_is_one_line(flags: tuple[str, ...], words: str) -> None:
    done = twin(*flags)
    assert done.returncode == 2
    assert len(done.stderr.splitlines()) == 1 and done.stderr.startswith("compile.py: ")
    assert words in done.stderr
