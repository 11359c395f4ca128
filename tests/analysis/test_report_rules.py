"""Each rule speaks where the data bear its sentence, and is silent where they do not."""

import dataclasses

import numpy as np
import pytest

import prices
import report_keep_in_mind as mind
import report_stood_out as out
import report_stood_out_more as more
import results
from report_costs import Costing
from report_rows import Row
from report_suite import Suite

GIB = 1 << 30
DAY = "2026-10-29"


def ddp(recipe: str, rate: float | None, gpus: int = 1, **more_of_it) -> Row:
    settings = {"micro_batch": 8, "accumulate": 4 if recipe == "both" else 1, "vocabulary": 50304}
    values = {"tokens_per_second": rate, "date": DAY, "file": "a.h5", "variant": recipe,
              "hosts": ("h",), "settings": settings, "peak_bytes": 5.0 * GIB} | more_of_it
    return Row("ddp", f"124m-{recipe}", "124m", recipe, values.pop("source", "trainsuite"),
               values.pop("gpu", "L40S"), gpus, gpus, gpus, **values)


def tune(recipe: str, micro_batch: int, rate: float, peak_gib: float, before: float = 1.1,
         after: float = 1.05, **more_of_it) -> Row:
    values = {"tokens_per_second": rate, "date": DAY, "file": "a.h5", "variant": recipe,
              "hosts": ("h",), "peak_bytes": peak_gib * GIB, "loss_before": before,
              "loss_after": after, "train_seconds": 100.0,
              "settings": {"micro_batch": micro_batch, "accumulate": 16 // micro_batch}}
    return Row("finetune", f"1.5b-{recipe}", "1.5b", recipe, "trainsuite", "L40S", 1, 1, 1,
               **(values | more_of_it))


def comp(recipe: str, step: float | None, peak: float | None, gpu: str = "L40S",
         first: float = 1.0, **more_of_it) -> Row:
    values = {"tokens_per_second": 8192 / step if step else None, "step_seconds": step,
              "date": DAY, "file": "a.h5", "hosts": (gpu,), "first_step_seconds": first,
              "peak_bytes": peak * 1e9 if peak else None,
              "variant": recipe.replace("-", " + ") + " attention",
              "status": "ok" if step else "oom"}
    return Row("compile", f"468m-{recipe}", "468m", recipe, "trainsuite", gpu, 1, 1, 1,
               **(values | more_of_it))


def suite(*rows: Row, run_price: str = "", history: prices.Prices | None = None) -> Suite:
    return Suite(rows[0].suite, list(rows), Costing(history, DAY, run_price), [], ["a.h5", "b.h5"])


def said(rule, *rows: Row, **of_suite) -> list[str]:
    return list(rule(suite(*rows, **of_suite)))


def test_fastest_names_the_ratio_to_the_next() -> None:
    assert said(out.fastest, ddp("plain", 1000), ddp("bf16", 1500)) == [
        "124M bf16 was fastest at 1,500 tokens/s, 1.50x those of the next, 124M plain"]


def test_fastest_ties_inside_ten_percent_of_single_runs() -> None:
    (sentence,) = said(out.fastest, ddp("plain", 1000), ddp("bf16", 1090))
    assert "tie for the most tokens/s: 1,090 at most, the lowest 9.0% behind" in sentence
    assert "tie" not in said(out.fastest, ddp("plain", 1000), ddp("bf16", 1110))[0]


def test_many_ties_are_counted() -> None:
    rows = [ddp(recipe, 1000 + 10 * at) for at, recipe in enumerate(("plain", "bf16", "both", "x"))]
    assert said(out.fastest, *rows) == [
        "124M x had the most tokens/s, 1,030, but 3 other rows tie with it inside the noise or "
        "their spread"]


def test_hosts_of_one_name_with_other_cards_are_other_machines() -> None:
    a, b = ddp("plain", 1000, cards=frozenset("12")), ddp("bf16", 2000, cards=frozenset("1"))
    assert said(out.fastest, a, b)
    assert not said(out.fastest, a, dataclasses.replace(b, cards=frozenset("3")))


def test_repeats_that_do_not_overlap_do_not_tie() -> None:
    a = ddp("plain", 1000, repeats=3, rate_range=(995.0, 1005.0))
    b = ddp("bf16", 1050, repeats=3, rate_range=(1045.0, 1055.0))
    assert "was fastest" in said(out.fastest, a, b)[0]
    b.rate_range = (1004.0, 1055.0)
    assert "tie" in said(out.fastest, a, b)[0]


def test_steps_whose_spreads_overlap_tie() -> None:
    a = ddp("plain", 1000, step_seconds=1.0, step_p10=0.7, step_p90=1.3)
    b = ddp("bf16", 1200, step_seconds=0.8333, step_p10=0.8, step_p90=1.0)
    assert "inside their spread" in said(out.fastest, a, b)[0]


@pytest.mark.parametrize("rule, rows", [
    (out.fastest, (ddp("plain", 1000), ddp("bf16", 2000, hosts=("other",)))),
    (out.fastest, (ddp("plain", 1000, hosts=()), ddp("bf16", 2000, hosts=()))),
    (out.scaling, (ddp("plain", 1000, 4), ddp("both", 2000, 4, hosts=("other",)))),
    (more.against_pytorch, (ddp("plain", 1000), ddp("plain", 500, source="pytorch",
                                                    hosts=("other",)))),
    (more.naive_compiled, (comp("eager-naive", 0.4, 50, hosts=("a",)),
                           comp("compile-naive", 0.1, 30, hosts=("b",)))),
    (more.pay_back, (comp("eager-sdpa", 0.4, 50, hosts=("a",)),
                     comp("compile-sdpa", 0.1, 30, first=40, hosts=("b",)))),
])
def test_rows_of_different_hosts_give_no_speed_sentence(rule, rows) -> None:
    assert not said(rule, *rows)
    same = [dataclasses.replace(row, hosts=("h",)) for row in rows]
    assert said(rule, *same)


def test_cheapest_counts_price_and_speed() -> None:
    rows = ddp("plain", 1e5, 4), ddp("1gpu", 5e4)
    assert said(out.cheapest, *rows, run_price="3.60/4") == [
        "124M 1gpu trained the cheapest tokens: $5.00 per 1B at its run day's price, 50% less $ "
        "per token than the next, 124M plain"]
    assert not said(out.cheapest, *rows)
    close = ddp("plain", 1e5, 1), ddp("1gpu", 1.05e5)
    assert "tie for the cheapest token" in said(out.cheapest, *close, run_price="3.60")[0]


def test_out_of_memory_names_phase_and_bytes() -> None:
    row = tune("full", 8, 1, 1, status="oom", oom_phase="backward", oom_bytes=39.6 * GIB)
    assert said(out.out_of_memory, row) == [
        "full 8x2 ran out of memory in the backward phase with 39.6 GiB allocated"]
    assert not said(out.out_of_memory, tune("full", 8, 1, 1))


def test_fits_only_compiled_or_neither_way() -> None:
    assert said(out.fits_compiled, comp("eager-naive", None, None),
                comp("compile-naive", 0.4, 39)) == [
        "On the L40S naive attention fits only compiled"]
    assert said(out.fits_compiled, comp("eager-naive", None, None),
                comp("compile-naive", None, None)) == [
        "On the L40S naive attention fits neither eager nor compiled"]
    failed = comp("compile-naive", None, None, status="failed")
    assert not said(out.fits_compiled, comp("eager-naive", None, None), failed)
    assert not said(out.fits_compiled, comp("eager-naive", 0.4, 50), comp("compile-naive", 0.4, 39))


def test_peaks_between_methods_and_micro_batches() -> None:
    rows = tune("full", 4, 10, 40), tune("lora", 4, 10, 10), tune("lora", 8, 10, 18)
    assert said(out.peak_between_methods, *rows) == [
        "lora 4x4 peaked at 10.0 GiB, 25% of the peak of full 4x4 (40.0 GiB)"]
    assert said(out.peak_by_micro_batch, *rows) == [
        "lora peaked at 10.0 GiB at micro-batch 4 and at 18.0 GiB at 8"]
    assert not said(out.peak_by_micro_batch, *rows[:2])


def test_compiling_a_peak_says_the_share_of_each_attention() -> None:
    rows = comp("eager-sdpa", 0.2, 20), comp("compile-sdpa", 0.2, 15), comp("graph-sdpa", 0.2, 17)
    assert said(out.peak_of_compile, *rows) == [
        "Compiling cut the peak of sdpa attention by 25% on the L40S"]


def test_starting_penalty_needs_a_worse_start() -> None:
    qlora = tune("qlora", 4, 10, 5, before=1.144, after=1.090)
    (sentence,) = said(out.starting_penalty, tune("lora", 4, 10, 6, before=1.102), qlora)
    assert "cost 0.042, 78% of the 0.054" in sentence
    assert not said(out.starting_penalty, tune("lora", 4, 10, 6, before=1.144), qlora)
    assert not said(out.starting_penalty, tune("lora", 8, 10, 6, before=1.102), qlora)
    unknown = tune("qlora", 4, 10, 5, before=1.144, after=None)
    assert not said(out.starting_penalty, tune("lora", 4, 10, 6, before=1.102), unknown)


def test_cost_of_more_gpus_in_both_directions() -> None:
    one, four = ddp("1gpu", 1e5), ddp("both", 2e5, 4)
    assert "cost 100% more $ than on one GPU" in said(out.cost_of_more_gpus, one, four,
                                                     run_price="4/4")[0]
    assert "cost 20% less $ than on one GPU" in said(
        out.cost_of_more_gpus, one, ddp("both", 5e5, 4), run_price="4/4")[0]
    assert not said(out.cost_of_more_gpus, one, ddp("independent", 4e5, 4), run_price="4/4")


def test_scaling_is_told_on_the_own_base() -> None:
    rows = [ddp("1gpu", 100), ddp("1gpu-accumulate4", 110), ddp("plain", 200, 4),
            ddp("both", 330, 4)]
    (sentence,) = said(out.scaling, *rows)
    assert "1.65x the tokens/s of 124M plain" in sentence
    assert "75% of 4 times the tokens/s of one GPU with the same accumulation" in sentence


def test_naive_attention_compiled_and_against_sdpa() -> None:
    rows = (comp("eager-naive", 0.435, 56), comp("compile-naive", 0.169, 39),
            comp("eager-sdpa", 0.152, 17.4))
    assert said(more.naive_compiled, *rows) == [
        "On the L40S naive attention ran at 435 ms a step and 56 GB; compiled, 169 ms and 39 GB"]
    (sentence,) = said(more.sdpa_against_naive, *rows)
    assert "on the L40S (1.11x its tokens/s) and used at most 45% of its peak memory" in sentence
    slow = comp("eager-sdpa", 0.2, 17.4)
    assert not said(more.sdpa_against_naive, *rows[:2], slow)


def test_fastest_card_and_its_price() -> None:
    rows = comp("eager-sdpa", 0.1, 17, "H100"), comp("eager-sdpa", 0.2, 17, "L40S")
    assert said(more.fastest_card, *rows) == [
        "The H100 was fastest (2.00x the tokens/s of the L40S, each at its best setup)"]
    assert not said(more.fastest_card, rows[1])
    assert not said(more.fastest_card, rows[1], dataclasses.replace(rows[0], source="pytorch"))


def test_twin_on_the_same_host() -> None:
    rows = ddp("1gpu", 1500), ddp("1gpu", 1000, source="pytorch", peak_bytes=10.0 * GIB)
    (sentence,) = said(more.against_pytorch, *rows)
    assert "trains 1.50x the tokens/s of PyTorch and peaks at 50% of its allocated memory" in \
        sentence
    rows[1].settings = rows[0].settings | {"attention": "cudnn"}
    assert "attention" not in said(more.against_pytorch, *rows)[0]
    rows[0].settings = rows[0].settings | {"attention": "flash"}
    assert "attention by flash and by cudnn" in said(more.against_pytorch, *rows)[0]
    rows[0].settings = rows[0].settings | {"vocabulary": 50257}
    assert not said(more.against_pytorch, *rows)
    rows[1].settings = ddp("1gpu", 1).settings
    assert "ties with PyTorch" in said(more.against_pytorch, ddp("1gpu", 1050), rows[1])[0]


def test_pay_back_counts_steps() -> None:
    eager = comp("eager-sdpa", 0.4, 17, first=1.0)
    assert "wins back its first step of 41.0 s after 200 steps, 200.0 ms faster each" in said(
        more.pay_back, eager, comp("compile-sdpa", 0.2, 13, first=41.0))[0]
    assert "never wins back" in said(more.pay_back, eager,
                                     comp("compile-sdpa", 0.5, 13, first=41.0))[0]
    assert "ties with eager" in said(more.pay_back, eager,
                                     comp("compile-sdpa", 0.39, 13, first=41.0))[0]


def test_losses_that_tie() -> None:
    rows = tune("full", 4, 10, 40, after=1.065), tune("lora", 4, 10, 10, after=1.058)
    assert "a tie for single runs" in said(more.ties_of_loss, *rows)[0]
    rows[1].loss_after = 1.03
    assert not said(more.ties_of_loss, *rows)


@pytest.mark.parametrize("second, tie", (([1.05, 1.06, 1.09], True), ([1.049, 1.050, 1.051], False)))
def test_losses_of_repeats_tie_within_their_spread(second: list[float], tie: bool) -> None:
    """Less than 2% apart both times: 1.07 within the spread of the first, far out of the other's."""
    rows = tune("full", 4, 10, 40, after=1.07), tune("lora", 4, 10, 10, after=1.05)
    for row, losses in zip(rows, ([1.069, 1.070, 1.071], second)):
        row.cases = [results.Case("finetune", row.name, repeat, 0, "ok", "", {},
                                  {"held_out_loss_after": loss}, {}, {}, np.empty(0, dtype=bool),
                                  np.array([0])) for repeat, loss in enumerate(losses)]
    found = said(more.ties_of_loss, *rows)
    assert bool(found) == tie
    assert not tie or "within the spread of their repeats" in found[0]


@pytest.mark.parametrize("rule, speaks, silent, words", [
    (mind.single_run, ddp("plain", 1), ddp("plain", 1, repeats=3), "differences in tokens/s"),
    (mind.not_comparable, ddp("plain", 1, gpu="CPU"), ddp("plain", 1), "not comparable"),
    (mind.not_comparable, ddp("plain", 1, dry_run=True), ddp("plain", 1), "Dry run"),
    (mind.learning_rates, tune("full", 4, 1, 1), ddp("plain", 1), "not tuned"),
    (mind.random_tokens, ddp("plain", 1), tune("full", 4, 1, 1), "nothing about convergence"),
    (mind.wire_precision, ddp("bf16", 1), ddp("plain", 1), "slightly change numerics"),
    (mind.effective_batch, ddp("both", 1), ddp("plain", 1), "32 examples a step per GPU"),
    (mind.one_shape, comp("compile-sdpa", 1, 1), ddp("plain", 1), "one compile mode"),
    (mind.shared_gpu, dataclasses.replace(ddp("plain", 1), ranks=2), ddp("plain", 1, 2),
     "several ranks on one GPU"),
    (mind.unknown_cards, ddp("plain", 1, gpu="NVIDIA Foo"), ddp("plain", 1), "'NVIDIA Foo'"),
    (mind.not_measured, ddp("plain", None, status="failed", reason="rank 1: boom"),
     ddp("plain", 1), "failed: rank 1: boom"),
    (mind.not_measured, ddp("plain", None, status="not measured"), ddp("plain", 1),
     "cut short: 124M plain"),
    (mind.savers_off, tune("full", 4, 1, 1, settings={"checkpointing": "none"}),
     tune("full", 4, 1, 1, settings={"checkpointing": "blocks"}), "No gradient checkpointing"),
    (mind.savers_off, tune("full", 4, 1, 1, settings={"optimizer": "foreach"}),
     tune("full", 4, 1, 1, settings={"optimizer": "fused-8bit"}), "No fused optimizer, no 8-bit"),
])
def test_keep_in_mind_speaks_only_where_due(rule, speaks: Row, silent: Row, words: str) -> None:
    assert any(words in sentence for sentence in said(rule, speaks))
    assert not any(words in sentence for sentence in said(rule, silent))


def test_rows_from_two_machines_are_named_as_such() -> None:
    rows = ddp("plain", 1), ddp("bf16", 1, hosts=("other",))
    assert "several machines" in said(mind.different_hosts, *rows)[0]
    other_card = ddp("plain", 1, cards=frozenset("1")), ddp("bf16", 1, cards=frozenset("2"))
    assert "several machines" in said(mind.different_hosts, *other_card)[0]
    assert not said(mind.different_hosts, rows[0])
    assert "different machines" in said(mind.different_hosts, rows[0],
                                        ddp("bf16", 1, gpu="H100", hosts=("b",)))[0]


def test_prices_move_only_where_there_are_prices(tmp_path) -> None:
    assert not said(mind.prices_move, ddp("plain", 1))
    path = tmp_path / "prices.toml"
    path.write_text('[[price]]\ngpu = "L40S"\nusd_per_hour = 1.0\ndate = "2026-10-20"\n'
                    'source = "test"\n')
    sentences = said(mind.prices_move, ddp("plain", 1), history=prices.load(path))
    assert sentences[0].startswith("Prices move")
    assert sentences[1] == "Today's price of the L40S was read 9 days ago (2026-10-20)"
