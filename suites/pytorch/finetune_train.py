"""One case of the finetune suite: the training loop as a user writes it, and what is measured."""

from __future__ import annotations

import math
import time
from contextlib import AbstractContextManager, ExitStack, nullcontext

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed import ProcessGroup
from torch.nn.parallel import DistributedDataParallel
from transformers import get_cosine_schedule_with_warmup

import decoder
import finetune_model
from finetune_cases import Case
from finetune_data import IGNORED, Batch, BatchPlan, Data, collate, load
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
from train import attention_choice

LAUNCH_TOKENS = 16  # of a step so small that only launching costs
COMPILED_LENGTHS = (96, 160)  # run once before training, so that the dynamic kernels are there


class Trainer:
    """Model, optimizer and data of one rank in one case."""

    def __init__(self, case: Case, world: World, group: ProcessGroup | None) -> None:
        self.case, self.device, self.group = case, world.device, group
        self.rank, self.ranks = (world.rank, world.size) if group else (0, 1)
        self.bare, self.initial_hash = finetune_model.build(case, world.device)
        self.data: Data = load(case, self.bare.get_input_embeddings().weight.shape[0])
        self.plan = BatchPlan(self.data.train, case, self.rank, self.ranks)
        self.steps = case.warmup + (case.steps or self.plan.steps_per_pass)
        self.model: nn.Module = self.bare
        if group is not None:
            self.model = DistributedDataParallel(
                self.bare,
                device_ids=[world.device.index] if world.cuda else None,
                process_group=group,
                gradient_as_bucket_view=True,
                init_sync=False,  # all ranks made the same weights
            )
        self.optimizer = torch.optim.AdamW(
            finetune_model.trainable(self.bare),
            lr=case.learning_rate,
            betas=(0.9, 0.999),
            eps=1e-8,
            weight_decay=0.01,
            **({"fused": True} if case.tuned else {}),
        )
        self.schedule = get_cosine_schedule_with_warmup(self.optimizer, 0, self.steps)
        self.clock: StepClock | NoClock = NoClock()
        self.losses: list[list[Tensor]] = []  # sums over labels, by step and micro-batch

    def autocast(self) -> torch.autocast:
        """Mixed precision, or nothing."""
        enabled = self.case.precision == "bf16"
        return torch.autocast(self.device.type, dtype=torch.bfloat16, enabled=enabled)

    def loss_sum(self, model: nn.Module, batch: Batch, divisor: Tensor) -> Tensor:
        """Sum of the labels' losses / divisor."""
        ids, mask, labels = batch.to(self.device)
        self.clock.mark("data")
        with self.autocast():
            return model(input_ids=ids, attention_mask=mask, labels=labels,
                         num_items_in_batch=divisor).loss

    def batches(self, step: int) -> list[Batch]:
        """This rank's micro-batches of a step; where it has none, one that counts nothing, so that
        it takes part in the others' reduction."""
        answers_only = self.case.loss_on == "answer"
        ranges = self.plan.micro_batches(step)
        if ranges or self.group is None:
            return [collate(self.data.train, indices, answers_only) for indices in ranges]
        idle = collate(self.data.train, range(1), answers_only)
        idle.labels.fill_(IGNORED)
        idle.tokens = idle.label_count = 0
        return [idle]

    def step(self, batches: list[Batch], labels: int) -> None:
        """One optimizer step; what follows the last mark is the optimizer's."""
        # DistributedDataParallel takes the mean over the ranks.
        divisor = torch.tensor(labels / self.ranks, dtype=torch.float32, device=self.device)
        losses = []
        for number, batch in enumerate(batches):
            last = number == len(batches) - 1
            with self.no_sync(last):
                loss = self.loss_sum(self.model, batch, divisor)
                self.clock.mark("forward")
                loss.backward()
                self.clock.mark("exposed_sync" if self.group and last else "backward")
            losses.append(loss.detach() * divisor)
        self.losses.append(losses)
        self.optimizer.step()
        self.schedule.step()
        self.optimizer.zero_grad(set_to_none=True)

    def no_sync(self, last: bool) -> AbstractContextManager:
        """Gradients travel with the last micro-batch only."""
        return nullcontext() if last or self.group is None else self.model.no_sync()

    def watch_backward(self) -> None:
        """Marks where the last gradient is computed and only waiting is left."""
        if self.group is None:
            return
        waiting = {id(parameter) for parameter in finetune_model.trainable(self.bare)}
        seen: set[int] = set()

        def mark(parameter: Tensor) -> None:
            seen.add(id(parameter))
            if len(seen) == len(waiting):
                seen.clear()
                if self.model.require_backward_grad_sync:
                    self.clock.mark("backward")

        for parameter in finetune_model.trainable(self.bare):
            parameter.register_post_accumulate_grad_hook(mark)

    @torch.no_grad()
    def held_out_loss(self) -> float:
        """Mean over all labels of the held-out examples; the ranks share them. Collective."""
        split, size = self.data.held_out, self.case.micro_batch
        one = torch.ones((), device=self.device)
        total = torch.zeros(2, dtype=torch.float64, device=self.device)
        self.bare.eval()
        for first in range(self.rank * size, split.examples, self.ranks * size):
            indices = range(first, min(first + size, split.examples))
            batch = collate(split, indices, self.case.loss_on == "answer")
            total[0] += self.loss_sum(self.bare, batch, one).double()
            total[1] += batch.label_count
        self.bare.train()
        if self.group is not None:
            dist.all_reduce(total, group=self.group)
        return float(total[0] / total[1])

    def compile_first(self) -> float:
        """Seconds of compiling: forward and backward of two lengths, with padding and without
        (transformers then passes no mask), and no optimizer step."""
        start = time.perf_counter()
        one = torch.ones((), device=self.device)
        for length in COMPILED_LENGTHS:
            for padding in (0, 8):
                ids = torch.zeros(self.case.micro_batch, length, dtype=torch.int64)
                mask = torch.ones_like(ids)
                mask[-1, length - padding :] = 0
                self.loss_sum(self.bare, Batch(ids, mask, ids.clone(), 0, 0), one).backward()
        self.optimizer.zero_grad(set_to_none=True)
        synchronize(self.device)
        return time.perf_counter() - start

    def identity(self) -> dict[str, int | str]:
        """Sizes, and hashes of seeded initial weights and of the training tokens."""
        trained = finetune_model.trainable(self.bare)
        tokens = torch.from_numpy(self.data.train.ids)
        facts: dict[str, int | str] = {
            "parameters_total": finetune_model.parameter_count(self.bare),
            "parameters_trainable": sum(parameter.numel() for parameter in trained),
            "gradient_bytes": sum(parameter.nbytes for parameter in trained),
            "optimizer_bytes": 2 * sum(parameter.nbytes for parameter in trained),
            "tokens_hash": int(torch.ops.trainsuite.tensor_hash(tokens)),
            "train_examples": self.data.train.examples,
            "held_out": self.data.held_out.examples,
            "vocabulary": self.bare.get_input_embeddings().weight.shape[0],
            "examples_without_labels": self.plan.without_labels,
        } | finetune_model.bytes_by_dtype(self.bare)
        if self.initial_hash is not None:
            facts["initial_weights_hash"] = self.initial_hash
        return facts


def run_case(case: Case, world: World) -> Measured:
    """Trains and measures; every rank calls it."""
    case_start = time.perf_counter()
    measured, gauge, phase = Measured(), MemoryGauge(world.device), "set-up"
    with ExitStack() as stack:
        group = stack.enter_context(world.training_group()) if world.size > 1 else None
        stack.enter_context(attention_choice(case.attention))
        stack.enter_context(memory_exhaustion(lambda: phase, world.device))
        trainer = Trainer(case, world, group)
        measured.facts |= trainer.identity()
        synchronize(world.device)
        measured.facts["setup_seconds"] = time.perf_counter() - case_start
        held_out = trainer.data.held_out.examples > 0
        phase = "held-out evaluation"
        if held_out:
            measured.facts["held_out_loss_before"] = trainer.held_out_loss()
        phase = "compilation"
        if case.compiled:
            measured.facts["compile_seconds"] = trainer.compile_first()
        trainer.watch_backward()
        with no_garbage_collection():
            run_steps(trainer, gauge, measured)
        measured.facts["first_step_seconds"] += measured.facts.get("compile_seconds", 0.0)
        trained = finetune_model.trainable(trainer.bare)
        measured.facts["final_weights_hash"] = decoder.hash_of(trained)
        phase = "held-out evaluation"
        if held_out:
            measured.facts["held_out_loss_after"] = trainer.held_out_loss()
        if not case.compiled:  # another shape could be compiled anew
            measured.facts["host_launch_seconds"] = launch_cost(trainer)
    measured.facts |= gauge.facts(case.warmup)
    measured.facts["case_seconds"] = time.perf_counter() - case_start
    return measured


def run_steps(trainer: Trainer, gauge: MemoryGauge, measured: Measured) -> None:
    """All steps; nothing is read, printed or waited for in between, but after the first."""
    case, device, plan = trainer.case, trainer.device, trainer.plan
    clock = StepClock(device, trainer.steps, marks_per_step=3 * case.accumulate + 2)
    trainer.clock = clock
    if device.type == "cuda":
        torch.cuda.empty_cache()  # what the evaluation held is no memory of the training
    counts: list[tuple[int, int, int]] = []  # padded tokens, tokens, labels
    gauge.begin_loop()
    start = time.perf_counter()
    with memory_exhaustion(clock.issuing, device):
        for step in range(trainer.steps):
            clock.boundary()
            batches = trainer.batches(step)
            trainer.step(batches, plan.step_labels(step))
            gauge.end_step()
            counts.append((sum(b.ids.numel() for b in batches if b.tokens),
                           sum(b.tokens for b in batches), sum(b.label_count for b in batches)))
            if step == 0:
                synchronize(device)
                loop_start = time.perf_counter()
        clock.boundary()
        synchronize(device)
    loop_end = time.perf_counter()
    trainer.clock = NoClock()
    measured.facts |= {
        "first_step_seconds": loop_start - start,
        "train_seconds": loop_end - start,
        "loop_seconds": loop_end - loop_start,
        "loop_steps": trainer.steps - 1,
    }
    padded, tokens, labels = zip(*counts)
    sums = [float(torch.stack(losses).double().sum()) if losses else math.nan
            for losses in trainer.losses]
    measured.series |= clock.read() | gauge.series() | {
        "tokens": padded,
        "effective_tokens": tokens,
        "loss": [total / count if count else math.nan for total, count in zip(sums, labels)],
    }
    for step, (total, count) in enumerate(zip(sums, labels)):
        if count and not math.isfinite(total):
            raise RuntimeError(f"the loss of step {step} is not finite ({total})")


def launch_cost(trainer: Trainer) -> float:
    """host_launch_seconds: the same operations on 1 x 16 tokens, each step on an idle device."""
    ids = torch.zeros(1, LAUNCH_TOKENS, dtype=torch.int64)
    batches = [Batch(ids, torch.ones_like(ids), ids.clone(), 0, 0)] * trainer.case.accumulate
    labels = (LAUNCH_TOKENS - 1) * trainer.case.accumulate * trainer.ranks
    return host_launch_seconds(lambda: trainer.step(batches, labels), trainer.device)
