"""The finetune twin's data, loss and models, against the ops library and transformers."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest
import torch
from finetune_twin import (
    CPU,
    LENGTHS,
    VOCABULARY,
    WORLD,
    case_of,
    examples,
    reference_loss,
    write_data,
)

import finetune_model
import session
from finetune_data import QUANTILES, BatchPlan, collate, load, synthetic_length
from finetune_train import Trainer
from flags import UsageError
from token_file import Example, split_of


def gradients(case) -> list[torch.Tensor]:
    """Those of a pass's first step, before the optimizer."""
    trainer = Trainer(case, WORLD, None)
    trainer.optimizer.step = lambda: None
    trainer.optimizer.zero_grad = lambda set_to_none: None
    trainer.step(trainer.batches(0), trainer.plan.step_labels(0))
    return [parameter.grad for parameter in trainer.bare.parameters() if parameter.requires_grad]


@pytest.mark.parametrize("batches", [(1, 5), (5, 1), (2, 3)], ids=str)
def test_gradients_do_not_depend_on_batches(ops, tmp_path: Path, batches) -> None:
    """3, 50, 7, 90 and 11 tokens as five micro-batches, one, and two with one left over."""
    train = examples(LENGTHS)
    path = write_data(tmp_path / "data.h5", train, [])
    mine = gradients(case_of("full", *batches, "--data", path))
    leaves = [p.requires_grad_() for p in ops.decoder_initial_parameters("tiny", 512, 1, CPU)]
    expected = torch.autograd.grad(reference_loss(ops, [e.ids for e in train], leaves), leaves)
    split = split_in_order(ops, expected)
    assert len(mine) == len(split)
    for name, gradient, one in zip(split, mine, split.values()):
        torch.testing.assert_close(gradient, one, rtol=1e-4, atol=2e-7, msg=name)


def split_in_order(ops, tensors) -> dict[str, torch.Tensor]:
    """Tensors of our parameters as transformers' matrices, in the order of its parameters."""
    import decoder

    names = ops.decoder_parameter_names("tiny")
    shape = decoder.shape_of("tiny", 0)
    split = decoder.split_parameters(shape, dict(zip(names, tensors, strict=True)))
    model, _ = finetune_model.base_model(case_of("full", 1, 1), CPU)
    return {name: split[name] for name, _ in model.named_parameters()}


def test_answers_alone_count_where_asked(ops, tmp_path: Path) -> None:
    """--loss-on answer: the same model's loss with every other label ignored."""
    train = examples(LENGTHS)
    path = write_data(tmp_path / "data.h5", train, [])
    case = case_of("full", 5, 1, "--data", path, "--loss-on", "answer")
    trainer = Trainer(case, WORLD, None)
    labels = sum(length - length // 2 for length in LENGTHS)
    assert trainer.plan.step_labels(0) == labels
    logits = [trainer.bare(torch.tensor([example.ids])).logits[0] for example in train]
    expected = sum(
        torch.nn.functional.cross_entropy(one[begin - 1 : end - 1],
                                          torch.tensor(example.ids[begin:end]), reduction="sum")
        for one, example in zip(logits, train) for begin, end in example.spans)
    batch = collate(trainer.data.train, range(5), True)
    mine = trainer.loss_sum(trainer.bare, batch, torch.tensor(1.0))
    torch.testing.assert_close(mine, expected, rtol=1e-5, atol=1e-4)


def test_padding_changes_nothing(tmp_path: Path) -> None:
    path = write_data(tmp_path / "data.h5", examples(LENGTHS), [])
    trainer = Trainer(case_of("full", 1, 5, "--data", path), WORLD, None)
    one = torch.tensor(1.0)
    for index in range(5):
        alone = collate(trainer.data.train, range(index, index + 1), False)
        padded = collate(trainer.data.train, range(index, index + 1), False)
        for name, fill in (("ids", 3), ("mask", 0), ("labels", -100)):
            setattr(padded, name, torch.nn.functional.pad(getattr(alone, name), (0, 30),
                                                          value=fill))
        with torch.no_grad():
            torch.testing.assert_close(trainer.loss_sum(trainer.bare, padded, one),
                                       trainer.loss_sum(trainer.bare, alone, one))


def test_plan_of_two_ranks_covers_every_example_once() -> None:
    split = split_of(examples((5,) * 11))
    case = case_of("full", 2, 2)
    plans = [BatchPlan(split, case, rank, 2) for rank in range(2)]
    assert plans[0].steps_per_pass == 2
    assert [list(map(list, plan.micro_batches(0))) for plan in plans] == [
        [[0, 1], [4, 5]], [[2, 3], [6, 7]]]
    assert [list(map(list, plan.micro_batches(1))) for plan in plans] == [[[8, 9]], [[10]]]
    assert plans[0].micro_batches(2) == plans[0].micro_batches(0)  # the next pass
    assert plans[1].step_labels(1) == 3 * 4
    assert BatchPlan(split_of(examples((5, 5))), case, 1, 2).micro_batches(0) == []


def test_examples_without_labels_are_counted_and_harmless(tmp_path: Path) -> None:
    train = [Example([7], []), *examples((5,)), Example([], [])]
    path = write_data(tmp_path / "data.h5", train, [])
    case = case_of("full", 3, 1, "--data", path)
    trainer = Trainer(case, WORLD, None)
    assert trainer.plan.without_labels == 2
    alone = gradients(case_of("full", 1, 1, "--data", write_data(
        tmp_path / "alone.h5", examples((5,)), [])))
    for gradient, one in zip(gradients(case), alone, strict=True):
        torch.testing.assert_close(gradient, one, rtol=1e-4, atol=1e-7)
    nothing = write_data(tmp_path / "nothing.h5", train[:1], [])
    with pytest.raises(UsageError, match="none of the 1 training examples has a label"):
        Trainer(case_of("full", 1, 1, "--data", nothing), WORLD, None)


def test_synthetic_lengths_follow_the_published_distribution(ops) -> None:
    lengths = [synthetic_length(1, index) for index in range(4000)]
    assert abs(np.mean(lengths) - 188) < 5 and max(lengths) <= 512
    measured = np.quantile(lengths, np.linspace(0, 1, len(QUANTILES)))
    np.testing.assert_allclose(measured, QUANTILES, rtol=0.1)
    data = load(case_of("full", 1, 1, "--train-examples", 6, "--held-out", 3), VOCABULARY)
    later = load(case_of("full", 1, 1, "--train-examples", 4, "--held-out", 3), VOCABULARY)
    assert (data.train.examples, data.held_out.examples) == (6, 3)
    assert data.train.example(4).tolist() == later.held_out.example(0).tolist()
    assert len(data.train.example(2)) == lengths[2] and data.train.ids.max() < VOCABULARY


@pytest.mark.parametrize("method", ["lora", "qlora"])
def test_adapters_are_where_they_belong(ops, method: str) -> None:
    """As `trainsuite finetune`: their number, first values, and that nothing else trains."""
    model, _ = finetune_model.build(case_of(method, 1, 1), CPU)
    trained = {name: p for name, p in model.named_parameters() if p.requires_grad}
    assert all("lora_" in name for name in trained) and len(trained) == 2 * 7 * 2
    widths = (64 + 64, 64 + 32, 64 + 32, 64 + 64, 64 + 192, 64 + 192, 192 + 64)
    assert sum(p.numel() for p in trained.values()) == 2 * 16 * sum(widths)
    joint = ops.initial_parameter([48, 64], 1 + 2**32, 8, 1 / math.sqrt(192), 0.0, CPU)
    found = [next(p for name, p in trained.items()
                  if f"layers.1.self_attn.{part}.lora_A" in name) for part in ("q_proj", "k_proj",
                                                                               "v_proj")]
    assert torch.equal(torch.cat([p.detach() for p in found]), joint)
    assert all(not p.any() for name, p in trained.items() if "lora_B" in name)
    assert all(p.dtype == torch.float32 for p in trained.values())


def test_quantized_weights_take_the_bytes_of_four_bits() -> None:
    """Half a byte a weight and one fp32 scale for 64; embedding, norms, biases as they were."""
    model, _ = finetune_model.build(case_of("qlora", 1, 1, "--precision", "bf16", tuned=True), CPU)
    matrices = 2 * (64 * 64 + 2 * 32 * 64 + 64 * 64 + 3 * 64 * 192)
    others = 512 * 64 + 2 * (2 * 64 + 64 + 2 * 32) + 64
    found = finetune_model.bytes_by_dtype(model)
    assert found["weight_bytes_nf4"] == matrices // 2 + matrices // 64 * 4
    assert found["weight_bytes_bfloat16"] == 2 * others
    upcast, _ = finetune_model.build(case_of("qlora", 1, 1, "--precision", "bf16"), CPU)
    adapters = 4 * sum(p.numel() for p in upcast.parameters() if p.requires_grad)
    assert finetune_model.bytes_by_dtype(upcast)["weight_bytes_float32"] == 4 * others + adapters


def test_a_transformers_folder_is_what_is_trained(tmp_path: Path) -> None:
    import decoder
    from transformers import Qwen2ForCausalLM

    torch.manual_seed(3)
    saved = Qwen2ForCausalLM(decoder.config_of(decoder.shape_of("tiny", 300), "sdpa"))
    saved.save_pretrained(tmp_path / "model")
    path = write_data(tmp_path / "data.h5", [Example([1, 2, 3], [])],
                      [Example([5, 6, 7, 8], []), Example([9, 10], [])])
    case = case_of("full", 1, 1, "--model", tmp_path / "model", "--data", path)
    finetune_model.check(case)
    ids = [torch.tensor([[5, 6, 7, 8]]), torch.tensor([[9, 10]])]
    expected = (3 * saved(ids[0], labels=ids[0]).loss + saved(ids[1], labels=ids[1]).loss) / 4
    assert Trainer(case, WORLD, None).held_out_loss() == pytest.approx(expected.item(), rel=1e-5)


def test_repeats_differ_in_their_seed(tmp_path: Path) -> None:
    """As trainsuite's do: the spread of losses over repeats is what a seed alone moves."""
    case = case_of("full", 4, 4)
    parts = [lambda *_: None] * 5
    varying, fixed = (session.Suite("finetune", *parts, vary_seed=vary) for vary in (True, False))
    assert [session.of_repeat(varying, case, repeat).seed - case.seed
            for repeat in range(3)] == [0, 1, 2]
    assert session.of_repeat(fixed, case, 2) == case
