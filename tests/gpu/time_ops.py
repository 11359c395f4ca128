"""Times the CUDA ops against PyTorch's equivalents at the shapes of GPT-2 124M and 355M."""

from collections.abc import Callable

import torch
from torch.nn import functional

TOKENS = 8 * 1024
REPEATS = 20


def microseconds(work: Callable[[], object]) -> float:
    """Median device time of `work`."""
    for _ in range(5):
        work()
    marks = [(torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True))
             for _ in range(REPEATS)]
    for begin, end in marks:
        begin.record()
        work()
        end.record()
    torch.cuda.synchronize()
    return sorted(begin.elapsed_time(end) * 1000 for begin, end in marks)[REPEATS // 2]


def row(name: str, mine: float, theirs: float, least_bytes: float | None = None) -> None:
    rate = f"{least_bytes / mine / 1e6:8.2f}" if least_bytes else " " * 8
    print(f"{name:44s} {mine:10.1f} {theirs:10.1f} {theirs / mine:7.2f}x {rate}", flush=True)


def leaf(*shape: int, dtype: torch.dtype = torch.bfloat16) -> torch.Tensor:
    return torch.randn(*shape, device="cuda").mul(0.1).to(dtype).requires_grad_()


def both_ways(function: Callable[..., torch.Tensor], inputs, upstream) -> Callable[[], object]:
    return lambda: torch.autograd.grad(function(*inputs), inputs, upstream)


def time_loss(ops, width: int, vocabulary: int) -> None:
    x, weight = leaf(TOKENS, width), leaf(vocabulary, width)
    targets = torch.randint(vocabulary, (TOKENS,), device="cuda")
    upstream = torch.ones((), device="cuda")

    def theirs(a, b):
        logits = functional.linear(a, b).float()
        return functional.cross_entropy(logits, targets, reduction="sum") / TOKENS

    def mine(a, b):
        return ops.linear_cross_entropy(a, b, targets, 1 / TOKENS)

    row(f"head and loss {width} x {vocabulary}, both ways",
        microseconds(both_ways(mine, (x, weight), upstream)),
        microseconds(both_ways(theirs, (x, weight), upstream)))
    stride = (vocabulary + 63) // 64 * 64
    with torch.no_grad():
        logits = torch.empty(TOKENS, stride, dtype=x.dtype, device="cuda")[:, :vocabulary]
        product = microseconds(lambda: torch.mm(x, weight.T, out=logits))
        plain = microseconds(lambda: torch.mm(x, weight.T))
    row("  its matrix product, rows aligned or not", product, plain)
    gradient = torch.randn_like(logits)
    for name, work in (("dx", lambda g: g @ weight), ("dweight", lambda g: g.T @ x)):
        with torch.no_grad():
            packed = gradient.contiguous()
            row(f"  {name}'s matrix product, rows aligned or not",
                microseconds(lambda: work(gradient)), microseconds(lambda: work(packed)))
    x.requires_grad_()
    forward = microseconds(lambda: mine(x, weight))
    row("  forward less the product: softmax kernel", forward - product, float("nan"),
        2.0 * TOKENS * vocabulary * 2)


def time_norms(ops, width: int) -> None:
    residual, weight, bias = (leaf(*shape, dtype=torch.float32)
                              for shape in ((TOKENS, width), (width,), (width,)))
    delta, delta_bias = leaf(TOKENS, width), leaf(width)
    inputs = (residual, delta, delta_bias, weight, bias)
    upstream = (torch.randn_like(residual), torch.randn_like(delta))

    def theirs(r, d, d_bias, w, b):
        total = r + (d + d_bias)
        return total, functional.layer_norm(total, (width,), w, b).to(d.dtype)

    elements = TOKENS * width
    with torch.no_grad():
        row(f"add_layer_norm {width}, forward", microseconds(lambda: ops.add_layer_norm(*inputs)),
            microseconds(lambda: theirs(*inputs)), 12.0 * elements)
    row(f"add_layer_norm {width}, both ways",
        microseconds(both_ways(ops.add_layer_norm, inputs, upstream)),
        microseconds(both_ways(theirs, inputs, upstream)), 28.0 * elements)


def time_gelu(ops, width: int) -> None:
    x, bias, upstream = leaf(TOKENS, width), leaf(width), leaf(TOKENS, width).detach()

    def theirs(a, b):
        return functional.gelu(a + b, approximate="tanh")

    elements = TOKENS * width
    with torch.no_grad():
        row(f"bias_gelu {width}, forward", microseconds(lambda: ops.bias_gelu(x, bias)),
            microseconds(lambda: functional.gelu(x, approximate="tanh")), 4.0 * elements)
    row(f"bias_gelu {width}, both ways",
        microseconds(both_ways(ops.bias_gelu, (x, bias), upstream)),
        microseconds(both_ways(theirs, (x, bias), upstream)), 10.0 * elements)


def fused_adamw(parameters, gradients, averages, squares, counts) -> None:
    torch._fused_adamw_(parameters, gradients, averages, squares, [], list(counts.unbind()),
                        lr=1e-4, beta1=0.9, beta2=0.999, weight_decay=0.01, eps=1e-8,
                        amsgrad=False, maximize=False)


@torch.no_grad()
def time_adamw(ops, name: str, parameters: list[torch.Tensor], gradient_dtype: torch.dtype,
               copied: bool) -> None:
    """A step with all casts; then ATen's kernel where it needs none, and ours on the same tensors."""
    gradients = [torch.randn_like(p, dtype=gradient_dtype).mul_(1e-3) for p in parameters]
    averages = [torch.zeros_like(p) for p in parameters]
    squares = [torch.zeros_like(p) for p in parameters]
    copies = [p.bfloat16() if copied else None for p in parameters]
    counts = torch.zeros(len(parameters), device="cuda")
    rate = torch.full((), 1e-4, device="cuda")

    def mine(given, to):
        ops.adamw_step(parameters, given, averages, squares, to, counts, rate, 0.9, 0.999, 0.01,
                       1e-8)

    def theirs():
        counts.add_(1)
        cast = [g.to(p.dtype) for g, p in zip(gradients, parameters)]
        fused_adamw(parameters, cast, averages, squares, counts)
        if copied:
            torch._foreach_copy_(copies, parameters)

    width = parameters[0].element_size()
    step_bytes = 6 * width + gradients[0].element_size() + (2 if copied else 0)
    elements = sum(p.numel() for p in parameters)
    row(f"AdamW {name}, {step_bytes} B", microseconds(lambda: mine(gradients, copies)),
        microseconds(theirs), float(step_bytes) * elements)
    plain = [g.to(p.dtype) for g, p in zip(gradients, parameters)]
    row(f"  no casts, {7 * width} B",
        microseconds(lambda: mine(plain, [None] * len(plain))),
        microseconds(lambda: fused_adamw(parameters, plain, averages, squares, counts)),
        7.0 * width * elements)


def time_optimizers(ops) -> None:
    bf16 = torch.bfloat16
    time_adamw(ops, "GPT-2 124M", ops.initial_parameters("124m", 50304, 1024, 1, "cuda"), bf16, True)
    llama = ops.decoder_initial_parameters("468m", 32000, 1, "cuda")
    time_adamw(ops, "Llama 468M, all bf16", [p.to(bf16) for p in llama], bf16, False)
    del llama
    qwen = ops.decoder_initial_parameters("1.5b", 151936, 1, "cuda")
    time_adamw(ops, "Qwen 1.5B, fp32 gradients", qwen, torch.float32, True)


def time_model(ops, size: str, layers: int, heads: int) -> None:
    parameters = [p.requires_grad_() for p in ops.initial_parameters(size, 50304, 1024, 1, "cuda")]
    order, low = ops.gpt2_uses(size)
    tokens = ops.random_tokens(1, 0, 0, 8, 1025, 50304, "cuda")

    def step(fused_loss: bool, fused_blocks: bool):
        uses = [parameters[i].bfloat16() if c else parameters[i] for i, c in zip(order, low)]
        loss = ops.gpt2_loss(uses, tokens, layers, heads, 1 / TOKENS, fused_loss, False,
                             fused_blocks)
        return torch.autograd.grad(loss, parameters)

    plain = microseconds(lambda: step(False, False))
    for loss, blocks in ((True, False), (False, True), (True, True)):
        row(f"GPT-2 {size} both ways, fused loss={loss:d} blocks={blocks:d}",
            microseconds(lambda: step(loss, blocks)), plain)
    width = parameters[0].shape[1]
    best = ops.fastest_attention("cuda", torch.bfloat16, 8, heads, heads, 1024, width // heads)
    ops.use_attention(best)
    row(f"  the last with the fastest attention, {best}", microseconds(lambda: step(True, True)),
        plain)
    ops.use_attention("automatic")


def print_timings(ops) -> None:
    print(f"\n{torch.cuda.get_device_name()}, {TOKENS} tokens, bf16: median microseconds\n"
          f"{'':44s} {'trainsuite':>10s} {'PyTorch':>10s} {'ratio':>8s} {'TB/s':>8s}")
    for width, vocabulary in ((768, 50304), (768, 50257), (1024, 50304)):
        time_loss(ops, width, vocabulary)
    for width in (768, 1024):
        time_norms(ops, width)
        time_gelu(ops, 4 * width)
    time_optimizers(ops)
    time_model(ops, "124m", 12, 12)
    time_model(ops, "355m", 24, 16)
