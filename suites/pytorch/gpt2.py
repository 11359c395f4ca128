"""GPT-2 as a plain PyTorch module.

Architecture and parameter names as transformers' GPT2LMHeadModel (Radford et al. 2019): learned
positions, pre-LayerNorm with bias, tanh GELU, causal attention, head tied to the token embedding,
no dropout. Linear layers are nn.Linear, so their weights are [out, in].
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn


@dataclass(frozen=True)
class Config:
    """Size of a model: `positions` is the longest sequence it can take."""

    name: str
    layers: int
    width: int
    heads: int
    vocabulary: int
    positions: int


SIZES: dict[str, tuple[int, int, int]] = {  # layers, width, heads
    "124m": (12, 768, 12),
    "355m": (24, 1024, 16),
    "tiny": (2, 64, 4),
}


def config(size: str, vocabulary: int, positions: int) -> Config:
    """The configuration of one of SIZES."""
    layers, width, heads = SIZES[size]
    return Config(size, layers, width, heads, vocabulary, positions)


class Attention(nn.Module):
    """Causal self-attention over [batch, sequence, width]."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.c_attn = nn.Linear(width, 3 * width)
        self.c_proj = nn.Linear(width, width)

    def forward(self, x: Tensor) -> Tensor:
        batch, sequence, width = x.shape
        shape = (batch, sequence, self.heads, width // self.heads)
        query, key, value = (
            part.view(shape).transpose(1, 2) for part in self.c_attn(x).split(width, dim=2)
        )
        y = F.scaled_dot_product_attention(query, key, value, is_causal=True)
        return self.c_proj(y.transpose(1, 2).reshape(batch, sequence, width))


class Mlp(nn.Module):
    """Feed-forward part, four times as wide inside."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.c_fc = nn.Linear(width, 4 * width)
        self.c_proj = nn.Linear(4 * width, width)

    def forward(self, x: Tensor) -> Tensor:
        return self.c_proj(F.gelu(self.c_fc(x), approximate="tanh"))


class Block(nn.Module):
    """One decoder layer."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.ln_1 = nn.LayerNorm(width, eps=1e-5)
        self.attn = Attention(width, heads)
        self.ln_2 = nn.LayerNorm(width, eps=1e-5)
        self.mlp = Mlp(width)

    def forward(self, x: Tensor) -> Tensor:
        x = x + self.attn(self.ln_1(x))
        return x + self.mlp(self.ln_2(x))


class Transformer(nn.Module):
    """Embeddings, blocks and final norm: tokens [batch, sequence] to [batch, sequence, width]."""

    def __init__(self, c: Config) -> None:
        super().__init__()
        self.wte = nn.Embedding(c.vocabulary, c.width)
        self.wpe = nn.Embedding(c.positions, c.width)
        self.h = nn.ModuleList(Block(c.width, c.heads) for _ in range(c.layers))
        self.ln_f = nn.LayerNorm(c.width, eps=1e-5)

    def forward(self, tokens: Tensor) -> Tensor:
        # Positions are 0, 1, ...: rows of the table, with no lookup and no scatter in backward.
        sequence, positions = tokens.size(1), self.wpe.weight
        x = self.wte(tokens) + (
            positions if sequence == positions.size(0) else positions[:sequence]
        )
        for block in self.h:
            x = block(x)
        return self.ln_f(x)


class Gpt2(nn.Module):
    """Language model: forward(tokens, targets), both [batch, sequence] int64, is the mean loss."""

    def __init__(self, c: Config) -> None:
        super().__init__()
        self.config = c
        self.transformer = Transformer(c)
        self.lm_head = nn.Linear(c.width, c.vocabulary, bias=False)
        self.tie()

    def tie(self) -> None:
        """Makes the head's weight the token embedding."""
        self.lm_head.weight = self.transformer.wte.weight

    def forward(self, tokens: Tensor, targets: Tensor) -> Tensor:
        logits = self.lm_head(self.transformer(tokens))
        return F.cross_entropy(logits.flatten(0, 1), targets.flatten())


def build(c: Config, parameters: Sequence[Tensor]) -> Gpt2:
    """A model that takes over `parameters`, in the order of named_parameters (tied head once)."""
    with torch.device("meta"):
        model = Gpt2(c)
    names = [name for name, _ in model.named_parameters()]
    if len(names) != len(parameters):
        raise RuntimeError(
            f"{c.name}: the model has {len(names)} parameters, the ops library gave "
            f"{len(parameters)}: build both from one source"
        )
    state = dict(zip(names, parameters))
    state["lm_head.weight"] = state["transformer.wte.weight"]
    model.load_state_dict(state, strict=True, assign=True)
    model.tie()
    return model.train().requires_grad_(True)
