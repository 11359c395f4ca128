"""One GPT-2 twice: as parameters for our ops and as transformers' GPT2LMHeadModel."""

from dataclasses import dataclass

import torch
from transformers import GPT2Config, GPT2LMHeadModel

CONV1D_SUFFIXES = ("c_attn.weight", "c_proj.weight", "c_fc.weight")  # stored [in, out] there


@dataclass(frozen=True)
class Shape:
    """A GPT-2: `size` gives width and heads, `layers` at most as many as the size has."""

    size: str
    layers: int
    width: int
    heads: int
    vocabulary: int
    positions: int


def own_parameters(ops, shape: Shape, seed: int = 1) -> dict[str, torch.Tensor]:
    """Our parameters, name to fp32 leaf, for the first `layers` layers.

    The norms and biases start at 1 and 0, where several mistakes would not show: they get random
    values here.
    """
    names = ops.gpt2_parameter_names(shape.size)
    tensors = ops.initial_parameters(shape.size, shape.vocabulary, shape.positions, seed, "cpu")
    generator = torch.Generator().manual_seed(seed)
    parameters = {}
    for name, tensor in zip(names, tensors, strict=True):
        if name.startswith("h.") and int(name.split(".")[1]) >= shape.layers:
            continue
        if tensor.dim() == 1:
            tensor += 0.1 * torch.randn(tensor.shape, generator=generator)
        parameters[name] = tensor.requires_grad_()
    return parameters


def own_uses(
    parameters: dict[str, torch.Tensor], compute_dtype: torch.dtype = torch.float32
) -> list[torch.Tensor]:
    """The parameters in the order of use: all, then the embedding again as head."""
    uses = []
    for name, tensor in parameters.items():
        matrix = name.startswith("h.") and ".ln_" not in name
        uses.append(tensor.to(compute_dtype) if matrix else tensor)
    return [*uses, parameters["wte.weight"].to(compute_dtype)]


def own_loss(
    ops,
    parameters: dict[str, torch.Tensor],
    tokens: torch.Tensor,
    shape: Shape,
    compute_dtype: torch.dtype = torch.float32,
    fused_loss: bool = True,
    sparse: bool = False,
    fused_blocks: bool = False,
) -> torch.Tensor:
    """Mean cross-entropy over all predicted tokens."""
    predicted = tokens.shape[0] * (tokens.shape[1] - 1)
    uses = own_uses(parameters, compute_dtype)
    return ops.gpt2_loss(
        uses, tokens, shape.layers, shape.heads, 1 / predicted, fused_loss, sparse, fused_blocks
    )


def own_logits(
    ops, parameters: dict[str, torch.Tensor], tokens: torch.Tensor, shape: Shape, fused: bool
) -> torch.Tensor:
    """Logits of every position, block by block."""
    uses = own_uses(parameters)
    x = ops.gpt2_embed(uses[0], uses[1], tokens, False)
    for layer in range(shape.layers):
        x = ops.gpt2_block(x, uses[2 + 12 * layer : 14 + 12 * layer], shape.heads, fused)
    x = torch.nn.functional.layer_norm(x, (shape.width,), uses[-3], uses[-2])
    return x @ uses[-1].T


def transformers_model(
    parameters: dict[str, torch.Tensor], shape: Shape, attention: str
) -> GPT2LMHeadModel:
    """GPT2LMHeadModel with the same weights; nothing is downloaded."""
    config = GPT2Config(
        vocab_size=shape.vocabulary,
        n_positions=shape.positions,
        n_embd=shape.width,
        n_layer=shape.layers,
        n_head=shape.heads,
        resid_pdrop=0.0,
        embd_pdrop=0.0,
        attn_pdrop=0.0,
        attn_implementation=attention,
    )
    model = GPT2LMHeadModel(config)
    state = {}
    for name, tensor in parameters.items():
        transposed = name.endswith(CONV1D_SUFFIXES)
        state[f"transformer.{name}"] = (tensor.T if transposed else tensor).detach().clone()
    state["lm_head.weight"] = state["transformer.wte.weight"]
    model.load_state_dict(state, strict=True)
    return model


def transformers_loss(model: GPT2LMHeadModel, tokens: torch.Tensor) -> torch.Tensor:
    """Mean cross-entropy of tokens[:, 1:] predicted from tokens[:, :-1]."""
    logits = model(tokens[:, :-1]).logits
    return torch.nn.functional.cross_entropy(logits.flatten(0, 1).float(), tokens[:, 1:].flatten())


def transformers_gradients(model: GPT2LMHeadModel) -> dict[str, torch.Tensor]:
    """The model's gradients under our names and in our shapes."""
    gradients = {}
    for name, tensor in model.named_parameters():
        name = name.removeprefix("transformer.")
        gradients[name] = tensor.grad.T if name.endswith(CONV1D_SUFFIXES) else tensor.grad
    return gradients


def relative_difference(mine: torch.Tensor, theirs: torch.Tensor) -> float:
    """Norm of the difference over the norm of `theirs`, in fp64."""
    difference = (mine.double() - theirs.double()).norm()
    return (difference / theirs.double().norm()).item()
