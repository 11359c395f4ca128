"""What stood out, continued: rules about attention, cards, programs, ranks and first steps."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator

import numpy as np

from compare_statistics import TIE, ratio
from report_rows import Row, giga
from report_steady import waits, worst_straggler
from report_stood_out import RULES as FIRST_RULES
from report_stood_out import Rule, attention_words, listed, percent, times
from report_suite import Suite
from results_repeats import FEWEST_FOR_T


def naive_compiled(suite: Suite) -> Iterator[str]:
    """compile: what compiling did to naive attention."""
    for row in suite.ok:
        base = suite.find(row, recipe="eager-naive")
        if row.recipe != "compile-naive" or base is None or not row.same_place(base) \
                or suite.tie(row, base) or not base.peak_bytes or not row.peak_bytes:
            continue
        yield f"On the {row.gpu} {attention_words(base)} ran at {base.step_seconds * 1e3:,.0f} " \
              f"ms a step and {giga(base.peak_bytes):.0f} GB; compiled, " \
              f"{row.step_seconds * 1e3:,.0f} ms and {giga(row.peak_bytes):.0f} GB"


def sdpa_against_naive(suite: Suite) -> Iterator[str]:
    """compile: eager sdpa against compiled naive attention, over the GPUs that ran both."""
    pairs = []
    for row in suite.ok:
        other = suite.find(row, recipe="compile-naive")
        if row.recipe == "eager-sdpa" and other is not None and row.same_place(other) \
                and row.peak_bytes and other.peak_bytes:
            pairs.append((row, other))
    if not pairs or not all(a.tokens_per_second > b.tokens_per_second for a, b in pairs):
        return
    share = max(a.peak_bytes / b.peak_bytes for a, b in pairs)
    ratios = sorted(a.tokens_per_second / b.tokens_per_second for a, b in pairs)
    place = f"the {pairs[0][0].gpu}" if len(pairs) == 1 else "every GPU that ran both"
    span = times(ratios[0]) if len(ratios) == 1 else f"{times(ratios[0])} to {times(ratios[-1])}"
    memory = f" and used at most {percent(share)} of its peak memory" if share < 1 else ""
    naive = attention_words(pairs[0][1])
    yield f"Eager with sdpa attention was faster than compiled {naive} on {place} ({span} its " \
          f"tokens/s){memory}"


def fastest_card(suite: Suite) -> Iterator[str]:
    """The card with the most tokens/s of one program, and what its price is to the next one's."""
    for kind in dict.fromkeys((row.source, row.size) for row in suite.ok):
        yield from _fastest_card_of(suite, [row for row in suite.ok
                                            if (row.source, row.size) == kind])


def _fastest_card_of(suite: Suite, rows: list[Row]) -> Iterator[str]:
    best: dict[str, Row] = {}
    for row in rows:
        if row.gpus == 1 and row.gpu != "CPU" and row.tokens_per_second and \
                row.tokens_per_second > getattr(best.get(row.gpu), "tokens_per_second", 0):
            best[row.gpu] = row
    ranked = sorted(best.values(), key=lambda row: -row.tokens_per_second)
    if len(ranked) < 2:
        return
    first, second = ranked[:2]
    ratio = first.tokens_per_second / second.tokens_per_second
    words = f"The {first.gpu} was fastest ({times(ratio)} the tokens/s of the {second.gpu}, " \
            "each at its best setup)"
    prices = [suite.costing.run_price(row) for row in (first, second)]
    if None not in prices:
        hourly = [price.usd_for(1) for price in prices]
        words += f" at {times(hourly[0] / hourly[1])} its $/hour"
    costs = {row.gpu: suite.costing.usd_per_billion(row) for row in ranked}
    if None not in costs.values():
        words += f"; the {min(costs, key=costs.get)} trained the most tokens per $"
    yield words


SAME_WORK = ("micro_batch", "accumulate", "sequence", "vocabulary", "precision")


def _twin(suite: Suite, row: Row) -> Row | None:
    """PyTorch's row of the same work on the same cards of the same hosts."""
    for other in suite.ok:
        if other.source == "pytorch" and row.same_place(other) and (
                other.name, other.gpu, other.gpus, other.ranks) == (
                row.name, row.gpu, row.gpus, row.ranks) and all(
                other.settings.get(key) == row.settings.get(key) for key in SAME_WORK):
            return other
    return None


def against_pytorch(suite: Suite) -> Iterator[str]:
    """trainsuite's tokens/s and peak over those of its PyTorch twin on the same hosts."""
    for row in suite.ok:
        twin = _twin(suite, row)
        if row.source != "trainsuite" or twin is None or not twin.tokens_per_second:
            continue
        ratio = row.tokens_per_second / twin.tokens_per_second
        rate = "ties with PyTorch in tokens/s" if suite.tie(row, twin) else \
            f"trains {times(ratio)} the tokens/s of PyTorch"
        memory = ""
        if row.peak_bytes and twin.peak_bytes:
            share = percent(row.peak_bytes / twin.peak_bytes)
            memory = f" and peaks at {share} of its allocated memory"
        letter = f" [{suite.letter(row)}]" if suite.letter(row) else ""
        yield f"{row.label}{letter}: trainsuite {rate}{memory} (same host, " \
              f"{_work_words(row, twin)})"


def _work_words(row: Row, twin: Row) -> str:
    parts = [f"{key.replace('_', '-')} {row.settings[key]}" for key in ("micro_batch", "sequence")
             if row.settings.get(key)]
    attention = [one.settings.get("attention") for one in (row, twin)]
    if None not in attention and attention[0] != attention[1]:
        parts.append(f"attention by {attention[0]} and by {attention[1]}")
    return ", ".join(parts) or "same case"


def stragglers(suite: Suite) -> Iterator[str]:
    """A rank that the others wait for; of independent ranks one whose step is more than 5% longer
    than the median rank's."""
    for row in suite.measured:
        if waits(row):
            rank, seconds = worst_straggler(row)
            yield f"{suite.name_of(row)}: rank {rank} has the most work of its own, the others " \
                  f"wait {seconds * 1e3:,.2f} ms a step for it"
        for case in row.cases[:1]:
            if row.ranks < 3 or "step_seconds" not in case.series or not case.independent():
                continue
            own = np.nanmedian(case.measured("step_seconds"), axis=1)
            excess = own.max() / np.median(own) - 1
            if excess > 0.05:
                rank = int(case.ranks[int(own.argmax())])
                yield f"{suite.name_of(row)}: rank {rank} is a straggler, its median step " \
                      f"takes {percent(excess)} longer than the median rank's"


def exposed_sync(suite: Suite) -> Iterator[str]:
    """The share of a step in which the GPUs wait for communication."""
    for row in suite.measured:
        if row.ok and row.exposed_sync_seconds and row.step_seconds and row.ranks > 1:
            share = row.exposed_sync_seconds / row.step_seconds
            if share > 0.1:
                yield f"{suite.name_of(row)} waits for communication during {percent(share)} of " \
                      "its median step"


def pay_back(suite: Suite) -> Iterator[str]:
    """After how many steps a longer first step is won back by shorter ones."""
    for row in suite.ok:
        eager = None
        if row.suite == "compile" and row.execution == "compile":
            eager = suite.find(row, recipe=f"eager-{row.attention}")
        if eager is None or not row.same_place(eager) or not row.first_step_seconds \
                or not eager.first_step_seconds:
            continue
        if suite.tie(row, eager):
            yield f"{suite.name_of(row)} ties with eager in step time: its first step of " \
                  f"{row.first_step_seconds:.1f} s is not won back beyond the noise"
            continue
        saved = eager.step_seconds - row.step_seconds
        extra = row.first_step_seconds - eager.first_step_seconds
        if saved <= 0:
            yield f"{suite.name_of(row)} never wins back its first step of " \
                  f"{row.first_step_seconds:.1f} s: its steps are slower than eager ones"
        elif extra > 0:
            yield f"{suite.name_of(row)} wins back its first step of " \
                  f"{row.first_step_seconds:.1f} s after {extra / saved:,.0f} steps, " \
                  f"{saved * 1e3:,.1f} ms faster each"


def _loss_tie(base: Row, row: Row) -> str:
    """Why two held-out losses tie, in words; empty where they do not. From three repeats of each,
    which differ in their seed, by their spread; else by 1% of the loss."""
    losses = [[case.value("held_out_loss_after") for case in one.cases
               if case.value("held_out_loss_after")] for one in (base, row)]
    if min(map(len, losses)) >= FEWEST_FOR_T:
        found = ratio(*losses)
        return "a tie within the spread of their repeats" if found.verdict == TIE else ""
    close = abs(row.loss_after / base.loss_after - 1) < 0.01
    return "less than 1% of the loss apart, a tie for single runs" if close else ""


def ties_of_loss(suite: Suite) -> Iterator[str]:
    """finetune: held-out losses that cannot be told apart."""
    for rows in suite.groups():
        rows = [row for row in rows if row.loss_after and row.recipe in ("full", "lora")]
        for row in (row for row in rows if row.recipe == "lora"):
            base = next((other for other in rows if other.recipe == "full"
                         and other.batches == row.batches), None)
            if base is not None and (why := _loss_tie(base, row)):
                yield f"{listed([suite.name_of(base), suite.name_of(row)])} end at held-out " \
                      f"losses of {base.loss_after:.3f} and {row.loss_after:.3f}: {why}"


RULES: tuple[Rule, ...] = (*FIRST_RULES, naive_compiled, sdpa_against_naive, fastest_card,
                           against_pytorch, stragglers, exposed_sync, pay_back, ties_of_loss)


def sentences(suite: Suite) -> list[str]:
    """Every rule's sentences, each once. Of stand-ins and CPUs nothing stands out."""
    suite = dataclasses.replace(suite, rows=[row for row in suite.rows
                                             if not row.dry_run and row.gpu != "CPU"])
    return list(dict.fromkeys(sentence for rule in RULES for sentence in rule(suite)))


