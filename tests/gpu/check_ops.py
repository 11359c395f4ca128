"""Compares every CUDA op of libtrainsuite_ops.so with PyTorch's own operators or the CPU.

    python tests/gpu/check_ops.py --library build/src/model/libtrainsuite_ops.so

Exit status 1 when a comparison fails. Then prints a table of times (`--no-timing` leaves it out).
"""

import argparse
import itertools
import sys
from collections.abc import Callable, Sequence

import torch
from check_adamw import check_adamw
from time_ops import print_timings

Tensors = Sequence[torch.Tensor]
DTYPES = (torch.float32, torch.bfloat16)
ROWS = (1, 3, 4, 5, 129, 2111)


class Report:
    """Counts comparisons; prints the failed ones and a line for each group."""

    def __init__(self) -> None:
        self.checks, self.failures, self.worst = 0, 0, 0.0

    def check(self, ok: bool, what: str) -> None:
        self.checks += 1
        if not ok:
            self.failures += 1
            print(f"FAILED {what}")

    def near(self, mine: torch.Tensor, exact: torch.Tensor, bound: float, what: str) -> None:
        """Norm of the difference over the norm, or absolutely where the norm is 0."""
        error = difference(mine, exact)
        self.worst = max(self.worst, error / bound)
        self.check(error <= bound, f"{what}: differs by {error:.2e}, bound {bound:.1e}")

    def equal(self, mine: torch.Tensor, other: torch.Tensor, what: str) -> None:
        self.check(torch.equal(mine.cpu(), other.cpu()), f"{what}: not bit-equal")

    def group(self, name: str) -> None:
        print(f"{name}: {self.checks} comparisons, {self.failures} failed, "
              f"largest error {self.worst:.2f} of its bound", flush=True)
        self.worst = 0.0


def difference(mine: torch.Tensor, exact: torch.Tensor) -> float:
    """In fp64; NaN counts as infinite."""
    mine, exact = mine.double().cpu(), exact.double().cpu()
    error = ((mine - exact).norm() / exact.norm().clamp(min=1e-30)).item()
    return error if error == error else float("inf")


def leaf(*shape: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    return torch.randn(*shape, device="cuda").to(dtype).requires_grad_()


def both(function: Callable[..., Tensors], inputs: Tensors, upstream: Tensors) -> list:
    """Outputs and gradients."""
    out = function(*inputs)
    return [*out, *torch.autograd.grad(out, inputs, upstream)]


def check_hashes(ops, report: Report) -> None:
    for examples, length in itertools.product((0, 1, 7, 300), (0, 1, 33, 1025)):
        arguments = (5, 3, 11, examples, length, 50257)
        report.equal(ops.random_tokens(*arguments, "cuda"), ops.random_tokens(*arguments, "cpu"),
                     f"random_tokens {arguments}")
    for shape in ([0], [1], [255], [50304, 64]):
        report.equal(ops.initial_parameter(shape, 1, 3, 0.02, 0, "cuda"),
                     ops.initial_parameter(shape, 1, 3, 0.02, 0, "cpu"), f"parameter {shape}")
    for count, dtype in itertools.product((0, 1, 3, 8, 1001, 1 << 22), (*DTYPES, torch.int64)):
        data = torch.randn(count + 1).mul(100).to(dtype)
        for name, view in (("", data[:count]), (" at an odd place", data[1:])):
            on_gpu = data.cuda()[1:] if name else data.cuda()[:count]
            report.equal(ops.tensor_hash(on_gpu), ops.tensor_hash(view),
                         f"tensor_hash of {count} {dtype}{name}")
    strided = torch.randn(37, 21).t()
    report.equal(ops.tensor_hash(strided.cuda()), ops.tensor_hash(strided), "tensor_hash strided")
    report.group("hashes")


def loss_reference(x, weight, targets, scale, dtype):
    logits = x.to(dtype) @ weight.to(dtype).T
    logits = logits.float() if dtype != torch.float64 else logits
    loss = torch.nn.functional.cross_entropy(logits, targets, reduction="sum") * scale
    return [loss.float()]


def check_loss(ops, report: Report) -> None:
    vocabularies = (1, 2, 7, 8, 509, 4096, 32000, 50257, 50304, 151936)
    for dtype, vocabulary in itertools.product(DTYPES, vocabularies):
        rows = 37 if vocabulary > 100000 else 301
        x, weight = leaf(rows, 64, dtype=dtype), leaf(vocabulary, 64, dtype=dtype)
        targets = torch.randint(vocabulary, (rows,), device="cuda")
        targets[::5] = -100
        upstream = [torch.tensor(2.0, device="cuda")]
        scale, what = 0.01, f"linear_cross_entropy {dtype} {rows} x {vocabulary}"
        mine = both(lambda a, b: [ops.linear_cross_entropy(a, b, targets, scale)], (x, weight),
                    upstream)
        exact = both(lambda a, b: loss_reference(a, b, targets, scale, torch.float64), (x, weight),
                     upstream)
        theirs = both(lambda a, b: loss_reference(a, b, targets, scale, dtype), (x, weight),
                      upstream)
        again = both(lambda a, b: [ops.linear_cross_entropy(a, b, targets, scale)], (x, weight),
                     upstream)
        with torch.no_grad():
            alone = ops.linear_cross_entropy(x, weight, targets, scale)
        report.equal(alone, mine[0], f"{what} without gradient")
        for name, a, b, c, d in zip(("loss", "dx", "dweight"), mine, exact, theirs, again):
            report.equal(a, d, f"{what} {name} of a second run")
            bound = 1.2 * difference(c, b) + (2e-6 if vocabulary > 1 else 1e-6)
            report.near(a, b, bound, f"{what} {name}")
    x, weight = leaf(5, 64), leaf(50, 64)
    none = torch.full((5,), -100, device="cuda")
    zeros = both(lambda a, b: [ops.linear_cross_entropy(a, b, none, 1.0)], (x, weight),
                 [torch.ones((), device="cuda")])
    report.check(all(not tensor.any() for tensor in zeros), "all targets ignored: zeros")
    beyond = torch.full((5,), 50, device="cuda")
    report.check(bool(ops.linear_cross_entropy(x, weight, beyond, 1.0).isnan()),
                 "a target outside the vocabulary: NaN")
    report.check(ops.linear_cross_entropy(x[:0], weight, none[:0], 1.0).item() == 0, "no tokens")
    odd = leaf(4 * 64 + 1)[1:].view(4, 64)
    targets = torch.arange(4, device="cuda")
    report.near(ops.linear_cross_entropy(odd, weight, targets, 1.0),
                loss_reference(odd, weight, targets, 1.0, torch.float64)[0], 1e-5, "odd place")
    report.group("linear_cross_entropy")


def add_layer_norm_reference(residual, delta, delta_bias, weight, bias):
    total = residual + (delta.to(residual.dtype) + delta_bias.to(residual.dtype))
    normalized = torch.nn.functional.layer_norm(total, weight.shape, weight, bias)
    return total, normalized.to(delta.dtype)


def check_layer_norm(ops, report: Report) -> None:
    widths = (4, 64, 252, 256, 260, 768, 1000, 1024, 1600, 2048)
    for dtype, width, rows in itertools.product(DTYPES, widths, ROWS):
        what = f"{dtype} {rows} x {width}"
        bound = 3e-5 if dtype == torch.float32 else 6e-3
        residual, weight, bias = leaf(rows, width), leaf(width), leaf(width)
        delta, delta_bias = leaf(rows, width, dtype=dtype), leaf(width, dtype=dtype)
        up = [torch.randn(rows, width, device="cuda"),
              torch.randn(rows, width, device="cuda").to(dtype)]
        inputs = (residual, delta, delta_bias, weight, bias)
        mine = both(ops.add_layer_norm, inputs, up)
        for i, (a, b, c) in enumerate(zip(mine, both(add_layer_norm_reference, inputs, up),
                                          both(ops.add_layer_norm, inputs, up))):
            report.equal(a, c, f"add_layer_norm {what} [{i}] of a second run")
            report.near(a, b, bound, f"add_layer_norm {what} [{i}]")
        cast = (residual, weight, bias)
        mine = both(lambda *p: ops.layer_norm_cast(*p, dtype), cast, up)
        theirs = both(lambda x, w, b: [x.clone(), torch.nn.functional.layer_norm(
            x, (width,), w, b).to(dtype)], cast, up)
        for i, (a, b) in enumerate(zip(mine, theirs)):
            report.near(a, b, bound, f"layer_norm_cast {what} [{i}]")
        turned = (residual.detach().t().contiguous().t().requires_grad_(), weight, bias)
        for i, (a, b) in enumerate(zip(both(lambda *p: ops.layer_norm_cast(*p, dtype), turned, up),
                                       mine)):
            report.equal(a, b, f"layer_norm_cast {what} [{i}] of an x that is not contiguous")
        unused = torch.autograd.grad(ops.add_layer_norm(*inputs)[1], inputs, up[1])
        expected = torch.autograd.grad(add_layer_norm_reference(*inputs)[1], inputs, up[1])
        for i, (a, b) in enumerate(zip(unused, expected)):
            report.near(a, b, bound, f"add_layer_norm {what} without the sum [{i}]")
    report.group("layer norm")


def check_bias_gelu(ops, report: Report) -> None:
    def reference(x, bias):
        active = torch.nn.functional.gelu(x.float() + bias.float(), approximate="tanh")
        return [active.to(x.dtype)]

    widths = (8, 64, 248, 256, 264, 3072, 4096)
    for dtype, width, rows in itertools.product(DTYPES, widths, ROWS):
        x, bias = leaf(rows, width, dtype=dtype), leaf(width, dtype=dtype)
        with torch.no_grad():
            x[0, :8] = torch.tensor([0, -60, 60, 1e4, -1e4, 1e-20, -5, 5.0])
        upstream = [torch.randn(rows, width, device="cuda").to(dtype)]
        bound = 2e-6 if dtype == torch.float32 else 4e-3
        for i, (a, b, c) in enumerate(zip(both(lambda *p: [ops.bias_gelu(*p)], (x, bias), upstream),
                                          both(reference, (x, bias), upstream),
                                          both(lambda *p: [ops.bias_gelu(*p)], (x, bias),
                                               upstream))):
            report.equal(a, c, f"bias_gelu {dtype} {rows} x {width} [{i}] of a second run")
            report.near(a, b, bound, f"bias_gelu {dtype} {rows} x {width} [{i}]")
    report.group("bias_gelu")


def model_run(ops, device: str, compute: torch.dtype, fused: bool) -> list[torch.Tensor]:
    parameters = [p.requires_grad_() for p in ops.initial_parameters("tiny", 509, 64, 1, device)]
    order, low = ops.gpt2_uses("tiny")
    uses = [parameters[i].to(compute) if c else parameters[i] for i, c in zip(order, low)]
    tokens = ops.random_tokens(1, 0, 0, 8, 65, 509, device)
    loss = ops.gpt2_loss(uses, tokens, 2, 4, 1 / 512, fused, False, fused)
    return [loss.detach(), *torch.autograd.grad(loss, parameters)]


def check_model(ops, report: Report) -> None:
    names = ["loss", *ops.gpt2_parameter_names("tiny")]
    exact = model_run(ops, "cpu", torch.float32, False)
    plain = model_run(ops, "cuda", torch.bfloat16, False)
    for fused in (False, True):
        in_fp32 = model_run(ops, "cuda", torch.float32, fused)
        in_bf16 = model_run(ops, "cuda", torch.bfloat16, fused)
        for name, reference, a, b, c in zip(names, exact, in_fp32, in_bf16, plain):
            report.near(a, reference, 1e-4, f"tiny model fp32 fused={fused} {name}")
            report.near(b, reference, 1.5 * difference(c, reference) + 1e-4,
                        f"tiny model bf16 fused={fused} {name}")
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        on_side = model_run(ops, "cuda", torch.bfloat16, True)
    side.synchronize()
    report.near(on_side[0], plain[0], 1e-3, "tiny model on another stream")
    for kernel in ("flash", "efficient", "math", "cudnn"):
        ops.use_attention(kernel)
        report.near(model_run(ops, "cuda", torch.bfloat16, True)[0], exact[0], 1e-2, kernel)
    ops.use_attention("automatic")
    report.group("model")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--library", required=True, help="path of libtrainsuite_ops.so")
    parser.add_argument("--no-timing", action="store_true")
    options = parser.parse_args()
    torch.ops.load_library(options.library)
    ops, report = torch.ops.trainsuite, Report()
    torch.manual_seed(1)
    torch.backends.cuda.matmul.allow_tf32 = False
    for check in (check_hashes, check_loss, check_layer_norm, check_bias_gelu, check_adamw,
                  check_model):
        check(ops, report)
    torch.cuda.synchronize()
    print(f"{report.checks} comparisons, {report.failures} failed")
    if not options.no_timing:
        print_timings(ops)
    return 1 if report.failures else 0


if __name__ == "__main__":
    sys.exit(main())
