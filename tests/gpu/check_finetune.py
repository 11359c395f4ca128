"""Compares the fine-tuning ops on a GPU with the CPU and PyTorch's own operators.

    python tests/gpu/check_finetune.py --library build/libtrainsuite_ops.so

Exit status 1 when a comparison fails. Prints NF4's rates beside a copy's.
"""

import argparse
import sys

import torch
from check_ops import Report

SHAPES = ((64,), (1,), (63,), (7, 191), (129, 257), (1536, 8960))
DTYPES = (torch.float32, torch.bfloat16, torch.float16)


def check_nf4(ops, report: Report) -> None:
    """The same bits as the CPU's."""
    for shape in SHAPES:
        for dtype in DTYPES:
            x = torch.randn(shape).to(dtype)
            x.view(-1)[0] = 0
            codes, absmax = ops.nf4_quantize(x)
            on_gpu = ops.nf4_quantize(x.cuda())
            what = f"{tuple(shape)} {dtype}"
            report.equal(on_gpu[0], codes, f"nf4 codes {what}")
            report.equal(on_gpu[1], absmax, f"nf4 maxima {what}")
            for out in DTYPES:
                report.equal(ops.nf4_dequantize(*on_gpu, shape, out),
                             ops.nf4_dequantize(codes, absmax, shape, out), f"nf4 back {what}")
    for value in (0.0, float("nan"), float("inf"), 1e-39):
        x = torch.randn(100)
        x[70] = value
        for mine, expected in zip(ops.nf4_quantize(x.cuda()), ops.nf4_quantize(x), strict=True):
            report.equal(mine.nan_to_num(-1), expected.nan_to_num(-1), f"nf4 of {value}")
    report.group("nf4")


def check_packed_attention(ops, report: Report) -> None:
    """One kernel over examples of different lengths against fp64 attention of each alone."""
    lengths = [3, 50, 1, 188, 512, 77]
    total = sum(lengths)
    bounds = torch.tensor([0, *lengths], dtype=torch.int32).cumsum(0).int().cuda()
    for heads, kv, width in ((12, 2, 128), (14, 2, 64), (16, 16, 64)):
        inputs = [torch.randn(total, h, width, device="cuda").bfloat16().requires_grad_()
                  for h in (heads, kv, kv)]
        out = ops.causal_attention(*inputs, 1, total, lengths, bounds, False)
        upstream = torch.randn_like(out)
        mine = [out, *torch.autograd.grad(out, inputs, upstream)]
        exact_in = [x.detach().double().requires_grad_() for x in inputs]
        exact_out = ops.causal_attention(*exact_in, 1, total, lengths, None, True)
        exact = [exact_out, *torch.autograd.grad(exact_out, exact_in, upstream.double())]
        for name, a, b in zip(("out", "q", "k", "v"), mine, exact, strict=True):
            report.near(a, b, 1.5e-2, f"packed attention {heads}/{kv}x{width} {name}")
    report.group("packed attention")


def check_adapters(ops, report: Report) -> None:
    """An adapted layer in bf16 on a dense and on an NF4 base against fp64."""
    rows, columns, rank, tokens = [256, 64, 64], 192, 16, 130
    weight = torch.randn(sum(rows), columns, device="cuda").mul(0.05).bfloat16()
    a = torch.randn(3 * rank, columns, device="cuda").mul(0.05).bfloat16().requires_grad_()
    b = torch.randn(sum(rows), rank, device="cuda").mul(0.05).bfloat16().requires_grad_()
    x = torch.randn(tokens, columns, device="cuda").bfloat16().requires_grad_()
    codes, absmax = ops.nf4_quantize(weight)
    for quantized in (False, True):
        base = ops.nf4_dequantize(codes, absmax, weight.shape, torch.bfloat16) if quantized \
            else weight
        y = ops.linear(x, None if quantized else weight, codes if quantized else None,
                       absmax if quantized else None, sum(rows), None, a, b, rows, 2.0)
        upstream = torch.randn_like(y)
        mine = [y, *torch.autograd.grad(y, [x, a, b], upstream)]
        wide = [t.detach().double().requires_grad_() for t in (x, a, b)]
        parts = [2.0 * (wide[0] @ wide[1][i * rank:(i + 1) * rank].T) @ piece.T
                 for i, piece in enumerate(wide[2].split(rows))]
        out = wide[0] @ base.double().T + torch.cat(parts, 1)
        exact = [out, *torch.autograd.grad(out, wide, upstream.double())]
        for name, one, other in zip(("y", "x", "a", "b"), mine, exact, strict=True):
            report.near(one, other, 1e-2, f"adapted layer, nf4={quantized}: {name}")
    report.group("adapters")


def block_parameters(heads: int, kv: int, head_width: int, hidden: int, wide: torch.dtype,
                     compute: torch.dtype) -> list[torch.Tensor]:
    """Norms in `wide`, matrices and biases in `compute`, in a block's order."""
    width, rows = heads * head_width, (heads + 2 * kv) * head_width
    shapes = ((width,), (rows, width), (rows,), (width, width), (width,), (2 * hidden, width),
              (width, hidden))
    values = [torch.randn(shape, device="cuda") * (0.1 if len(shape) == 1 else shape[-1] ** -0.5)
              for shape in shapes]
    for index in (0, 4):
        values[index] += 1
    return [value.to(wide if index in (0, 4) else compute).requires_grad_()
            for index, value in enumerate(values)]


def check_dropout(ops, report: Report) -> None:
    """The CPU's mask and values."""
    for dtype in (torch.float32, torch.bfloat16):
        for shape in ((1,), (3, 5), (700, 1536), (513, 8961)):
            x, counter = torch.randn(shape).to(dtype), torch.tensor([77 - (1 << 60)])
            report.equal(ops.adapter_dropout(x.cuda(), counter.cuda(), 3, 0.3),
                         ops.adapter_dropout(x, counter, 3, 0.3), f"dropout {shape} {dtype}")
    report.group("dropout")


def check_fused_blocks(ops, report: Report) -> None:
    """A decoder block of fused kernels against fp64 single operators, every gradient."""
    narrow, full = torch.bfloat16, torch.float32
    for heads, kv, head_width, hidden in ((12, 2, 128, 8960), (14, 2, 64, 4864), (4, 2, 16, 40)):
        cosine, sine = ops.rotary_table(37, head_width, 1e6, "cuda")
        for wide, compute in ((full, full), (full, narrow), (narrow, narrow)):
            p = block_parameters(heads, kv, head_width, hidden, wide, compute)
            x = torch.randn(3, 37, heads * head_width, device="cuda").to(wide).requires_grad_()
            shape = (heads, kv, 1e-6)
            y = ops.decoder_block(x, p, cosine, sine, *shape, compute == full, True)
            upstream = torch.randn_like(y)
            mine = [y, *torch.autograd.grad(y, [x, *p], upstream)]
            exact_in = [t.detach().double().requires_grad_() for t in (x, *p)]
            exact_y = ops.decoder_block(exact_in[0], exact_in[1:], cosine.double(), sine.double(),
                                        *shape, True, False)
            exact = [exact_y, *torch.autograd.grad(exact_y, exact_in, upstream.double())]
            bound = 2e-5 if compute == full else 2e-2
            for index, (one, other) in enumerate(zip(mine, exact, strict=True)):
                report.near(one, other, bound,
                            f"block {heads}x{head_width} {wide} {compute} tensor {index}")
    report.group("fused blocks")


def check_chunked_loss(ops, report: Report) -> None:
    """The tiny model with its logits in chunks against fp64 and whole logits."""
    values = ops.decoder_initial_parameters("tiny", 301, 1, "cuda")
    used, narrow = ops.decoder_uses("tiny")
    tokens = ops.random_tokens(1, 0, 0, 4, 51, 301, "cuda")
    targets = tokens[:, 1:].clone()
    targets[1, 20:] = -100
    for compute, bound in ((torch.float32, 2e-5), (torch.bfloat16, 3e-2)):
        uses = [values[i].detach().to(compute if n else torch.float32, copy=True).requires_grad_()
                for i, n in zip(used, narrow, strict=True)]
        exact_uses = [use.detach().double().requires_grad_() for use in uses]
        for chunk in (1, 40 * 301 * compute.itemsize):
            loss = ops.decoder_loss("tiny", uses, tokens[:, :-1], targets, 0.01,
                                    compute == torch.float32, True, False, True, chunk)
            exact = ops.decoder_loss("tiny", exact_uses, tokens[:, :-1], targets, 0.01, True,
                                     False)
            mine = [loss, *torch.autograd.grad(loss, uses)]
            wide = [exact, *torch.autograd.grad(exact, exact_uses)]
            for index, (one, other) in enumerate(zip(mine, wide, strict=True)):
                report.near(one, other, bound, f"chunks of {chunk} bytes, {compute}: {index}")
    report.group("chunked loss")


def rate(work, moved_bytes: float) -> float:
    """GB/s of 20 runs."""
    for _ in range(3):
        work()
    begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    begin.record()
    for _ in range(20):
        work()
    end.record()
    end.synchronize()
    return 20 * moved_bytes / begin.elapsed_time(end) / 1e6


def print_rates(ops) -> None:
    """Bytes read and written a second."""
    x = torch.randn(17920, 1536 * 8, device="cuda").bfloat16()
    codes, absmax = ops.nf4_quantize(x)
    stored = codes.nbytes + absmax.nbytes
    target = torch.empty_like(x)
    def back():
        return ops.nf4_dequantize(codes, absmax, x.shape, x.dtype)

    print(f"copy {rate(lambda: target.copy_(x), 2 * x.nbytes):.0f} GB/s, "
          f"nf4 quantize {rate(lambda: ops.nf4_quantize(x), x.nbytes + stored):.0f} GB/s, "
          f"dequantize {rate(back, x.nbytes + stored):.0f} GB/s")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--library", required=True)
    torch.ops.load_library(parser.parse_args().library)
    ops, report = torch.ops.trainsuite, Report()
    torch.manual_seed(1)
    for check in (check_nf4, check_packed_attention, check_adapters, check_dropout,
                  check_fused_blocks, check_chunked_loss):
        check(ops, report)
    print_rates(ops)
    return 1 if report.failures else 0


if __name__ == "__main__":
    sys.exit(main())
