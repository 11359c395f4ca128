"""What makes a practitioner's QLoRA hold more than LoRA, and that --qlora-wide-outputs does the same."""

from __future__ import annotations

import math
from pathlib import Path

import pytest
import torch
from finetune_twin import CPU, WORLD, case_of, examples, write_data

import finetune_model
from finetune_data import collate
from finetune_train import Trainer

HEADS, KEY_HEADS, HEAD_WIDTH, WIDTH, HIDDEN, RANK = 4, 2, 16, 64, 192, 4
BATCH, SEQUENCE = 2, 8


@pytest.mark.parametrize("method", ("lora", "qlora"))
def test_the_practitioners_swiglu(ops, tmp_path: Path, method: str) -> None:
    """bitsandbytes gives its input's dtype, which the upcast norms make fp32; a bf16 base bf16."""
    path = write_data(tmp_path / "data.h5", examples((9, 5)), [])
    trainer = Trainer(case_of(method, 2, 1, "--data", path, "--precision", "bf16"), WORLD, None)
    seen = []
    for layer in finetune_model.decoder_layers(trainer.bare):
        layer.mlp.act_fn.register_forward_hook(
            lambda module, args, out: seen.append((args[0].dtype, out.dtype)))
    batch = collate(trainer.data.train, range(2), False)
    trainer.loss_sum(trainer.bare, batch, torch.tensor(1.0))
    dtype = torch.float32 if method == "qlora" else torch.bfloat16
    assert len(seen) == 2 and set(seen) == {(dtype, dtype)}


def block(ops) -> tuple[list[torch.Tensor], list[torch.Tensor]]:
    """Frozen tensors, as peft prepares them, and adapters of a quantized block."""
    generator = torch.Generator().manual_seed(1)
    rows = (HEADS + 2 * KEY_HEADS) * HEAD_WIDTH
    frozen, adapters = [], []
    for out, columns, parts in ((rows, WIDTH, 3), (WIDTH, HEADS * HEAD_WIDTH, 1),
                                (2 * HIDDEN, WIDTH, 2), (WIDTH, HIDDEN, 1)):
        if parts > 1:  # a norm stands before it
            frozen.append(torch.ones(WIDTH))
        weight = torch.randn(out, columns, generator=generator) / math.sqrt(columns)
        frozen += ops.nf4_quantize(weight.bfloat16())
        if parts == 3:
            frozen.append(torch.randn(out, generator=generator).bfloat16())
        adapters += [torch.randn(parts * RANK, columns, generator=generator).bfloat16() * 0.1,
                     torch.randn(out, RANK, generator=generator).bfloat16() * 0.1]
    return frozen, [adapter.requires_grad_() for adapter in adapters]


def run(ops, wide: bool) -> tuple[torch.Tensor, int]:
    """The block's output, and the bytes that its backward keeps besides its own tensors."""
    frozen, adapters = block(ops)
    x = torch.randn(BATCH, SEQUENCE, WIDTH, generator=torch.Generator().manual_seed(2))
    x.requires_grad_()
    angles = torch.outer(torch.arange(SEQUENCE), torch.ones(HEAD_WIDTH // 2))
    own = {tensor.untyped_storage().data_ptr() for tensor in (*frozen, *adapters, x)}
    kept: dict[int, torch.Tensor] = {}

    def keep(tensor: torch.Tensor) -> torch.Tensor:
        if tensor.untyped_storage().data_ptr() not in own:
            kept[tensor.untyped_storage().data_ptr()] = tensor
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
        y = ops.decoder_adapted_block(x, frozen, adapters, angles.cos(), angles.sin(), HEADS,
                                      KEY_HEADS, 1e-6, 2.0, False, False, wide)
    y.sum().backward()
    assert all(adapter.grad is not None for adapter in adapters)
    return y.detach(), sum(tensor.untyped_storage().nbytes() for tensor in kept.values())


def test_wide_outputs_keep_swiglu_in_fp32(ops) -> None:
    """3 x hidden values a token in fp32 instead of bf16, which the row's prediction says; and the
    output is no further from fp32's than bf16's roundings."""
    narrow, few = run(ops, wide=False)
    wide, many = run(ops, wide=True)
    assert many - few == BATCH * SEQUENCE * 3 * HIDDEN * 2
    assert narrow.dtype == wide.dtype == torch.float32 and narrow.device == CPU
    assert not torch.equal(narrow, wide)
    torch.testing.assert_close(narrow, wide, rtol=0.02, atol=0.05)
