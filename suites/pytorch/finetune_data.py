"""Examples and which of them a rank's micro-batches hold; as src/data and docs/data.md."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from finetune_cases import EXAMPLES, PUBLISHED_EXAMPLES, Case
from flags import UsageError

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "analysis"))

import token_file  # noqa: E402
from token_file import Example, Split, split_of  # noqa: E402

IGNORED = -100
LENGTH_STREAM = 1 << 40  # the counter hash's "steps" that no training step uses
TOKEN_STREAM = LENGTH_STREAM + 1
UNIFORM = 1 << 16
# Lengths at equally spaced quantiles, linear between them; their mean is 188.
QUANTILES = (34, 62, 74, 85, 97, 111, 127, 144, 162, 183, 206, 230, 257, 287, 324, 379, 512)


@dataclass
class Data:
    """What a case trains and is evaluated on."""

    source: str
    train: Split
    held_out: Split


def synthetic_length(seed: int, index: int) -> int:
    """Length of example `index`."""
    uniform = int(torch.ops.trainsuite.random_tokens(
        seed, LENGTH_STREAM, index, 1, 1, UNIFORM, torch.device("cpu")))
    interval, part = divmod(uniform * (len(QUANTILES) - 1), UNIFORM)
    low, high = QUANTILES[interval], QUANTILES[interval + 1]
    return low + (high - low) * part // UNIFORM


def synthetic(seed: int, first: int, count: int, vocabulary: int) -> Split:
    """Examples [first, first + count) of the seeded set; the last two thirds are the answer."""
    examples = []
    for index in range(first, first + count):
        length = synthetic_length(seed, index)
        ids = torch.ops.trainsuite.random_tokens(
            seed, TOKEN_STREAM, index, 1, length, vocabulary, torch.device("cpu"))
        examples.append(Example(ids[0].tolist(), [(length // 3, length)]))
    return split_of(examples)


def first_of(split: Split, most: int | None, name: str, flag: str) -> Split:
    """The first `most` examples. Raises UsageError where there are fewer."""
    if most is None or most == split.examples:
        return split
    if most > split.examples:
        raise UsageError(f"{flag} {most}: the data has {split.examples} {name} examples")
    spans = split.span_offsets[most]
    return Split(split.ids[: split.offsets[most]], split.offsets[: most + 1], split.spans[:spans],
                 split.span_offsets[: most + 1])


def load(case: Case, vocabulary: int) -> Data:
    """The token file's examples, or the synthetic ones; ids are below `vocabulary`."""
    if case.data is None:
        train, held_out = EXAMPLES.get(case.size, PUBLISHED_EXAMPLES)
        train = case.train_examples or train
        held_out = held_out if case.held_out is None else case.held_out
        return Data("synthetic", synthetic(case.seed, 0, train, vocabulary),
                    synthetic(case.seed, train, held_out, vocabulary))
    tokens = token_file.load(case.data)
    if tokens.attributes["vocabulary"] > vocabulary and max(
            (int(split.ids.max()) for split in (tokens.train, tokens.held_out) if split.tokens),
            default=0) >= vocabulary:
        raise UsageError(f"{case.data} has ids beyond the model's vocabulary of {vocabulary}: "
                         "prepare it with this model's tokenizer")
    return Data(Path(case.data).name,
                first_of(tokens.train, case.train_examples, "training", "--train-examples"),
                first_of(tokens.held_out, case.held_out, "held-out", "--held-out"))


def targets_of(split: Split, index: int, answers_only: bool) -> np.ndarray:
    """For each token of an example the label: the token itself, or -100 where it is the first or
    does not count. transformers shifts by one; int64 [length]."""
    labels = split.example(index).astype(np.int64)
    counts = split.answer(index) if answers_only else np.ones(len(labels), dtype=bool)
    counts[:1] = False
    return np.where(counts, labels, IGNORED)


@dataclass
class Batch:
    """One micro-batch on the CPU: ids, attention mask and labels, each [examples, longest]."""

    ids: Tensor
    mask: Tensor
    labels: Tensor
    tokens: int  # that are no padding
    label_count: int

    def to(self, device: torch.device) -> tuple[Tensor, Tensor, Tensor]:
        """The three tensors on the device."""
        return tuple(tensor.to(device, non_blocking=True)
                     for tensor in (self.ids, self.mask, self.labels))


def collate(split: Split, indices: range, answers_only: bool) -> Batch:
    """Pads to the longest, on the right with token 0."""
    examples = [split.example(index) for index in indices]
    longest = max(map(len, examples))
    ids = torch.zeros(len(examples), longest, dtype=torch.int64)
    mask, labels = torch.zeros_like(ids), torch.full_like(ids, IGNORED)
    for row, (index, example) in enumerate(zip(indices, examples, strict=True)):
        ids[row, : len(example)] = torch.from_numpy(example.astype(np.int64))
        mask[row, : len(example)] = 1
        labels[row, : len(example)] = torch.from_numpy(targets_of(split, index, answers_only))
    return Batch(ids, mask, labels, sum(map(len, examples)), int((labels != IGNORED).sum()))


class BatchPlan:
    """Steps through the examples in order, pass after pass. Of a step's examples, number
    (m x ranks + r) x micro_batch + i is number i of rank r's micro-batch m; a pass's last step
    takes what is left, with smaller or empty micro-batches."""

    def __init__(self, split: Split, case: Case, rank: int, ranks: int) -> None:
        self.split, self.case, self.rank, self.ranks = split, case, rank, ranks
        self.per_step = case.micro_batch * case.accumulate * ranks
        self.steps_per_pass = -(-split.examples // self.per_step)
        answers_only = case.loss_on == "answer"
        self.labels = [int((targets_of(split, index, answers_only) != IGNORED).sum())
                       for index in range(split.examples)]
        self.without_labels = self.labels.count(0)
        if self.without_labels == split.examples:
            raise UsageError(f"none of the {split.examples} training examples has a label")

    def _examples(self, step: int) -> range:
        first = step % self.steps_per_pass * self.per_step
        return range(first, min(first + self.per_step, self.split.examples))

    def step_labels(self, step: int) -> int:
        """Labels of the whole step, over all ranks and micro-batches."""
        return sum(self.labels[index] for index in self._examples(step))

    def micro_batches(self, step: int) -> list[range]:
        """This rank's micro-batches that are not empty."""
        every = self._examples(step)
        size, found = self.case.micro_batch, []
        for micro_batch in range(self.case.accumulate):
            place = (micro_batch * self.ranks + self.rank) * size
            if part := every[place : place + size]:
                found.append(part)
        return found
