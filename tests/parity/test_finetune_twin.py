"""The finetune suite's PyTorch twin as a command on a CPU, alone and under torchrun."""

from __future__ import annotations

import math
import os
import subprocess
import sys
from pathlib import Path

import h5py
import numpy as np
import pytest
import torch
from finetune_twin import CPU, FOLDER, examples, reference_loss, write_data

import results
from finetune_cases import parser
from results_checks import violations


def twin(ranks: int, *flags: object) -> subprocess.CompletedProcess[str]:
    """The twin on a CPU, alone or under torchrun."""
    launcher = [sys.executable]
    if ranks > 1:
        launcher += ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(ranks)]
    command = [*launcher, FOLDER / "finetune.py", "--device", "cpu", *flags]
    return subprocess.run([str(part) for part in command], capture_output=True, text=True,
                          timeout=500, env=os.environ | {"OMP_NUM_THREADS": "1"}, check=False)


METHODS = ("full", "lora", "qlora")
STEPS, RATE = 3, 0.01


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory):
    """Result files of one rank and of two with half the micro-batch; 7 examples, so that the
    second step has 3 of 4 and on two ranks one rank has an empty micro-batch."""
    folder = tmp_path_factory.mktemp("finetune")
    data = write_data(folder / "data.h5", examples((9, 4, 12, 6, 5, 14, 8)),
                      examples((6, 11, 3), first=20))
    files = []
    for ranks, micro_batch in ((1, 2), (2, 1)):
        path = folder / f"{ranks}.h5"
        flags = ["--data", data, "--micro-batch", micro_batch, "--accumulate", 2, "--steps", STEPS,
                 "--learning-rate", RATE, "--recipe", "published", "--out", path]
        done = twin(ranks, *flags)
        assert done.returncode == 0, done.stdout + done.stderr
        # Steps this short cannot be held to the loop's time on a busy machine.
        found = [line for line in violations(results.load(str(path))) if "loop" not in line]
        assert not found, found
        files.append(h5py.File(path))
    yield tuple(files)
    for file in files:
        file.close()


def test_full_training_is_that_of_the_ops_library(ops, runs) -> None:
    """Losses and held-out losses against its decoder, an unfused AdamW and the cosine's formula."""
    train = examples((9, 4, 12, 6, 5, 14, 8))
    held_out = [example.ids for example in examples((6, 11, 3), first=20)]
    leaves = [p.requires_grad_() for p in ops.decoder_initial_parameters("tiny", 512, 1, CPU)]
    optimizer = torch.optim.AdamW(leaves, lr=RATE, weight_decay=0.01, foreach=False)
    before = reference_loss(ops, held_out, leaves).item()
    losses = []
    for step, chosen in enumerate((train[:4], train[4:], train[:4])):
        optimizer.param_groups[0]["lr"] = RATE * (1 + math.cos(math.pi * step / STEPS)) / 2
        loss = reference_loss(ops, [example.ids for example in chosen], leaves)
        loss.backward()
        losses.append(loss.item())
        optimizer.step()
        optimizer.zero_grad()
    after = reference_loss(ops, held_out, leaves).item()
    row = runs[0]["finetune/tiny-full-2x2/0"]
    np.testing.assert_allclose(row["loss"][0], losses, rtol=2e-5)
    assert losses[0] - losses[2] > 0.1  # the same examples: it learns
    for when, value in (("before", before), ("after", after)):
        assert row.attrs[f"held_out_loss_{when}"] == pytest.approx(value, rel=2e-5)


@pytest.mark.parametrize("method", METHODS)
def test_two_ranks_train_as_one(runs, method: str) -> None:
    one, two = (file[f"finetune/tiny-{method}-{batches}/0"]
                for file, batches in zip(runs, ("2x2", "1x2")))
    assert two["check"].attrs["replicas_equal"] == 1
    labels = two["effective_tokens"][:] - [[2, 2, 2], [2, 1, 2]]  # one less an example
    joined = (two["loss"][:] * labels).sum(axis=0) / labels.sum(axis=0)
    np.testing.assert_allclose(joined, one["loss"][0], rtol=1e-4)
    assert two["effective_tokens"][:].sum(axis=0).tolist() == one["effective_tokens"][0].tolist()
    for name in ("held_out_loss_before", "held_out_loss_after"):
        assert two.attrs[name] == pytest.approx(one.attrs[name], rel=1e-4)
    assert one.attrs["held_out_loss_before"] != one.attrs["held_out_loss_after"]


@pytest.mark.parametrize("method", METHODS)
def test_rows_hold_what_the_suite_promises(runs, method: str) -> None:
    file = runs[0]
    assert file.attrs["complete"] == 1 and len(file["finetune"]) == 3
    assert {"transformers_version", "peft_version", "bitsandbytes_version"} <= set(
        file["runs/0"].attrs)
    row = file[f"finetune/tiny-{method}-2x2/0"]
    assert (row.attrs["micro_batch"], row.attrs["accumulate"], row.attrs["steps"]) == (2, 2, STEPS)
    assert row["tokens"][0].tolist() == [2 * 9 + 2 * 12, 2 * 14 + 8, 2 * 9 + 2 * 12]
    assert row["effective_tokens"][0].tolist() == [31, 27, 31]
    assert row.attrs["train_seconds"] == pytest.approx(
        row.attrs["first_step_seconds"] + row.attrs["loop_seconds"], rel=1e-9)
    assert row["step_seconds"][0].sum() <= row.attrs["train_seconds"] < row.attrs["case_seconds"]
    total = 131_648 + (0 if method == "full" else 38_912)
    assert row.attrs["parameters_total"] == total
    assert row.attrs["parameters_trainable"] == (131_648 if method == "full" else 38_912)
    assert row.attrs["communicator"] == "none" and row.attrs["optimizer"] == "foreach"
    assert runs[1][f"finetune/tiny-{method}-1x2/0"].attrs["communicator"] == "gloo"


@pytest.fixture(scope="module")
def ours(runs, tmp_path_factory: pytest.TempPathFactory):
    """The rows of `trainsuite finetune` on one rank from the same flags."""
    path = tmp_path_factory.mktemp("ours") / "ours.h5"
    data = Path(runs[0].filename).with_name("data.h5")
    flags = ["--data", data, "--micro-batch", 2, "--accumulate", 2, "--steps", STEPS,
             "--learning-rate", RATE, "--out", path]
    command = [os.environ["TRAINSUITE_BINARY"], "finetune", "--device", "cpu", *flags]
    done = subprocess.run([str(part) for part in command], capture_output=True, text=True,
                          timeout=300, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    with h5py.File(path) as file:
        yield file


@pytest.mark.parametrize("method", METHODS)
def test_losses_equal_ours(runs, ours, method: str) -> None:
    """trainsuite and transformers, peft and bitsandbytes, from the same weights and tokens."""
    row = f"finetune/tiny-{method}-2x2/0"
    theirs, mine = runs[0][row], ours[row]
    np.testing.assert_allclose(theirs["loss"][:], mine["loss"][:], rtol=2e-5)
    assert np.array_equal(theirs["effective_tokens"][:], mine["effective_tokens"][:])
    for when in ("before", "after"):
        name = f"held_out_loss_{when}"
        assert theirs.attrs[name] == pytest.approx(mine.attrs[name], rel=2e-5)
    for name in ("method", "loss_on", "checkpointing", "data", "model", "train_examples",
                 "held_out", "vocabulary", "micro_batch", "accumulate", "steps", "global_batch",
                 "parameters_total", "parameters_trainable", "learning_rate", "precision"):
        assert theirs.attrs[name] == mine.attrs[name], name


def test_synthetic_examples_equal_ours(tmp_path: Path) -> None:
    """Without --data: the same seeded examples; their tokens show in the losses."""
    flags = ["--case", "full-2x1", "--micro-batch", 2, "--accumulate", 1, "--train-examples", 4,
             "--held-out", 2, "--seed", 5]
    done = twin(1, *flags, "--out", tmp_path / "twin.h5")
    assert done.returncode == 0, done.stderr
    command = [os.environ["TRAINSUITE_BINARY"], "finetune", "--device", "cpu", *flags, "--out",
               tmp_path / "ours.h5"]
    done = subprocess.run([str(part) for part in command], capture_output=True, text=True,
                          timeout=300, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    with h5py.File(tmp_path / "twin.h5") as a, h5py.File(tmp_path / "ours.h5") as b:
        theirs, mine = (file["finetune/tiny-full-2x1/0"] for file in (a, b))
        assert np.array_equal(theirs["effective_tokens"][:], mine["effective_tokens"][:])
        np.testing.assert_allclose(theirs["loss"][:], mine["loss"][:], rtol=2e-5)
        for when in ("before", "after"):
            name = f"held_out_loss_{when}"
            assert theirs.attrs[name] == pytest.approx(mine.attrs[name], rel=2e-5)


def test_fewer_examples_than_a_step_takes(tmp_path: Path) -> None:
    data = write_data(tmp_path / "data.h5", examples((5, 6, 7)), [])
    done = twin(1, "--data", data, "--case", "lora-4x4-tuned", "--out", tmp_path / "few.h5")
    assert done.returncode == 0, done.stderr
    with h5py.File(tmp_path / "few.h5") as file:
        row = file["finetune/tiny-lora-4x4-tuned/0"]
        assert row.attrs["status"] == "ok" and row["loss"].shape == (1, 1)
        assert row["effective_tokens"][0].tolist() == [18]
        assert "held_out_loss_before" not in row.attrs
        assert row.attrs["optimizer"] == "fused"


def refused(monkeypatch, capsys, *flags: object) -> str:
    """The one line said about wrong use, in this process."""
    import finetune

    monkeypatch.setattr(sys, "argv", ["finetune.py", "--device", "cpu", *map(str, flags)])
    with pytest.raises(SystemExit) as ended:
        finetune.main()
    said = capsys.readouterr().err
    assert ended.value.code == 2
    assert said.startswith("finetune.py: ") and said.count("\n") == 1, said
    return said


@pytest.mark.parametrize(("flags", "words"), [
    (("--case", "laro-4x4"), "did you mean 'lora-4x4'?"),
    (("--data", "none.h5"), "none.h5: no such file"),
    (("--model", "none"), "--model none: no config.json there"),
    (("--lora-rank", "0"), "--lora-rank"),
    (("--loss-on", "question"), "--loss-on"),
    (("--qlora-upcast", "--qlora-upcast"), "--qlora-upcast is given twice"),
])
def test_wrong_use_is_one_line(monkeypatch, capsys, flags: tuple[str, ...], words: str) -> None:
    assert words in refused(monkeypatch, capsys, *flags)


def test_more_examples_than_there_are(monkeypatch, capsys, tmp_path: Path) -> None:
    data = write_data(tmp_path / "data.h5", examples((5, 6)), [])
    said = refused(monkeypatch, capsys, "--data", data, "--train-examples", 3)
    assert "--train-examples 3: the data has 2 training examples" in said
    said = refused(monkeypatch, capsys, "--data", data, "--held-out", 1)
    assert "--held-out 1: the data has 0 held-out examples" in said


def test_cases_that_flags_make_equal_run_once() -> None:
    from finetune_cases import plan

    def names(*flags: str) -> list[str]:
        return [case.name for case in plan(parser().parse_args(flags), cuda=False)]

    assert names("--recipe", "published") == [
        f"tiny-{method}-{batches}" for method in METHODS for batches in ("4x4", "8x2")]
    assert names("--micro-batch", "64", "--accumulate", "1", "--case", "full*") == [
        "tiny-full-64x1", "tiny-full-64x1-tuned"]
