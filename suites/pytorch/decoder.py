"""Llama and Qwen2 as transformers models with the weights of trainsuite's ops library."""

from __future__ import annotations

from dataclasses import dataclass

import torch
import transformers
from torch import Tensor, nn
from transformers import LlamaConfig, LlamaForCausalLM, Qwen2Config, Qwen2ForCausalLM

ATTENTION = {"sdpa": "sdpa", "naive": "eager"}  # ours -> transformers'


@dataclass(frozen=True)
class Shape:
    """A size of the ops library's decoder."""

    size: str
    layers: int
    width: int
    heads: int
    key_value_heads: int
    head_width: int
    hidden: int
    vocabulary: int
    qkv_bias: bool  # Qwen2 has them, Llama has none
    tied: bool
    rotary_base: float
    norm_epsilon: float

    @property
    def qkv_rows(self) -> list[int]:
        """Rows of q, k and v in the ops library's joint matrix."""
        one = self.key_value_heads * self.head_width
        return [self.heads * self.head_width, one, one]


def shape_of(size: str, vocabulary: int) -> Shape:
    """The shape that the ops library names `size`; vocabulary 0: its own."""
    numbers = torch.ops.trainsuite.decoder_shape(size)
    base, epsilon = torch.ops.trainsuite.decoder_numbers(size)
    return Shape(size, *numbers[:6], vocabulary or numbers[6], bool(numbers[7]), bool(numbers[8]),
                 base, epsilon)


def initial_parameters(
    shape: Shape, seed: int, device: torch.device, dtype: torch.dtype
) -> dict[str, Tensor]:
    """The ops library's weights under its names: joint q, k, v and joint gate, up."""
    names = torch.ops.trainsuite.decoder_parameter_names(shape.size)
    tensors = torch.ops.trainsuite.decoder_initial_parameters(
        shape.size, shape.vocabulary, seed, device
    )
    return {name: tensor.to(dtype) for name, tensor in zip(names, tensors, strict=True)}


def split_parameters(shape: Shape, tensors: dict[str, Tensor]) -> dict[str, Tensor]:
    """The same under transformers' names, its matrices apart."""
    state = {}
    for name, tensor in tensors.items():
        if ".qkv_proj." in name:
            parts = tensor.split(shape.qkv_rows)
            names = [name.replace("qkv_proj", part) for part in ("q_proj", "k_proj", "v_proj")]
        elif ".gate_up_proj." in name:
            parts = tensor.split(shape.hidden)
            names = [name.replace("gate_up_proj", part) for part in ("gate_proj", "up_proj")]
        else:
            parts, names = [tensor], [name]
        for one, part in zip(names, parts, strict=True):
            state[one if one.startswith("lm_head") else f"model.{one}"] = part.clone()
    return state


def config_of(shape: Shape, attention: str) -> LlamaConfig | Qwen2Config:
    """transformers' configuration; `attention` is sdpa or naive."""
    family = Qwen2Config if shape.qkv_bias else LlamaConfig
    return family(
        vocab_size=shape.vocabulary,
        hidden_size=shape.width,
        intermediate_size=shape.hidden,
        num_hidden_layers=shape.layers,
        num_attention_heads=shape.heads,
        num_key_value_heads=shape.key_value_heads,
        rms_norm_eps=shape.norm_epsilon,
        rope_parameters={"rope_type": "default", "rope_theta": shape.rotary_base},
        tie_word_embeddings=shape.tied,
        attn_implementation=ATTENTION[attention],
        use_cache=False,
    )


def build(shape: Shape, parameters: dict[str, Tensor], attention: str) -> nn.Module:
    """A model in training mode that holds `parameters` (of the ops library's names)."""
    config = config_of(shape, attention)
    state = split_parameters(shape, parameters)
    device = next(iter(state.values())).device
    with torch.device("meta"):
        model = (Qwen2ForCausalLM if shape.qkv_bias else LlamaForCausalLM)(config)
    if shape.tied:
        state["lm_head.weight"] = state["model.embed_tokens.weight"]
    model.load_state_dict(state, strict=True, assign=True)
    if shape.tied:
        model.lm_head.weight = model.model.embed_tokens.weight
    # Its table of frequencies is no parameter and would stay on the meta device.
    with device:
        model.model.rotary_emb = type(model.model.rotary_emb)(config)
    check_rotary(model, shape)
    return model.train().requires_grad_(True)


def check_rotary(model: nn.Module, shape: Shape) -> None:
    """transformers before 5 reads the rotary base from elsewhere and would take its own."""
    slowest = float(model.model.rotary_emb.inv_freq[-1])
    wanted = shape.rotary_base ** (2 / shape.head_width - 1)
    if abs(slowest / wanted - 1) > 1e-3:
        raise RuntimeError(f"transformers {transformers.__version__} did not take the rotary base "
                           f"{shape.rotary_base:g}; install the version of requirements-test.txt")


def hash_of(tensors: list[Tensor]) -> int:
    """Hash of tensors in order; as trainsuite's of the same parameter list."""
    op = torch.ops.trainsuite.tensor_hash
    return int(op(torch.stack([op(tensor.detach().contiguous()) for tensor in tensors])))


def versions() -> dict[str, str]:
    """What a run's row says beside torch."""
    return {"transformers_version": transformers.__version__}
