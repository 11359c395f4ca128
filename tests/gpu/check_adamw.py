"""AdamW's kernel against torch.optim.AdamW(fused=True): bit for bit, and its copies against a cast."""

import itertools

import torch

SIZES = (1, 3, 7, 8, 255, 2047, 2048, 2049, 4097, 8192, 100_003)
BETAS, EPSILON, DECAY = (0.9, 0.999), 1e-8, 0.01


class Pair:
    """The same training twice: by the op and by PyTorch's optimizer.

    dtype: of parameters and moments. copies: every second parameter has one in bf16. shift: elements
    that each tensor of the op starts beyond a multiple of 16 bytes.
    """

    def __init__(self, ops, sizes, dtype: torch.dtype, copies: bool, shift: int = 0,
                 decay: float = DECAY) -> None:
        self.ops, self.decay, self.shift = ops, decay, shift
        start = [torch.randn(size, device="cuda").to(dtype) for size in sizes]
        self.theirs = [p.clone().requires_grad_() for p in start]
        self.optimizer = torch.optim.AdamW(self.theirs, lr=1.0, betas=BETAS, eps=EPSILON,
                                           weight_decay=decay, fused=True)
        self.mine = [self.placed(p) for p in start]
        self.averages = [self.placed(torch.zeros_like(p)) for p in start]
        self.squares = [self.placed(torch.zeros_like(p)) for p in start]
        self.copies = [self.placed(p.bfloat16()) if copies and i % 2 == 0 else None
                       for i, p in enumerate(start)]
        self.counts = torch.zeros(len(start), device="cuda")
        self.rate = torch.zeros((), device="cuda")

    def placed(self, values: torch.Tensor) -> torch.Tensor:
        room = torch.empty(values.numel() + self.shift, dtype=values.dtype, device="cuda")
        return room[self.shift:].copy_(values)

    def launch(self, gradients) -> None:
        self.ops.adamw_step(self.mine, gradients, self.averages, self.squares, self.copies,
                            self.counts, self.rate, *BETAS, self.decay, EPSILON)

    def step_theirs(self, gradients, rate: float) -> None:
        self.optimizer.param_groups[0]["lr"] = rate
        for p, gradient in zip(self.theirs, gradients):
            p.grad = None if gradient is None else gradient.to(p.dtype).contiguous()
        self.optimizer.step()

    def compare(self, report, what: str) -> None:
        for i, theirs in enumerate(self.theirs):
            name = f"adamw {what}, tensor {i} of {theirs.numel()}"
            state = self.optimizer.state.get(theirs, {})
            report.equal(self.mine[i], theirs.detach(), f"{name}: parameter")
            report.check(self.counts[i].item() == float(state.get("step", 0)), f"{name}: steps")
            if state:
                report.equal(self.averages[i], state["exp_avg"], f"{name}: average")
                report.equal(self.squares[i], state["exp_avg_sq"], f"{name}: square average")
            if self.copies[i] is not None:
                report.equal(self.copies[i], theirs.detach().bfloat16(), f"{name}: copy")


def gradient(size: int, dtype: torch.dtype, spread: float) -> torch.Tensor:
    """Over many magnitudes, with zeros and some whose squares are subnormal."""
    values = torch.randn(size, device="cuda") * torch.exp(spread * torch.randn(size, device="cuda"))
    values[::5] = 0
    values[1::7] *= 1e-20
    return values.to(dtype)


def gradient_dtype(kind: str, i: int) -> torch.dtype:
    narrow = kind == "bf16" or (kind == "mixed" and i % 3 == 0)
    return torch.bfloat16 if narrow else torch.float32


def check_eager(ops, report) -> None:
    for dtype, kind, shift, decay in itertools.product(
            (torch.float32, torch.bfloat16), ("fp32", "bf16", "mixed"), (0, 1), (DECAY, 0.0)):
        pair = Pair(ops, SIZES, dtype, copies=dtype == torch.float32, shift=shift, decay=decay)
        for step in range(6):
            gradients = [gradient(size, gradient_dtype(kind, i), step)
                         for i, size in enumerate(SIZES)]
            gradients[step % 4] = gradients[10 - step % 3] = None
            gradients[5] = None if step < 5 else gradients[5]  # its first step is the last
            rate = 1e-2 / (step + 1)
            pair.rate.fill_(rate)
            pair.launch(gradients)
            pair.step_theirs(gradients, rate)
            pair.compare(report, f"{dtype}, {kind} gradients, shift {shift}, decay {decay}, "
                                 f"step {step}")


def check_many(ops, report) -> None:
    """More tensors than one launch takes, strided gradients, and none at all."""
    pair = Pair(ops, [1 + i % 17 for i in range(1100)], torch.float32, copies=True)
    pair.launch([None] * 1100)
    pair.compare(report, "without gradients")
    gradients = [torch.randn(2 * p.numel(), device="cuda")[::2] for p in pair.mine]
    pair.rate.fill_(0.5)
    pair.launch(gradients)
    pair.step_theirs(gradients, 0.5)
    pair.compare(report, "1100 tensors, strided gradients")


def check_graph(ops, report) -> None:
    """Replays count steps, and take the gradients and the rate of their time."""
    pair = Pair(ops, SIZES, torch.float32, copies=True)
    static = [torch.zeros(size, dtype=gradient_dtype("mixed", i), device="cuda")
              for i, size in enumerate(SIZES)]
    static[2] = None
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        pair.launch(static)
    for step in range(4):
        for held in static:
            if held is not None:
                held.copy_(gradient(held.numel(), held.dtype, 1))
        pair.rate.fill_(0.1 / (step + 1))
        graph.replay()
        pair.step_theirs(static, 0.1 / (step + 1))
        pair.compare(report, f"replay {step}")


def check_adamw(ops, report) -> None:
    check_eager(ops, report)
    check_many(ops, report)
    check_graph(ops, report)
    report.group("adamw")
