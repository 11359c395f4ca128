"""NF4 on a CPU against bitsandbytes: the same bits.

Its AVX-512 dequantization of rows that are no multiple of the block takes some maxima from
neighbouring blocks; such shapes are compared with its portable implementation.
"""

import pytest
import torch
from bitsandbytes import functional
from bitsandbytes.backends.default.ops import _dequantize_4bit_compute

DTYPES = (torch.float32, torch.bfloat16, torch.float16)
SHAPES = ((64,), (1,), (63,), (65,), (3, 64), (7, 191), (129, 257), (2, 3, 80), (128, 1536))


def values(shape: tuple[int, ...], dtype: torch.dtype) -> torch.Tensor:
    generator = torch.Generator().manual_seed(sum(shape))
    return torch.randn(shape, generator=generator).to(dtype)


def theirs(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, functional.QuantState]:
    packed, state = functional.quantize_4bit(x, blocksize=64, quant_type="nf4")
    return packed.flatten(), state.absmax, state


def dequantized(packed, state, shape: tuple[int, ...], dtype: torch.dtype) -> torch.Tensor:
    """bitsandbytes' values, flat."""
    if shape[-1] % 64 == 0:
        state.dtype = dtype
        return functional.dequantize_4bit(packed.view(-1, 1), state).flatten()
    code = functional.get_4bit_type("nf4", device="cpu")
    portable = _dequantize_4bit_compute.__wrapped__  # without torch.compile
    count = torch.Size(shape).numel()
    return portable(packed, state.absmax, code, 64, (count,), dtype).flatten()


def assert_same_codes(ops, x: torch.Tensor):
    packed, absmax, state = theirs(x)
    codes, maxima = ops.nf4_quantize(x)
    assert torch.equal(codes, packed)
    assert torch.equal(maxima.nan_to_num(nan=-1.0), absmax.nan_to_num(nan=-1.0))
    return codes, maxima, packed, state


def assert_same_bits(ops, x: torch.Tensor) -> None:
    codes, maxima, packed, state = assert_same_codes(ops, x)
    for dtype in DTYPES:
        back = dequantized(packed, state, x.shape, dtype)
        mine = ops.nf4_dequantize(codes, maxima, x.shape, dtype)
        assert mine.shape == x.shape and mine.dtype == dtype
        assert torch.equal(mine.flatten(), back), dtype


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_same_bits_as_bitsandbytes(ops, shape: tuple[int, ...], dtype: torch.dtype) -> None:
    assert_same_bits(ops, values(shape, dtype))


def test_strides_do_not_matter(ops) -> None:
    x = values((48, 80), torch.float32)
    for view in (x.t(), x[::2], x[:, 3:67]):
        for mine, expected in zip(ops.nf4_quantize(view), ops.nf4_quantize(view.clone(
                memory_format=torch.contiguous_format)), strict=True):
            assert torch.equal(mine, expected)
        assert_same_bits(ops, view.contiguous())


def test_every_code_and_the_midpoints_between_them(ops) -> None:
    code = functional.get_4bit_type("nf4", device="cpu")
    middle = (code[1:] + code[:-1]) / 2
    near = torch.cat([code, middle, torch.nextafter(middle, middle + 1),
                      torch.nextafter(middle, middle - 1)])
    x = torch.cat([near, torch.ones(64 - near.numel() % 64)])
    for start in range(0, x.numel(), 32):
        block = torch.cat([x[start : start + 32], torch.ones(32)])
        for scale in (1.0, 0.3, 1e-30, 3e38):
            assert_same_bits(ops, block * scale)
        for scale in (1e-37, 1e-39):  # its bf16 instructions take subnormal values for zero
            assert_same_codes(ops, block * scale)


@pytest.mark.parametrize("value", [0.0, -0.0, 1e-45, float("inf"), -float("inf"), float("nan")])
def test_edge_blocks(ops, value: float) -> None:
    for count in (64, 100, 33):
        x = values((count,), torch.float32)
        x[5] = value
        assert_same_codes(ops, x)
    flat = torch.full((128,), value)
    codes, absmax = ops.nf4_quantize(flat)
    assert torch.equal(codes, theirs(flat)[0])
    back = ops.nf4_dequantize(codes, absmax, flat.shape, torch.float32)
    if value == 0:
        assert torch.equal(back, torch.zeros(128))
    elif not torch.isfinite(flat[0]):
        assert not torch.isfinite(back).any()


def test_storage_is_four_and_a_half_bits(ops) -> None:
    codes, absmax = ops.nf4_quantize(values((256, 1536), torch.bfloat16))
    assert codes.nbytes + absmax.nbytes == 256 * 1536 * 4.5 / 8


def test_shapes_on_the_meta_device(ops) -> None:
    codes, absmax = ops.nf4_quantize(torch.empty(3, 65, device="meta"))
    assert (codes.shape, absmax.shape) == ((98,), (4,))
    assert ops.nf4_dequantize(codes, absmax, [3, 65], torch.bfloat16).shape == (3, 65)


def test_bad_input_is_named(ops) -> None:
    codes, absmax = ops.nf4_quantize(torch.ones(128))
    with pytest.raises(RuntimeError, match="64 bytes of codes and 2 maxima do not fit 200 values"):
        ops.nf4_dequantize(codes, absmax, [200], torch.float32)
    with pytest.raises(RuntimeError, match="Long values are not supported"):
        ops.nf4_quantize(torch.ones(64, dtype=torch.long))


@pytest.mark.parametrize("kind", ("random", "partial", "large", "small", "zeros", "equal", "one", "some"))
def test_nested_maxima_as_bitsandbytes(ops, kind: str) -> None:
    """Double quantization: codes, their maxima, the offset, and the maxima that come back."""
    x = {
        "random": values((64 * 256 * 80,), torch.float32),
        "partial": values((64 * 257 + 5,), torch.float32),
        "large": values((64 * 512,), torch.float32) * 1e20,
        "small": values((64 * 512,), torch.float32) * 1e-30,
        "zeros": torch.zeros(64 * 300),
        "equal": torch.ones(64 * 600),
        "one": values((64,), torch.float32),
        "some": torch.cat([torch.zeros(64 * 256), values((64 * 256,), torch.float32)]),
    }[kind]
    _, state = functional.quantize_4bit(x, blocksize=64, quant_type="nf4", compress_statistics=True)
    codes, maxima, offset = ops.nf4_nested(ops.nf4_quantize(x)[1])
    assert torch.equal(codes, state.absmax.flatten())
    assert torch.equal(maxima, state.state2.absmax)
    assert torch.equal(offset, state.offset)
    back = functional.dequantize_blockwise(state.absmax, state.state2).flatten() + state.offset
    assert torch.equal(ops.nf4_nested_maxima(codes, maxima, offset), back)
