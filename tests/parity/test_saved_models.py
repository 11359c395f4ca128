"""Model folders between transformers, peft and the program, on a CPU."""

import os
import subprocess
from pathlib import Path

import h5py
import pytest
import torch
from decoder_pair import transformers_loss
from peft import PeftModel
from transformers import (
    AutoModelForCausalLM,
    LlamaConfig,
    LlamaForCausalLM,
    Qwen2Config,
    Qwen2ForCausalLM,
)

SHAPE = {"vocab_size": 301, "hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 4,
         "num_attention_heads": 4, "num_key_value_heads": 2, "max_position_embeddings": 512}
HELD_OUT, TRAIN = 6, 12


def run(folder: Path, *flags: str | Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [os.environ["TRAINSUITE_BINARY"], "finetune", *map(str, flags)], cwd=folder,
        env=os.environ | {"CUDA_VISIBLE_DEVICES": "", "OMPI_ALLOW_RUN_AS_ROOT": "1",
                          "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"},
        capture_output=True, text=True, timeout=200, check=False)


def held_out_loss(model, ops) -> float:
    """Over the synthetic held-out examples, which follow the training ones."""
    total, labels = 0.0, 0
    for index in range(TRAIN, TRAIN + HELD_OUT):
        uniform = ops.random_tokens(1, 1 << 40, index, 1, 1, 1 << 16, "cpu").item()
        quantiles = [34, 62, 74, 85, 97, 111, 127, 144, 162, 183, 206, 230, 257, 287, 324, 379, 512]
        place, part = divmod(uniform * 16, 1 << 16)
        length = quantiles[place] + (quantiles[place + 1] - quantiles[place]) * part // (1 << 16)
        tokens = ops.random_tokens(1, (1 << 40) + 1, index, 1, length, 301, "cpu")
        with torch.no_grad():
            loss = transformers_loss(model(tokens[:, :-1]).logits, tokens[:, 1:])
        total += loss.item() * (length - 1)
        labels += length - 1
    return total / labels


@pytest.fixture(scope="module", params=["qwen2", "llama-shards"])
def base(request, tmp_path_factory) -> Path:
    """A folder that transformers wrote."""
    folder = tmp_path_factory.mktemp("base")
    torch.manual_seed(3)
    if request.param == "qwen2":
        model = Qwen2ForCausalLM(Qwen2Config(**SHAPE, tie_word_embeddings=True))
        model.save_pretrained(folder)
    else:
        model = LlamaForCausalLM(LlamaConfig(**SHAPE, tie_word_embeddings=False))
        model.save_pretrained(folder, max_shard_size="100KB")
        assert (folder / "model.safetensors.index.json").exists()
    return folder


def row_of(path: Path, case: str) -> dict:
    with h5py.File(path) as file:
        return dict(file[f"finetune/{case}/0"].attrs)


def train(folder: Path, base: Path, case: str, *flags: str | Path) -> dict:
    out = folder / f"{case}{len(flags)}.h5"
    done = run(folder, "--model", base, "--case", case, "--train-examples", TRAIN, "--held-out",
               HELD_OUT, "--steps", 2, "--learning-rate", "3e-3", "--out", out, *flags)
    assert done.returncode == 0, done.stdout + done.stderr
    return row_of(out, f"model-{case}")


def test_full_weights_go_and_come_back(base: Path, tmp_path: Path, ops) -> None:
    row = train(tmp_path, base, "full-4x4", "--save", tmp_path / "saved")
    before = held_out_loss(AutoModelForCausalLM.from_pretrained(base), ops)
    assert row["held_out_loss_before"] == pytest.approx(before, abs=2e-5)
    saved = tmp_path / "saved" / "model-full-4x4"
    after = held_out_loss(AutoModelForCausalLM.from_pretrained(saved, dtype=torch.float32), ops)
    assert row["held_out_loss_after"] == pytest.approx(after, abs=2e-5)
    assert abs(after - before) > 1e-3  # random tokens: training moves it, either way
    again = train(tmp_path, saved, "full-4x4")  # and by us
    assert again["held_out_loss_before"] == pytest.approx(after, abs=2e-5)
    assert again["parameters_total"] == row["parameters_total"]


def test_adapters_load_in_peft_and_merge(base: Path, tmp_path: Path, ops) -> None:
    dropout = ("--lora-dropout", "0.05")  # of training alone
    row = train(tmp_path, base, "lora-4x4", "--save", tmp_path / "adapters", *dropout)
    model = PeftModel.from_pretrained(AutoModelForCausalLM.from_pretrained(base),
                                      tmp_path / "adapters" / "model-lora-4x4")
    assert model.peft_config["default"].lora_dropout == row["lora_dropout"] == 0.05
    after = held_out_loss(model, ops)
    assert row["held_out_loss_after"] == pytest.approx(after, abs=2e-5)
    assert abs(after - row["held_out_loss_before"]) > 1e-4
    train(tmp_path, base, "lora-4x4", "--save", tmp_path / "merged", "--save-merged",
          *dropout)
    merged = AutoModelForCausalLM.from_pretrained(tmp_path / "merged" / "model-lora-4x4",
                                                  dtype=torch.float32)
    assert held_out_loss(merged, ops) == pytest.approx(after, abs=2e-5)


def test_a_quantized_base_is_merged_as_it_was_used(base: Path, tmp_path: Path, ops) -> None:
    row = train(tmp_path, base, "qlora-4x4", "--save", tmp_path / "merged", "--save-merged")
    merged = AutoModelForCausalLM.from_pretrained(tmp_path / "merged" / "model-qlora-4x4",
                                                  dtype=torch.float32)
    assert held_out_loss(merged, ops) == pytest.approx(row["held_out_loss_after"], abs=2e-5)


@pytest.mark.parametrize(("damage", "words"), [
    (lambda f: f.write_bytes(f.read_bytes()[:-100]), "the file is cut short"),
    (lambda f: f.write_bytes(f.read_bytes() + b"12"), "the tensors end at byte"),
    (lambda f: f.write_text("version https://git-lfs.github.com/spec/v1\n"), "Git LFS pointer"),
    (lambda f: f.unlink(), "neither model.safetensors nor"),
])
def test_damaged_weights_are_named_before_training(tmp_path: Path, damage, words: str) -> None:
    Qwen2ForCausalLM(Qwen2Config(**SHAPE)).save_pretrained(tmp_path / "m")
    damage(tmp_path / "m" / "model.safetensors")
    done = run(tmp_path, "--model", tmp_path / "m")
    assert done.returncode == 1 and words in done.stderr, done.stderr
    assert len(done.stderr.strip().splitlines()) == 1


@pytest.mark.parametrize(("old", "new", "words"), [
    ('"hidden_size": 64', '"hidden_size": 32', "and config.json asks for"),
    ('"model_type": "qwen2"', '"model_type": "gpt2"', "model_type '\"gpt2\"'"),
    ('"num_hidden_layers": 4', '"num_hidden_layers": 5', "is missing"),
    ('"num_hidden_layers": 4', '"num_hidden_layers": 3', "is of no qwen2 model"),
    ('"num_attention_heads": 4', '"num_attention_heads": 0', "num_attention_heads is missing"),
])
def test_a_configuration_that_does_not_fit(tmp_path: Path, old: str, new: str, words: str) -> None:
    Qwen2ForCausalLM(Qwen2Config(**SHAPE)).save_pretrained(tmp_path / "m")
    path = tmp_path / "m" / "config.json"
    assert old in path.read_text()
    path.write_text(path.read_text().replace(old, new))
    done = run(tmp_path, "--model", tmp_path / "m")
    assert done.returncode == 1 and words.replace("'\"gpt2\"'", "'gpt2'") in done.stderr, done.stderr
