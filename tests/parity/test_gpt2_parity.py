"""GPT-2 against transformers' GPT2LMHeadModel on shared weights, fp32 on a CPU."""

import pytest
import torch
from gpt2_pair import (
    Shape,
    own_logits,
    own_loss,
    own_parameters,
    own_uses,
    relative_difference,
    transformers_gradients,
    transformers_loss,
    transformers_model,
)

TOLERANCE = 1e-5  # norm of the difference over the norm, per tensor
TINY = Shape("tiny", 2, 64, 4, 509, 48)  # an odd vocabulary
SHAPES = {
    "tiny": (TINY, 3, 48),
    "tiny-short": (TINY, 2, 17),  # fewer tokens than positions
    "124m-2-layers": (Shape("124m", 2, 768, 12, 50304, 128), 2, 128),
    "355m-1-layer": (Shape("355m", 1, 1024, 16, 1000, 64), 1, 64),
    "124m": (Shape("124m", 12, 768, 12, 50304, 64), 1, 24),
}


def key_bias_rows(name: str, width: int) -> slice | None:
    """Where a tensor holds the key biases: softmax ignores them, so their gradient is 0."""
    return slice(width, 2 * width) if name.endswith("c_attn.bias") else None


def assert_gradients_match(
    mine: dict[str, torch.Tensor], theirs: dict[str, torch.Tensor], width: int, tolerance: float
) -> None:
    assert mine.keys() == theirs.keys()
    for name, gradient in mine.items():
        reference, gradient = theirs[name].clone(), gradient.clone()
        if rows := key_bias_rows(name, width):
            noise = gradient[rows].norm() / reference.norm()
            assert noise <= tolerance, f"{name}: key bias gradient {noise:.2e} of the norm"
            gradient[rows] = reference[rows] = 0
        difference = relative_difference(gradient, reference)
        assert difference <= tolerance, f"{name}: gradient differs by {difference:.2e}"


def gradients_of(loss: torch.Tensor, parameters: dict[str, torch.Tensor]):
    tensors = torch.autograd.grad(loss, list(parameters.values()))
    return dict(zip(parameters, tensors, strict=True))


@pytest.fixture(scope="module", params=SHAPES, ids=list(SHAPES))
def pair(request, ops):
    """Shape, tokens, our parameters, and transformers' logits, loss and gradients."""
    shape, batch, sequence = SHAPES[request.param]
    parameters = own_parameters(ops, shape)
    tokens = ops.random_tokens(7, 0, 0, batch, sequence + 1, shape.vocabulary, "cpu")
    attention = "eager" if request.param == "tiny-short" else "sdpa"
    model = transformers_model(parameters, shape, attention)
    loss = transformers_loss(model, tokens)
    loss.backward()
    with torch.no_grad():
        logits = model(tokens[:, :-1]).logits
    return shape, tokens, parameters, logits, loss.detach(), transformers_gradients(model)


@pytest.mark.parametrize("fused", [False, True], ids=["reference", "fused"])
def test_logits(pair, ops, fused) -> None:
    shape, tokens, parameters, logits, _, _ = pair
    with torch.no_grad():
        mine = own_logits(ops, parameters, tokens[:, :-1], shape, fused)
    assert relative_difference(mine, logits) <= TOLERANCE


@pytest.mark.parametrize("fused", [False, True], ids=["reference", "fused"])
def test_loss_and_gradients(pair, ops, fused) -> None:
    shape, tokens, parameters, _, theirs, gradients = pair
    loss = own_loss(ops, parameters, tokens, shape, fused_loss=fused, fused_blocks=fused)
    assert loss.dtype == torch.float32 and loss.dim() == 0
    assert relative_difference(loss, theirs) <= TOLERANCE
    assert_gradients_match(gradients_of(loss, parameters), gradients, shape.width, TOLERANCE)


def test_both_uses_of_the_tied_embedding_add_up(ops) -> None:
    parameters = own_parameters(ops, TINY)
    tokens = ops.random_tokens(3, 0, 0, 2, 33, TINY.vocabulary, "cpu")
    tied = gradients_of(own_loss(ops, parameters, tokens, TINY), parameters)["wte.weight"]
    uses = [use.detach().requires_grad_() for use in own_uses(parameters)]
    loss = ops.gpt2_loss(uses, tokens, TINY.layers, TINY.heads, 1 / 64, True, False)
    embedding, head = torch.autograd.grad(loss, [uses[0], uses[-1]])
    assert embedding.norm() > 0 and head.norm() > 0
    assert relative_difference(embedding + head, tied) <= 1e-6


def test_sparse_embedding_gradient_is_the_dense_one(ops) -> None:
    parameters = own_parameters(ops, TINY)
    tokens = ops.random_tokens(3, 0, 0, 2, 33, TINY.vocabulary, "cpu")
    tokens[0, :8] = 5  # a token that repeats
    gradients = []
    for sparse in (False, True):
        uses = [use.detach().requires_grad_() for use in own_uses(parameters)]
        loss = ops.gpt2_loss(uses, tokens, TINY.layers, TINY.heads, 1 / 64, True, sparse)
        gradients.append(torch.autograd.grad(loss, uses[0])[0])
    assert not gradients[0].is_sparse and gradients[1].is_sparse
    assert gradients[1]._nnz() <= tokens[:, :-1].numel()
    assert relative_difference(gradients[1].to_dense(), gradients[0]) <= 1e-6


@pytest.mark.parametrize("fused", [False, True], ids=["reference", "fused"])
def test_bf16_is_as_close_to_fp32_as_autocast_is(ops, fused) -> None:
    """The same rounding rules as autocast's: the same distance from fp32, and near each other."""
    shape, batch, sequence = SHAPES["124m-2-layers"]
    parameters = own_parameters(ops, shape)
    tokens = ops.random_tokens(7, 0, 0, batch, sequence + 1, shape.vocabulary, "cpu")
    model = transformers_model(parameters, shape, "sdpa")
    exact_loss = transformers_loss(model, tokens)
    exact_loss.backward()
    exact = {name: grad.clone() for name, grad in transformers_gradients(model).items()}
    model.zero_grad()
    with torch.autocast("cpu", torch.bfloat16):
        autocast_loss = transformers_loss(model, tokens)
    autocast_loss.backward()
    autocast = transformers_gradients(model)
    loss = own_loss(ops, parameters, tokens, shape, torch.bfloat16, fused, False, fused)
    mine = gradients_of(loss, parameters)
    assert relative_difference(loss, autocast_loss.detach()) <= 1e-4
    for name, gradient in mine.items():
        if name.endswith("c_attn.bias"):
            gradient, exact_one = gradient.clone(), exact[name].clone()
            rows = key_bias_rows(name, shape.width)
            gradient[rows] = exact_one[rows] = autocast[name][rows] = 0
        else:
            exact_one = exact[name]
        noise = relative_difference(autocast[name], exact_one)
        assert 1e-4 < noise < 0.1, f"{name}: autocast's own noise is {noise:.1e}"
        distance = relative_difference(gradient, exact_one)
        assert distance <= 1.25 * noise, f"{name}: {distance:.2e} from fp32, autocast {noise:.2e}"
        assert relative_difference(gradient, autocast[name]) <= 2 * noise


def test_a_sequence_longer_than_the_positions_is_refused(ops) -> None:
    parameters = own_parameters(ops, TINY)
    tokens = ops.random_tokens(3, 0, 0, 1, TINY.positions + 2, TINY.vocabulary, "cpu")
    with pytest.raises(RuntimeError, match="sequence 49 exceeds the model's 48 positions"):
        own_loss(ops, parameters, tokens, TINY)
