"""The decoder against transformers' Qwen2ForCausalLM and LlamaForCausalLM, fp32 on a CPU."""

import pytest
import torch
from decoder_pair import (
    decoder_shape,
    own_hidden,
    own_parameters,
    own_uses,
    split_parameters,
    transformers_loss,
    transformers_model,
)
from gpt2_pair import relative_difference

TOLERANCE = 1e-5  # norm of the difference over the norm, per tensor
# size, layers, vocabulary, batch, sequence
MODELS = {
    "tiny": ("tiny", 2, 509, 3, 33),
    "1.5b-1-layer": ("1.5b", 1, 1000, 2, 40),
    "0.5b-2-layers": ("0.5b", 2, 400, 1, 65),
    "468m-2-layers": ("468m", 2, 700, 2, 48),
}


@pytest.fixture(scope="module", params=[(m, a) for m in MODELS for a in ("sdpa", "eager")],
                ids=lambda param: "-".join(param))
def pair(request, ops):
    """Shape, tokens, targets, our parameters; transformers' logits, loss and gradients."""
    name, attention = request.param
    size, layers, vocabulary, batch, sequence = MODELS[name]
    shape = decoder_shape(ops, size, layers, vocabulary)
    parameters = own_parameters(ops, shape)
    tokens = ops.random_tokens(7, 0, 0, batch, sequence + 1, vocabulary, "cpu")
    targets = tokens[:, 1:].clone()
    targets[0, : sequence // 3] = -100
    model = transformers_model(shape, parameters, attention)
    logits = model(tokens[:, :-1]).logits
    loss = transformers_loss(logits, targets)
    loss.backward()
    gradients = {name: tensor.grad for name, tensor in model.named_parameters()}
    return shape, tokens[:, :-1], targets, parameters, logits.detach(), loss.detach(), gradients, (
        attention == "eager")


def test_logits(pair, ops) -> None:
    shape, tokens, _, parameters, logits, _, _, naive = pair
    x, uses = own_hidden(ops, shape, parameters, tokens, naive)
    norm = torch.nn.functional.rms_norm(x, (shape.width,), uses[-2], shape.norm_epsilon)
    assert relative_difference((norm @ uses[-1].T).detach(), logits) <= TOLERANCE


@pytest.mark.parametrize("fused", [False, True], ids=["reference", "fused"])
def test_loss_and_every_gradient(pair, ops, fused: bool) -> None:
    shape, tokens, targets, parameters, _, expected, gradients, naive = pair
    labels = int((targets != -100).sum())
    x, uses = own_hidden(ops, shape, parameters, tokens, naive)
    loss = ops.decoder_head_loss(
        x, uses[-2], uses[-1], targets, 1 / labels, shape.norm_epsilon, fused
    )
    assert relative_difference(loss.detach(), expected) <= TOLERANCE
    mine = torch.autograd.grad(loss, list(parameters.values()))
    mine = split_parameters(shape, dict(zip(parameters, mine, strict=True)))
    assert mine.keys() == gradients.keys()
    key_noise = max(g.norm() for n, g in gradients.items() if n.endswith("q_proj.weight"))
    for name, gradient in mine.items():
        if name.endswith("k_proj.bias"):  # rotation aside, softmax ignores it: mostly rounding
            assert (gradient - gradients[name]).norm() <= TOLERANCE * key_noise, name
        else:
            difference = relative_difference(gradient, gradients[name])
            assert difference <= TOLERANCE, f"{name}: gradient differs by {difference:.2e}"


@pytest.mark.parametrize("naive", [False, True], ids=["sdpa", "naive"])
@pytest.mark.parametrize("sparse", [False, True], ids=["dense", "sparse"])
def test_the_whole_model_equals_its_parts(ops, naive: bool, sparse: bool) -> None:
    shape = decoder_shape(ops, "tiny", 2, 509)
    parameters = own_parameters(ops, shape)
    tokens = ops.random_tokens(7, 0, 0, 2, 20, 509, "cpu")
    x, uses = own_hidden(ops, shape, parameters, tokens[:, :-1], naive)
    parts = ops.decoder_head_loss(x, uses[-2], uses[-1], tokens[:, 1:], 1.0, 1e-6, True)
    whole = ops.decoder_loss("tiny", own_uses(shape, parameters), tokens[:, :-1], tokens[:, 1:],
                             1.0, naive, True, sparse)
    assert torch.equal(parts, whole)


def test_the_published_numbers_of_parameters(ops) -> None:
    counts = {}
    for size in ("0.5b", "1.5b", "468m"):
        layers, width, heads, kv, head, hidden, vocabulary, bias, tied = ops.decoder_shape(size)
        qkv = (heads + 2 * kv) * head
        block = qkv * width + bias * qkv + heads * head * width + 3 * width * hidden + 2 * width
        counts[size] = layers * block + (2 - tied) * vocabulary * width + width
    assert counts == {"0.5b": 494_032_768, "1.5b": 1_543_714_304, "468m": 468_239_360}


def test_bad_input_is_named(ops) -> None:
    shape = decoder_shape(ops, "tiny", 2, 509)
    uses = own_uses(shape, own_parameters(ops, shape))
    tokens = torch.zeros(1, 4, dtype=torch.long)
    with pytest.raises(RuntimeError, match="16 parameter uses given, tiny has 17"):
        ops.decoder_loss("tiny", uses[:-1], tokens, tokens, 1.0)
    with pytest.raises(RuntimeError, match="unknown decoder size '2b': choose one of tiny, 0.5b"):
        ops.decoder_parameter_names("2b")
    with pytest.raises(RuntimeError, match="5 parameters given"):
        ops.decoder_block(torch.zeros(1, 4, 64), uses[:5], tokens, tokens, 4, 2, 1e-6)
