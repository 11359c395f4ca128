"""The finetune suite on a CPU: all six cases, their rows, and flags that cannot be."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import h5py
import numpy as np
import pytest
from conftest import Program

sys.path.append(str(Path(__file__).resolve().parents[2] / "analysis"))

import token_file  # noqa: E402
from token_file import Example, TokenFile, split_of  # noqa: E402

CASES = [f"tiny-{method}-{batch}" for batch in ("4x4", "8x2") for method in
         ("full", "lora", "qlora")]
PARAMETERS = 131_648  # embedding, and two layers of attention, MLP and norms
QUICK = ("--steps", "2", "--train-examples", "24", "--held-out", "5")


@pytest.fixture(scope="module")
def rows(tmp_path_factory):
    """Attributes and series of every case."""
    folder = tmp_path_factory.mktemp("finetune")
    path = folder / "rows.h5"
    program = Program(os.environ["TRAINSUITE_BINARY"], folder)
    done = program("finetune", "--train-examples", "40", "--held-out", "9", "--steps", "4",
                   "--warmup", "0", "--learning-rate", "2e-3", "--out", path, timeout=280)
    assert done.returncode == 0, done.stderr + done.stdout
    with h5py.File(path) as file:
        return {name: (dict(case["0"].attrs), {key: data[()] for key, data in case["0"].items()
                                              if isinstance(data, h5py.Dataset)})
                for name, case in file["finetune"].items()}


def test_every_case_has_an_ok_row(rows) -> None:
    assert sorted(rows) == sorted(CASES)
    for name, (row, _) in rows.items():
        assert row["status"] == "ok", f"{name}: {row['reason']}"
        assert row["dry_run"] == 1 and row["held_out_comparable"] == 0
        assert row["data"] == "synthetic" and row["model"] == "random"


def test_the_bytes_foretold_are_those_held(rows) -> None:
    """All but activations, which no CPU counts."""
    for name, (row, _) in rows.items():
        held = sum(row[key] for key in row if key.startswith("weight_bytes_"))
        assert row["predicted_weight_bytes"] == held, name
        assert row["predicted_optimizer_bytes"] == row["optimizer_bytes"], name
        assert row["predicted_gradient_bytes"] == row["gradient_bytes"], name
        assert row["predicted_bytes"] == row["predicted_activation_bytes"] + sum(
            row[f"predicted_{part}_bytes"] for part in ("weight", "optimizer", "gradient"))


def test_what_the_rows_say(rows) -> None:
    for name, (row, series) in rows.items():
        method = name.split("-")[1]
        assert row["parameters_trainable"] == (
            row["parameters_total"] if method == "full" else
            row["parameters_total"] - PARAMETERS), name
        assert ("weight_bytes_nf4" in row) == (method == "qlora")
        assert row["held_out_loss_after"] < row["held_out_loss_before"], name
        assert row["train_seconds"] == pytest.approx(series["step_seconds"].sum(), rel=0.3)
        assert np.array_equal(series["effective_tokens"], series["tokens"])  # packed
        assert series["effective_tokens"].shape == (1, 4)


def test_one_base_and_one_order_for_all(rows) -> None:
    before = {row["held_out_loss_before"] for name, (row, _) in rows.items() if "qlora" not in name}
    assert max(before) - min(before) < 1e-5
    for batch in ("full", "lora", "qlora"):
        four, eight = (rows[f"tiny-{batch}-{shape}"][1]["loss"][0] for shape in ("4x4", "8x2"))
        assert four == pytest.approx(eight, abs=1e-4)


def test_a_pass_is_the_default_and_the_batch_renames(program, tmp_path) -> None:
    out = tmp_path / "pass.h5"
    done = program("finetune", "--case", "full-2x3", "--micro-batch", "2", "--accumulate", "3",
                   "--train-examples", "13", "--held-out", "0", "--length-buckets", "64,512",
                   "--out", out)
    assert done.returncode == 0, done.stderr
    with h5py.File(out) as file:
        case = file["finetune/tiny-full-2x3/0"]
        tokens, effective = case["tokens"][()], case["effective_tokens"][()]
        assert tokens.shape == (1, 3)  # 6 + 6 + 1 examples
        assert (tokens > effective).all() and set(tokens[:, 2]) <= {64, 512}
        assert "held_out_loss_before" not in case.attrs


def test_ranks_take_part(program, tmp_path) -> None:
    out = tmp_path / "two.h5"
    done = program("finetune", "--case", "lora-4x4", *QUICK, "--out", out, ranks=2, timeout=120)
    assert done.returncode == 0, done.stderr
    with h5py.File(out) as file:
        case = file["finetune/tiny-lora-4x4/0"]
        assert case.attrs["communicator"] == "mpi" and case.attrs["global_batch"] == 32
        assert case["check"].attrs["replicas_equal"] == 1
        assert case["effective_tokens"].shape == (2, 2)


def test_padded_rows_are_recorded_and_graph_rows_skipped(program, tmp_path) -> None:
    """A packed row to a multiple of tokens; graphs need a GPU, and say so."""
    out = tmp_path / "graph.h5"
    done = program("finetune", "--case", "lora-4x4", "--case", "lora-4x4-graph", *QUICK,
                   "--pack-to", "64", "--out", out)
    assert done.returncode == 0, done.stderr
    with h5py.File(out) as file:
        eager, graph = (file[f"finetune/tiny-lora-4x4{kind}/0"] for kind in ("", "-graph"))
        assert graph.attrs["status"] == "skipped"
        assert "CUDA graphs need a GPU" in graph.attrs["reason"]
        assert (eager.attrs["packing"], eager.attrs["pack_to"]) == ("on", 64)
        assert (graph.attrs["packing"], graph.attrs["pack_to"]) == ("off", 1)  # fp32
        assert graph.attrs["length_buckets"] == "128,256,384,512"
        assert (eager["tokens"][:] % 64 == 0).all()
        assert (eager["tokens"][:] > eager["effective_tokens"][:]).all()


@pytest.mark.parametrize(("flags", "words"), [
    (("--length-buckets", "64,32"), "--length-buckets '64,32': give rising lengths"),
    (("--length-buckets", "64,"), "give rising lengths"),
    (("--length-buckets", "64", "--packing", "on"), "--packing on leaves no padding"),
    (("--pack-to", "64", "--packing", "off"), "--pack-to pads packed rows"),
    (("--qlora-wide-outputs",), "give --block-kernel reference too"),
    (("--lora-dropout", "1"), "--lora-dropout 1: nothing would be left"),
    (("--lora-dropout", "-0.1"), "--lora-dropout"),
    (("--lora-rank", "0"), "--lora-rank"),
    (("--size", "7b"), "unknown size '7b'"),
])
def test_flags_that_cannot_be(program, flags, words) -> None:
    done = program("finetune", *flags, "--plan")
    assert done.returncode == 2 and words in done.stderr, done.stderr
    assert len(done.stderr.strip().splitlines()) == 1


@pytest.mark.parametrize("ranks", (1, 2))
@pytest.mark.parametrize("folder", ("/proc/self/model", "file", "file/below"))
def test_a_save_folder_that_cannot_be_is_told_before_training(
    program, tmp_path, folder: str, ranks: int
) -> None:
    (tmp_path / "file").write_text("kept")
    out = tmp_path / "x.h5"
    done = program("finetune", "--case", "full-4x4", *QUICK, "--save", folder, "--out", out,
                   ranks=ranks, timeout=120)
    assert done.returncode == 2 and f"--save {folder}: " in done.stderr, done.stderr
    assert len(done.stderr.strip().splitlines()) == 1
    assert [path.name for path in tmp_path.iterdir()] == ["file"], "nothing is begun"


def test_data_that_cannot_be_read(program, tmp_path) -> None:
    done = program("finetune", "--data", tmp_path / "none.h5")
    assert done.returncode == 1 and "none.h5: no such file" in done.stderr
    (tmp_path / "text.h5").write_text("no HDF5 at all")
    done = program("finetune", "--data", tmp_path / "text.h5")
    assert done.returncode == 1 and "no HDF5 file, or cut short" in done.stderr


def test_repeats_differ_in_their_seed(program, tmp_path) -> None:
    """What a seed alone moves is the spread that losses are judged by."""
    out = tmp_path / "seeds.h5"
    done = program("finetune", "--case", "full-4x4", *QUICK, "--repeats", "2", "--out", out,
                   timeout=200)
    assert done.returncode == 0, done.stderr
    with h5py.File(out) as file:
        rows = [dict(file[f"finetune/tiny-full-4x4/{repeat}"].attrs) for repeat in range(2)]
    assert [row["seed"] for row in rows] == [1, 2]
    assert rows[0]["initial_weights_hash"] != rows[1]["initial_weights_hash"]


def test_the_files_examples_are_what_trains(program, tmp_path) -> None:
    """Their counts, and their tokens by number and by value."""
    lengths = (3, 50, 7, 90, 11)
    train = [Example([(7 * i + n) % 500 for i in range(n)], [(n // 2, n)]) for n in lengths]
    for name, examples in (("a", train), ("b", [*train[:4], Example([9] * 11, [(5, 11)])])):
        token_file.write(str(tmp_path / f"{name}.h5"), TokenFile(
            split_of(examples), split_of(train[1:3]), {"vocabulary": 512, "limit_tokens": 512}))

    def row(name: str, *flags: str) -> tuple[dict, float]:
        out = tmp_path / f"{name}{len(flags)}-rows.h5"
        done = program("finetune", "--data", tmp_path / f"{name}.h5", "--case", "full-5x1",
                       "--micro-batch", "5", "--accumulate", "1", "--steps", "1", *flags,
                       "--out", out, timeout=200)
        assert done.returncode == 0, done.stderr
        with h5py.File(out) as file:
            case = file["finetune/tiny-full-5x1/0"]
            return dict(case.attrs), case["effective_tokens"][0, 0]

    mine, tokens = row("a")
    assert mine["data"] == str(tmp_path / "a.h5") and mine["train_examples"] == 5
    assert mine["held_out"] == 2 and tokens == sum(lengths)
    other, _ = row("b")
    assert other["tokens_hash"] != mine["tokens_hash"]
    assert other["held_out_loss_before"] == mine["held_out_loss_before"]
    assert other["held_out_loss_after"] != mine["held_out_loss_after"]
    assert row("a", "--train-examples", "2")[1] == 53
    done = program("finetune", "--data", tmp_path / "a.h5", "--train-examples", "6", "--plan")
    assert done.returncode == 2 and "has 5" in done.stderr


def test_an_upcast_is_qloras_alone(program, tmp_path) -> None:
    """--qlora-upcast changes neither what LoRA holds nor what is foretold of it."""
    def weights(*flags: str) -> tuple[dict[str, int], dict[str, int]]:
        path = tmp_path / f"{len(flags)}.h5"
        done = program("finetune", "--case", "*lora-4x4", "--precision", "bf16", *QUICK, *flags,
                       "--out", path)
        assert done.returncode == 0, done.stderr
        with h5py.File(path) as file:
            rows = {name: dict(case["0"].attrs) for name, case in file["finetune"].items()}
        held = {name: sum(row[key] for key in row if key.startswith("weight_bytes_"))
                for name, row in rows.items()}
        foretold = {name: row["predicted_bytes"] for name, row in rows.items()}
        for name, row in rows.items():
            assert row["predicted_weight_bytes"] == held[name], name
        return held, foretold

    plain, upcast = weights(), weights("--qlora-upcast")
    for before, after in zip(plain, upcast, strict=True):
        assert after["tiny-lora-4x4"] == before["tiny-lora-4x4"]
        assert after["tiny-qlora-4x4"] > before["tiny-qlora-4x4"]
    # Maxima in a byte each, and of each of the 8 matrices one block's maximum, an offset and a map.
    nested = weights("--nf4-double-quant", "--seed", "1")
    matrices = (128 * 64, 64 * 64, 384 * 64, 64 * 192)
    saved = 2 * sum(3 * (values // 64) - 4 * (2 + 256) - 4 * (-(-values // (64 * 256)) - 1)
                    for values in matrices)
    assert plain[0]["tiny-qlora-4x4"] - nested[0]["tiny-qlora-4x4"] == saved


def test_a_model_folder_names_the_size_of_this_suite_alone(program, tmp_path) -> None:
    done = program("ddp", "--model", tmp_path, "--plan")
    assert done.returncode == 0, done.stderr
    assert "tiny-plain" in done.stdout and "124m-plain" not in done.stdout


def test_the_published_recipe_foretells_what_turns_its_order(program, tmp_path) -> None:
    """QLoRA's SwiGLU in fp32: two bytes more of three times the hidden width, a token and layer."""
    out, hidden, layers = tmp_path / "published.h5", 192, 2
    done = program("finetune", "--recipe", "published", "--precision", "bf16", "--accumulate", "1",
                   "--case", "lora-4x1", "--case", "qlora-4x1", *QUICK, "--out", out)
    assert done.returncode == 0, done.stderr
    with h5py.File(out) as file:
        lora, qlora = (file[f"finetune/tiny-{method}-4x1/0"] for method in ("lora", "qlora"))
        assert "predicted_wide_output_bytes" not in lora.attrs
        assert qlora.attrs["qlora_wide_outputs"] == qlora.attrs["qlora_upcast"] == 1
        assert qlora.attrs["predicted_wide_output_bytes"] == (
            qlora["tokens"][0].max() * layers * 3 * hidden * 2)
