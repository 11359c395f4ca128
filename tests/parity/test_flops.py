"""Operations that rows say a step takes, against PyTorch's own count (FlopCounterMode) over the
models of transformers and peft. Eager attention: it computes all pairs, so the uncausal figure."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import h5py
import pytest
import torch
import gpt2_pair
from decoder_pair import decoder_shape, own_parameters, transformers_model
from finetune_twin import examples, write_data
from peft import LoraConfig, get_peft_model
from torch.utils.flop_counter import FlopCounterMode

# Four a step: the second takes three, the third begins anew.
LENGTHS, STEPS = (9, 4, 12, 6, 5, 14, 8), 3
MATRICES = ["q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"]


def row(folder: Path, suite: str, case: str, *flags: str) -> dict[str, float]:
    """Attributes of the row of a case on a CPU."""
    out = folder / "row.h5"
    done = subprocess.run(
        [os.environ["TRAINSUITE_BINARY"], suite, "--case", case, "--warmup", "0", "--out", out,
         *flags], capture_output=True, text=True, timeout=200,
        env=os.environ | {"CUDA_VISIBLE_DEVICES": "", "OMP_NUM_THREADS": "1"}, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    with h5py.File(out) as file:
        return dict(file[f"{suite}/tiny-{case}/0"].attrs)


def counted(model: torch.nn.Module, tokens: torch.Tensor) -> float:
    """Operations of a forward and backward."""
    with FlopCounterMode(display=False) as counter:
        model(tokens).logits.sum().backward()
    return counter.get_total_flops()


def decoder(ops) -> torch.nn.Module:
    """transformers' model of size tiny."""
    shape = decoder_shape(ops, "tiny", 2, 512)
    return transformers_model(shape, own_parameters(ops, shape), "eager")


def counted_of_decoder(model: torch.nn.Module, batch: int, length: int) -> float:
    """Without the angles of the rotary embedding, which transformers multiplies as matrices."""
    angles = model.config.hidden_size // model.config.num_attention_heads * length
    return counted(model, torch.zeros((batch, length), dtype=torch.long)) - angles


@pytest.mark.parametrize("method", ("full", "lora", "qlora"))
def test_finetune(ops, tmp_path: Path, method: str) -> None:
    data = write_data(tmp_path / "data.h5", examples(LENGTHS), examples((6,), first=20))
    found = row(tmp_path, "finetune", f"{method}-2x2", "--data", data, "--micro-batch", "2",
                "--accumulate", "2", "--steps", str(STEPS))
    model = decoder(ops)
    if method != "full":
        model = get_peft_model(model, LoraConfig(r=16, lora_alpha=32, target_modules=MATRICES))
    taken = [*LENGTHS, *LENGTHS[:4]]
    expected = sum(counted_of_decoder(model, 1, length) for length in taken)
    assert found["flops_per_step_uncausal"] * STEPS == pytest.approx(expected, rel=1e-9)
    assert found["flops_per_token_uncausal"] == pytest.approx(expected / sum(taken), rel=1e-9)


def test_compile(ops, tmp_path: Path) -> None:
    found = row(tmp_path, "compile", "eager-sdpa", "--steps", "1", "--sequence", "48")
    assert found["flops_per_step_uncausal"] == counted_of_decoder(decoder(ops), 2, 48)


def test_ddp(ops, tmp_path: Path) -> None:
    found = row(tmp_path, "ddp", "1gpu", "--steps", "1", "--micro-batch", "2")
    shape = gpt2_pair.Shape("tiny", 2, 64, 4, int(found["vocabulary"]), int(found["sequence"]))
    model = gpt2_pair.transformers_model(gpt2_pair.own_parameters(ops, shape), shape, "eager")
    tokens = torch.zeros((2, shape.positions), dtype=torch.long)
    assert found["flops_per_step_uncausal"] == counted(model, tokens)
