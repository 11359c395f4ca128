"""Adapted and quantized linear layers against peft and bitsandbytes, fp32 on a CPU."""

import pytest
import torch
from bitsandbytes import functional
from gpt2_pair import relative_difference
from peft import LoraConfig, get_peft_model

TOLERANCE = 1e-5
RANK, ALPHA = 4, 8.0


class Joint(torch.nn.Module):
    """Layers that share their input, as q, k and v do."""

    def __init__(self, rows: tuple[int, ...], columns: int) -> None:
        super().__init__()
        self.parts = torch.nn.ModuleList([torch.nn.Linear(columns, out) for out in rows])

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.cat([part(x) for part in self.parts], dim=-1)


def pair(rows: tuple[int, ...], columns: int, quantized: bool):
    """peft's model (with the quantized weights' values in its base), our tensors."""
    torch.manual_seed(len(rows))
    base = Joint(rows, columns)
    weight = torch.cat([part.weight.detach() for part in base.parts])
    bias = torch.cat([part.bias.detach() for part in base.parts])
    if quantized:
        packed, state = functional.quantize_4bit(weight, blocksize=64, quant_type="nf4")
        back = functional.dequantize_4bit(packed, state)
        with torch.no_grad():
            for part, piece in zip(base.parts, back.split(list(rows)), strict=True):
                part.weight.copy_(piece)
    names = [f"parts.{i}" for i in range(len(rows))]
    model = get_peft_model(base, LoraConfig(r=RANK, lora_alpha=ALPHA, target_modules=names))
    layers = [model.base_model.model.parts[i] for i in range(len(rows))]
    a = torch.cat([layer.lora_A["default"].weight.detach() for layer in layers])
    b = torch.cat([layer.lora_B["default"].weight.detach() for layer in layers])
    return model, layers, weight, bias, a.clone(), b.clone()


def own(ops, x, weight, bias, a, b, rows, quantized: bool) -> torch.Tensor:
    codes, absmax = ops.nf4_quantize(weight) if quantized else (None, None)
    dense = None if quantized else weight
    return ops.linear(x, dense, codes, absmax, sum(rows), bias, a, b, rows, ALPHA / RANK)


@pytest.mark.parametrize("quantized", [False, True], ids=["dense", "nf4"])
@pytest.mark.parametrize("rows", [(96,), (128, 64, 64), (192, 192)], ids=str)
def test_output_and_gradients_and_twenty_steps(ops, rows, quantized: bool) -> None:
    model, layers, weight, bias, a, b = pair(rows, 128, quantized)
    a, b = a.requires_grad_(), b.requires_grad_()
    assert torch.count_nonzero(b) == 0
    theirs = torch.optim.AdamW([p for p in model.parameters() if p.requires_grad], lr=0.05)
    mine = torch.optim.AdamW([a, b], lr=0.05)
    for step in range(20):
        generator = torch.Generator().manual_seed(step)
        x = torch.randn(37, 128, generator=generator)
        target = torch.randn(37, sum(rows), generator=generator)
        x_theirs, x_mine = x.clone().requires_grad_(), x.clone().requires_grad_()
        expected = model(x_theirs)
        out = own(ops, x_mine, weight, bias, a, b, rows, quantized)
        assert relative_difference(out.detach(), expected.detach()) <= TOLERANCE
        for loss, optimizer in ((expected, theirs), (out, mine)):
            optimizer.zero_grad()
            (loss - target).square().mean().backward()
        assert relative_difference(x_mine.grad, x_theirs.grad) <= TOLERANCE
        grad_a = torch.cat([layer.lora_A["default"].weight.grad for layer in layers])
        grad_b = torch.cat([layer.lora_B["default"].weight.grad for layer in layers])
        assert (a.grad - grad_a).norm() <= TOLERANCE * max(1e-3, grad_a.norm())
        assert relative_difference(b.grad, grad_b) <= TOLERANCE
        theirs.step()
        mine.step()
    assert torch.count_nonzero(b) == b.numel()
    expected_b = torch.cat([layer.lora_B["default"].weight.detach() for layer in layers])
    assert relative_difference(b.detach(), expected_b) <= 1e-4


def test_a_frozen_quantized_layer_without_adapters(ops) -> None:
    weight = torch.randn(96, 64)
    x = torch.randn(5, 64, requires_grad=True)
    codes, absmax = ops.nf4_quantize(weight)
    out = ops.linear(x, None, codes, absmax, 96, None, None, None, [], 1.0)
    dense = ops.nf4_dequantize(codes, absmax, weight.shape, torch.float32)
    assert torch.equal(out, x @ dense.T)
    upstream = torch.randn(5, 96)
    assert torch.equal(torch.autograd.grad(out, x, upstream)[0], upstream @ dense)


def test_backward_keeps_no_dequantized_weight(ops) -> None:
    """Beside the weight as it is stored: the input and the adapters' inner activations."""
    weight, a, b = torch.randn(256, 128), torch.randn(8, 128), torch.zeros(256, 4)
    codes, absmax = ops.nf4_quantize(weight)
    x = torch.randn(5, 128, requires_grad=True)
    kept = []
    with torch.autograd.graph.saved_tensors_hooks(lambda t: kept.append(t) or t, lambda t: t):
        ops.linear(x, None, codes, absmax, 256, None, a.requires_grad_(), b.requires_grad_(),
                   [128, 128], 2.0)
    assert sorted(tuple(tensor.shape) for tensor in kept) == [(5, 8), (5, 128)]


def test_adapters_of_the_wrong_shape_are_refused(ops) -> None:
    x, weight = torch.randn(5, 64), torch.randn(96, 64)
    with pytest.raises(RuntimeError, match="rows that add up to 96"):
        ops.linear(x, weight, None, None, 96, None, torch.randn(4, 64), torch.zeros(96, 4),
                   [64], 1.0)


class FixedMask(torch.nn.Module):
    """Dropout whose mask is given."""

    def __init__(self, factor: torch.Tensor) -> None:
        super().__init__()
        self.factor = factor

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x * self.factor


@pytest.mark.parametrize("quantized", [False, True], ids=["dense", "nf4"])
@pytest.mark.parametrize("rows", [(96,), (128, 64, 64)], ids=str)
def test_dropout_is_pefts_with_the_same_mask(ops, rows, quantized: bool) -> None:
    """Of the adapters' input alone; output and every gradient."""
    model, layers, weight, bias, a, b = pair(rows, 128, quantized)
    b.normal_(generator=torch.Generator().manual_seed(3))
    a, b = a.requires_grad_(), b.requires_grad_()
    x = torch.randn(37, 128, generator=torch.Generator().manual_seed(4))
    counter = torch.tensor([12345])
    mask = ops.adapter_dropout(torch.ones_like(x), counter, 2, 0.3)
    with torch.no_grad():
        for layer, piece in zip(layers, b.split(list(rows)), strict=True):
            layer.lora_B["default"].weight.copy_(piece)
            layer.lora_dropout["default"] = FixedMask(mask)
    x_theirs, x_mine = x.clone().requires_grad_(), x.clone().requires_grad_()
    codes, absmax = ops.nf4_quantize(weight) if quantized else (None, None)
    out = ops.linear(x_mine, None if quantized else weight, codes, absmax, sum(rows), bias, a, b,
                     rows, ALPHA / RANK, 0.3, counter, 2)
    expected = model(x_theirs)
    assert relative_difference(out.detach(), expected.detach()) <= TOLERANCE
    for result in (out, expected):
        result.square().sum().backward()
    assert relative_difference(x_mine.grad, x_theirs.grad) <= TOLERANCE
    for mine, name in ((a, "lora_A"), (b, "lora_B")):
        theirs = torch.cat([getattr(layer, name)["default"].weight.grad for layer in layers])
        assert relative_difference(mine.grad, theirs) <= TOLERANCE


@pytest.mark.parametrize("dtype", (torch.float32, torch.bfloat16), ids=str)
def test_masks_keep_their_share_and_differ(ops, dtype: torch.dtype) -> None:
    """Values are 0 or x / (1 - p); another counter or layer is another mask, the same one the same."""
    x = torch.full((400, 501), 3.0, dtype=dtype)
    counters = torch.arange(2).unsqueeze(1)
    masks = [ops.adapter_dropout(x, counters[c], layer, 0.25) for c, layer in ((0, 0), (0, 1), (1, 0))]
    assert torch.equal(masks[0], ops.adapter_dropout(x, counters[0], 0, 0.25))
    deviation = (0.25 * 0.75 / x.numel()) ** 0.5
    for number, mask in enumerate(masks):
        assert set(mask.unique().tolist()) == {0.0, 4.0}
        assert abs((mask == 0).double().mean().item() - 0.25) < 5 * deviation
        for other in masks[:number]:  # as independent ones agree
            agree = (mask == other).double().mean().item()
            assert abs(agree - (0.25**2 + 0.75**2)) < 0.01
    neighbours = (masks[0][:, 1:] == masks[0][:, :-1]).double().mean().item()
    assert abs(neighbours - (0.25**2 + 0.75**2)) < 0.01
    assert ops.adapter_dropout(x, counters[0], 0, 0.0) is not None
    assert torch.equal(ops.adapter_dropout(x, counters[0], 0, 0.0), x)
