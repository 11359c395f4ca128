"""One decoder twice: as parameters for our ops and as transformers' Qwen2 or Llama model."""

from dataclasses import dataclass

import torch
from transformers import LlamaConfig, LlamaForCausalLM, Qwen2Config, Qwen2ForCausalLM


@dataclass(frozen=True)
class DecoderShape:
    """A size of our ops, cut to `layers` layers and with this vocabulary."""

    size: str
    layers: int
    width: int
    heads: int
    key_value_heads: int
    head_width: int
    hidden: int
    vocabulary: int
    qkv_bias: bool
    tied: bool
    rotary_base: float
    norm_epsilon: float

    @property
    def qkv_rows(self) -> list[int]:
        """Rows of q, k and v in their joint matrix."""
        one = self.key_value_heads * self.head_width
        return [self.heads * self.head_width, one, one]


def decoder_shape(ops, size: str, layers: int, vocabulary: int) -> DecoderShape:
    """The shape that our ops name `size`, with fewer layers and another vocabulary."""
    numbers = ops.decoder_shape(size)
    base, epsilon = ops.decoder_numbers(size)
    return DecoderShape(size, layers, *numbers[1:6], vocabulary, bool(numbers[7]),
                        bool(numbers[8]), base, epsilon)


def own_parameters(ops, shape: DecoderShape, seed: int = 1) -> dict[str, torch.Tensor]:
    """Our parameters, name to fp32 leaf; norms and biases are made random, so that errors show."""
    names = ops.decoder_parameter_names(shape.size)
    tensors = ops.decoder_initial_parameters(shape.size, shape.vocabulary, seed, "cpu")
    generator = torch.Generator().manual_seed(seed)
    parameters = {}
    for name, tensor in zip(names, tensors, strict=True):
        if name.startswith("layers.") and int(name.split(".")[1]) >= shape.layers:
            continue
        scale = 0.1 if tensor.dim() == 1 else 0.05
        tensor += scale * torch.randn(tensor.shape, generator=generator)
        parameters[name] = tensor.requires_grad_()
    return parameters


def own_uses(shape: DecoderShape, parameters: dict[str, torch.Tensor]) -> list[torch.Tensor]:
    """The parameters in the order of use: all, then a tied embedding again as head."""
    uses = list(parameters.values())
    return [*uses, uses[0]] if shape.tied else uses


def own_hidden(ops, shape: DecoderShape, parameters, tokens: torch.Tensor, naive: bool):
    """The residual stream after the last block, and the uses."""
    uses = own_uses(shape, parameters)
    step = 7 if shape.qkv_bias else 6
    table = ops.rotary_table(tokens.shape[1], shape.head_width, shape.rotary_base, "cpu")
    x = ops.decoder_embed(uses[0], tokens)
    for layer in range(shape.layers):
        p = uses[1 + step * layer : 1 + step * (layer + 1)]
        x = ops.decoder_block(
            x, p, *table, shape.heads, shape.key_value_heads, shape.norm_epsilon, naive
        )
    return x, uses


def split_parameters(shape: DecoderShape, tensors: dict[str, torch.Tensor]):
    """Tensors under our names, split into transformers' matrices under transformers' names."""
    out = {}
    for name, tensor in tensors.items():
        if ".qkv_proj." in name:
            parts = tensor.split(shape.qkv_rows)
            wanted = [name.replace("qkv_proj", part) for part in ("q_proj", "k_proj", "v_proj")]
        elif ".gate_up_proj." in name:
            parts = tensor.split(shape.hidden)
            wanted = [name.replace("gate_up_proj", part) for part in ("gate_proj", "up_proj")]
        else:
            parts, wanted = [tensor], [name]
        for one, part in zip(wanted, parts, strict=True):
            out[one if one.startswith("lm_head") else f"model.{one}"] = part
    return out


def transformers_model(shape: DecoderShape, parameters: dict[str, torch.Tensor], attention: str):
    """transformers' model with the same weights; nothing is downloaded."""
    common = {
        "vocab_size": shape.vocabulary,
        "hidden_size": shape.width,
        "intermediate_size": shape.hidden,
        "num_hidden_layers": shape.layers,
        "num_attention_heads": shape.heads,
        "num_key_value_heads": shape.key_value_heads,
        "rms_norm_eps": shape.norm_epsilon,
        "rope_parameters": {"rope_type": "default", "rope_theta": shape.rotary_base},
        "tie_word_embeddings": shape.tied,
        "attn_implementation": attention,
    }
    family = (Qwen2Config, Qwen2ForCausalLM) if shape.qkv_bias else (LlamaConfig, LlamaForCausalLM)
    model = family[1](family[0](**common)).float()
    state = {name: part.detach().clone() for name, part in
             split_parameters(shape, parameters).items()}
    if shape.tied:
        state["lm_head.weight"] = state["model.embed_tokens.weight"]
    model.load_state_dict(state, strict=True)
    return model


def transformers_loss(logits: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
    """Mean cross-entropy over the targets that are not -100."""
    return torch.nn.functional.cross_entropy(
        logits.flatten(0, 1).float(), targets.flatten(), ignore_index=-100
    )
