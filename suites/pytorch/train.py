"""One case: the training step as a PyTorch user writes it, and what is measured around it."""

from __future__ import annotations

import math
import time
from collections.abc import Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext

import torch
from torch import Tensor, nn
from torch.distributed import ProcessGroup
from torch.distributed.algorithms.ddp_comm_hooks.default_hooks import bf16_compress_hook
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.nn.parallel import DistributedDataParallel

import gpt2
from cases import Case
from launch import World
from measure import (
    Measured,
    MemoryGauge,
    NoClock,
    StepClock,
    host_launch_seconds,
    memory_exhaustion,
    no_garbage_collection,
    synchronize,
)

KERNELS = {
    "cudnn": SDPBackend.CUDNN_ATTENTION,
    "flash": SDPBackend.FLASH_ATTENTION,
    "efficient": SDPBackend.EFFICIENT_ATTENTION,
    "math": SDPBackend.MATH,
}
LAUNCH_SEQUENCE = 16  # tokens of a step so small that only launching costs


class Trainer:
    """Model, optimizer and data of one rank in one case."""

    def __init__(self, case: Case, world: World, group: ProcessGroup | None) -> None:
        self.case, self.device = case, world.device
        self.ranks = 1 if case.one_rank else world.size
        self.rank = 0 if case.one_rank else world.rank
        config = gpt2.config(case.size, case.vocabulary, case.sequence)
        weights = torch.ops.trainsuite.initial_parameters(
            case.size, case.vocabulary, case.sequence, case.seed, self.device
        )
        self.bare = gpt2.build(config, weights)
        self.model: nn.Module = self.bare
        if group is not None:
            self.model = self._data_parallel(group)
        if case.compiled:
            self.model = torch.compile(self.bare)
        self.optimizer = torch.optim.AdamW(
            self.model.parameters(),
            lr=case.learning_rate,
            betas=(0.9, 0.999),
            eps=1e-8,
            weight_decay=0.01,
            fused=True,
        )
        self.clock: StepClock | NoClock = NoClock()
        self.losses: list[Tensor] = []  # one a micro-batch, left on the device

    def _data_parallel(self, group: ProcessGroup) -> DistributedDataParallel:
        """Wraps the model. Every parameter is used in every step and there are no buffers, so
        neither find_unused_parameters nor static_graph has anything to save here."""
        wrapped = DistributedDataParallel(
            self.bare,
            device_ids=[self.device.index] if self.device.type == "cuda" else None,
            process_group=group,
            gradient_as_bucket_view=True,
        )
        if self.case.wire == "bf16":
            wrapped.register_comm_hook(group, bf16_compress_hook)
        return wrapped

    def autocast(self) -> torch.autocast:
        """Mixed precision over fp32 weights, or nothing."""
        enabled = self.case.precision == "bf16"
        return torch.autocast(self.device.type, dtype=torch.bfloat16, enabled=enabled)

    def no_sync(self, micro_batch: int) -> AbstractContextManager:
        """Gradients travel with the last micro-batch only."""
        last = micro_batch == self.case.accumulate - 1
        return nullcontext() if last or not self.case.communicates else self.model.no_sync()

    def tokens(self, step: int, micro_batch: int, batch: int, sequence: int) -> Tensor:
        """[batch, sequence + 1] ids of this rank's examples of a step."""
        first = (micro_batch * self.ranks + self.rank) * batch
        return torch.ops.trainsuite.random_tokens(
            self.case.seed, step, first, batch, sequence + 1, self.case.vocabulary, self.device
        )

    def step(self, step: int, batch: int, sequence: int) -> None:
        """One optimizer step; what follows the last mark is the optimizer's."""
        clock = self.clock
        for micro_batch in range(self.case.accumulate):
            tokens = self.tokens(step, micro_batch, batch, sequence)
            clock.mark("data")
            with self.no_sync(micro_batch):
                with self.autocast():
                    loss = self.model(tokens[:, :-1], tokens[:, 1:])
                clock.mark("forward")
                self.share(loss).backward()
                clock.mark(self.backward_phase(micro_batch))
            self.losses.append(loss.detach())
        self.optimizer.step()
        self.optimizer.zero_grad(set_to_none=True)

    def share(self, loss: Tensor) -> Tensor:
        """This micro-batch's part of the step's mean loss."""
        return loss if self.case.accumulate == 1 else loss / self.case.accumulate

    def backward_phase(self, micro_batch: int) -> str:
        """What ends with backward(): where gradients travel, the wait for the last of them."""
        synced = self.case.communicates and micro_batch == self.case.accumulate - 1
        return "exposed_sync" if synced else "backward"

    @contextmanager
    def watched_backward(self) -> Iterator[None]:
        """Marks where the last gradient is computed and only waiting is left."""
        calls = 0

        def mark(_: Tensor) -> None:
            nonlocal calls
            calls += 1
            if calls % self.case.accumulate == 0:
                self.clock.mark("backward")

        first = self.bare.transformer.wte.weight  # the last whose gradient is ready
        handle = first.register_post_accumulate_grad_hook(mark)
        try:
            yield
        finally:
            handle.remove()  # or model and hook keep each other alive

    def identity(self) -> dict[str, int]:
        """Sizes, and hashes of the initial weights and of the first step's tokens."""
        tokens = self.tokens(0, 0, self.case.micro_batch, self.case.sequence)
        parameters = list(self.bare.parameters())
        weight_bytes = sum(p.nbytes for p in parameters)
        return {
            "parameters_total": sum(p.numel() for p in parameters),
            "parameters_trainable": sum(p.numel() for p in parameters if p.requires_grad),
            "weight_bytes_float32": weight_bytes,
            "optimizer_bytes": 2 * weight_bytes,  # two averages
            "initial_weights_hash": self.weight_hash(),
            "tokens_hash": int(torch.ops.trainsuite.tensor_hash(tokens)),
        }

    def weight_hash(self) -> int:
        """Hash of all weights in order."""
        op = torch.ops.trainsuite.tensor_hash
        hashes = torch.stack([op(parameter.detach()) for parameter in self.bare.parameters()])
        return int(op(hashes))


def run_case(case: Case, world: World) -> Measured:
    """Trains and measures; every rank that takes part calls it."""
    case_start = time.perf_counter()
    measured = Measured()
    gauge = MemoryGauge(world.device)
    with ExitStack() as stack:
        stack.enter_context(attention_choice(case.attention))
        group = stack.enter_context(world.training_group()) if case.communicates else None
        trainer = Trainer(case, world, group)
        measured.facts["attention_kernel"] = attention_kernel(case, world.device)
        measured.facts |= trainer.identity()
        synchronize(world.device)
        measured.facts["setup_seconds"] = time.perf_counter() - case_start
        if group is not None:
            stack.enter_context(trainer.watched_backward())
        with no_garbage_collection():
            run_steps(trainer, gauge, measured)
            measured.facts["final_weights_hash"] = trainer.weight_hash()
            if not case.compiled:  # another shape would be compiled anew
                measured.facts["host_launch_seconds"] = launch_cost(trainer)
    measured.facts |= gauge.facts(case.warmup)
    measured.facts["case_seconds"] = time.perf_counter() - case_start
    return measured


def run_steps(trainer: Trainer, gauge: MemoryGauge, measured: Measured) -> None:
    """All steps, the first apart; nothing is read, printed or waited for in between."""
    case, device = trainer.case, trainer.device
    total = case.warmup + case.steps
    clock = StepClock(device, total, marks_per_step=3 * case.accumulate + 2)
    trainer.clock = clock
    gauge.begin_loop()
    start = time.perf_counter()
    with memory_exhaustion(clock.issuing, device):
        for step in range(total):
            clock.boundary()
            trainer.step(step, case.micro_batch, case.sequence)
            gauge.end_step()
            if step == 0:
                synchronize(device)
                loop_start = time.perf_counter()
        clock.boundary()
        synchronize(device)
    loop_end = time.perf_counter()
    trainer.clock = NoClock()
    measured.facts |= {
        "first_step_seconds": loop_start - start,
        "loop_seconds": loop_end - loop_start,
        "loop_steps": total - 1,
    }
    losses = torch.stack(trainer.losses).double().view(total, case.accumulate).mean(1).tolist()
    tokens = [case.micro_batch * case.accumulate * case.sequence] * total
    measured.series |= clock.read() | gauge.series()
    measured.series |= {"loss": losses, "tokens": tokens, "effective_tokens": tokens}
    for step, loss in enumerate(losses):
        if not math.isfinite(loss):
            raise RuntimeError(f"the loss of step {step} is not finite ({loss})")


def launch_cost(trainer: Trainer) -> float:
    """host_launch_seconds: the same operations on 1 x 16 tokens, each step on an idle device."""
    sequence = min(LAUNCH_SEQUENCE, trainer.case.sequence)
    return host_launch_seconds(lambda: trainer.step(0, 1, sequence), trainer.device)


def attention_choice(kernel: str) -> AbstractContextManager:
    """Forces one attention kernel, or with `auto` leaves the choice to PyTorch."""
    return nullcontext() if kernel == "auto" else sdpa_kernel(KERNELS[kernel])


def attention_kernel(case: Case, device: torch.device) -> str:
    """The kernel that scaled_dot_product_attention takes for the case's shape."""
    layers, width, heads = gpt2.SIZES[case.size]
    dtype = torch.bfloat16 if case.precision == "bf16" else torch.float32
    shape = (case.micro_batch, case.sequence, heads, width // heads)
    query = torch.empty(shape, dtype=dtype, device=device, requires_grad=True).transpose(1, 2)
    chosen = torch._fused_sdp_choice(query, query, query, None, 0.0, True)
    names = {int(kernel): name for name, kernel in KERNELS.items()}
    return names.get(chosen, f"backend {chosen}")
