"""The finetune suite's PyTorch twin in this process: examples, cases and a reference loss."""

from __future__ import annotations

import sys
from pathlib import Path
from types import SimpleNamespace

import torch

ROOT = Path(__file__).resolve().parents[2]
FOLDER = ROOT / "suites" / "pytorch"
sys.path[:0] = [str(FOLDER), str(ROOT / "analysis")]

import token_file  # noqa: E402
from finetune_cases import make_case, parser  # noqa: E402
from token_file import Example, TokenFile, split_of  # noqa: E402

CPU = torch.device("cpu")
WORLD = SimpleNamespace(device=CPU, rank=0, size=1, cuda=False)  # of launch.World
VOCABULARY = 512  # of tiny
LENGTHS = (3, 50, 7, 90, 11)


def examples(lengths: tuple[int, ...], first: int = 0) -> list[Example]:
    """Examples of these lengths; the answer is the second half."""
    return [Example(torch.ops.trainsuite.random_tokens(
        9, 0, first + index, 1, length, VOCABULARY, CPU)[0].tolist(), [(length // 2, length)])
        for index, length in enumerate(lengths)]


def write_data(path: Path, train: list[Example], held_out: list[Example]) -> str:
    """A token file of them."""
    token_file.write(str(path), TokenFile(split_of(train), split_of(held_out), {
        "vocabulary": VOCABULARY, "limit_tokens": 512}))
    return str(path)


def case_of(method: str, micro_batch: int, accumulate: int, *flags: object, tuned: bool = False):
    """A case of tiny on a CPU."""
    options = parser().parse_args([str(flag) for flag in flags])
    return make_case("tiny", method, (micro_batch, accumulate), tuned, options, cuda=False)


def reference_loss(ops, ids: list[list[int]], leaves: list[torch.Tensor]) -> torch.Tensor:
    """Sum over all labels of unpadded examples / labels, by the ops library's decoder."""
    uses, _ = ops.decoder_uses("tiny")
    labels = sum(len(one) - 1 for one in ids)
    parts = []
    for one in ids:
        tokens = torch.tensor([one])
        parts.append(ops.decoder_loss("tiny", [leaves[use] for use in uses], tokens[:, :-1],
                                      tokens[:, 1:].contiguous(), 1 / labels, False, False))
    return sum(parts)
