"""One case of the compile suite, in the process that compile.py starts for it."""

from __future__ import annotations

import ctypes
import os
import pickle
import signal
import sys
import time
import traceback
from pathlib import Path

import torch
from torch import Tensor
from torch.nn.attention import SDPBackend

import decoder
from compile_cases import TORCH_MODES, Case
from launch import World, load_ops
from measure import Measured, MemoryGauge, NoClock, StepClock, no_garbage_collection, synchronize
from session import CaseFailed
from train import KERNELS, attention_choice, launch_cost, run_steps

DTYPES = {"bf16": torch.bfloat16, "fp32": torch.float32}


class Trainer:
    """Model and optimizer as a transformers user writes them."""

    ranks, rank = 1, 0

    def __init__(self, case: Case, device: torch.device) -> None:
        self.case, self.device = case, device
        self.shape = decoder.shape_of(case.size, case.vocabulary)
        parameters = decoder.initial_parameters(
            self.shape, case.seed, device, DTYPES[case.precision]
        )
        self.initial_hash = decoder.hash_of(list(parameters.values()))
        self.bare = decoder.build(self.shape, parameters, case.attention)
        del parameters
        self.model = self.bare
        self.optimizer = torch.optim.AdamW(
            self.bare.parameters(),
            lr=case.learning_rate,
            betas=(0.9, 0.999),
            eps=1e-8,
            weight_decay=0.01,
            fused=True,
        )
        self.clock: StepClock | NoClock = NoClock()
        self.losses: list[Tensor] = []  # one a micro-batch, left on the device

    def compile(self) -> float:
        """Asks for a compiled model; returns the seconds that asking took."""
        start = time.perf_counter()
        if mode := TORCH_MODES[self.case.execution]:
            self.model = torch.compile(self.bare, mode=mode)
        return time.perf_counter() - start

    def tokens(self, step: int, micro_batch: int, batch: int, sequence: int) -> Tensor:
        """[batch, sequence + 1] ids."""
        return torch.ops.trainsuite.random_tokens(
            self.case.seed, step, micro_batch * batch, batch, sequence + 1,
            self.shape.vocabulary, self.device,
        )

    def step(self, step: int, batch: int, sequence: int) -> None:
        """One optimizer step; what follows the last mark is the optimizer's."""
        clock = self.clock
        for micro_batch in range(self.case.accumulate):
            tokens = self.tokens(step, micro_batch, batch, sequence)
            targets = tokens[:, 1:].contiguous()
            clock.mark("data")
            if self.case.graphs:
                torch.compiler.cudagraph_mark_step_begin()
            loss = self.model(
                input_ids=tokens[:, :-1].contiguous(), labels=targets, shift_labels=targets
            ).loss
            clock.mark("forward")
            (loss if self.case.accumulate == 1 else loss / self.case.accumulate).backward()
            clock.mark("backward")
            # A graph's output is overwritten by its next replay.
            self.losses.append(loss.detach().clone() if self.case.graphs else loss.detach())
        self.optimizer.step()
        self.optimizer.zero_grad(set_to_none=True)

    def identity(self) -> dict[str, int]:
        """Sizes, and hashes of the initial weights and of the first step's tokens."""
        parameters = list(self.bare.parameters())
        weight_bytes = sum(p.nbytes for p in parameters)
        dtype = str(DTYPES[self.case.precision]).removeprefix("torch.")
        tokens = self.tokens(0, 0, self.case.micro_batch, self.case.sequence)
        return {
            "parameters_total": sum(p.numel() for p in parameters),
            "parameters_trainable": sum(p.numel() for p in parameters if p.requires_grad),
            f"weight_bytes_{dtype}": weight_bytes,
            "optimizer_bytes": 2 * weight_bytes,  # two averages
            "initial_weights_hash": self.initial_hash,
            "tokens_hash": int(torch.ops.trainsuite.tensor_hash(tokens)),
        } | self.flops()

    def flops(self) -> dict[str, float]:
        """FLOPs a token, as ddp.flops: 6 a matrix parameter without the input embedding."""
        shape = self.shape
        block = sum(shape.qkv_rows) * shape.width
        block += shape.heads * shape.head_width * shape.width + 3 * shape.hidden * shape.width
        matrices = 6.0 * (shape.layers * block + shape.vocabulary * shape.width)
        attention = 12.0 * shape.layers * shape.heads * shape.head_width * self.case.sequence
        return {
            "flops_per_token": matrices + attention / 2,
            "flops_per_token_uncausal": matrices + attention,
        }


def run_case(case: Case, world: World) -> Measured:
    """Trains and measures."""
    case_start = time.perf_counter()
    measured = Measured()
    with attention_choice(case.kernel):
        measure(case, world, measured)
    measured.facts["case_seconds"] = time.perf_counter() - case_start
    return measured


def measure(case: Case, world: World, measured: Measured) -> None:
    """Fills `measured`."""
    start = time.perf_counter()
    gauge = MemoryGauge(world.device)
    trainer = Trainer(case, world.device)
    measured.facts |= trainer.identity()
    measured.facts["attention_kernel"] = attention_kernel(trainer)
    synchronize(world.device)
    measured.facts["setup_seconds"] = time.perf_counter() - start
    asked_seconds = trainer.compile()
    with no_garbage_collection():
        run_steps(trainer, gauge, measured)
        measured.facts["first_step_seconds"] += asked_seconds
        measured.facts["final_weights_hash"] = decoder.hash_of(list(trainer.bare.parameters()))
        if case.execution == "eager":  # another shape would be compiled anew
            measured.facts["host_launch_seconds"] = launch_cost(trainer)
    measured.facts |= gauge.facts(case.warmup)
    if case.graphs and world.cuda:
        # A graph's pool is filled while it is captured, after the first step; later its tensors
        # are not counted as live.
        measured.facts["peak_allocated_bytes"] = max(gauge.allocated[1:])
        measured.facts["peak_reserved_bytes"] = max(gauge.reserved[1:])


def attention_kernel(trainer: Trainer) -> str:
    """What scaled_dot_product_attention takes for the case's shape; naive has no such kernel."""
    case, shape = trainer.case, trainer.shape
    if case.attention == "naive":
        return "naive"
    size = (case.micro_batch, case.sequence, shape.heads, shape.head_width)
    query = torch.empty(size, dtype=DTYPES[case.precision], device=trainer.device,
                        requires_grad=True).transpose(1, 2)
    chosen = torch._fused_sdp_choice(query, query, query, None, 0.0, True)
    names = {int(kernel): name for name, kernel in KERNELS.items()}
    return names.get(chosen, SDPBackend(chosen).name)


def end_with_parent() -> None:
    """The kernel ends this process when the one that started it has ended."""
    ctypes.CDLL(None).prctl(1, signal.SIGKILL)  # PR_SET_PDEATHSIG


def main(question: Path, answer: Path) -> None:
    """Writes Measured, or the exception, to `answer`."""
    end_with_parent()
    case, device, memory_limit_gib, library = pickle.loads(question.read_bytes())
    outcome: Measured | Exception
    try:
        world = World(device, "auto", memory_limit_gib)
        load_ops(library)
        outcome = run_case(case, world)
    except (torch.OutOfMemoryError, MemoryError) as error:
        outcome = MemoryError(str(error).splitlines()[0])
    except Exception as error:  # noqa: BLE001: the parent makes a row of it
        traceback.print_exc()
        outcome = CaseFailed(f"{type(error).__name__}: {(str(error).splitlines() or [''])[0]}")
    temporary = answer.with_suffix(".part")
    temporary.write_bytes(pickle.dumps(outcome))
    temporary.rename(answer)
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(0)


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
