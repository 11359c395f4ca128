"""The same cases in two files: ratios B / A with intervals, memory, losses, settings."""

from __future__ import annotations

import statistics
from collections.abc import Callable
from dataclasses import dataclass, field

import compare_settings
import compare_statistics
from compare_statistics import Ratio
from figures import rate_of
from results_command import GIB, loss_difference, number, table
from results_model import Case, Results

PASSED, FAILED, CANNOT_TELL = 0, 1, 3  # exit statuses of --fail-if-slower; 2 is for bad input
HEADER = ["case", "runs A, B", "tokens/s A", "tokens/s B", "B/A", "interval of B/A", "B is",
          "allocated GiB A", "B-A", "reserved GiB A", "B-A", "first step s A", "B",
          "max |loss A-B|"]
Key = tuple[str, str]


@dataclass
class Pairing:
    """One case of both files. `ratio` is None where a side has no rate."""

    key: Key
    a: list[Case]  # repeats that are ok
    b: list[Case]
    ratio: Ratio | None
    differences: list[tuple[str, object, object]] = field(default_factory=list)
    only_a: list[str] = field(default_factory=list)
    only_b: list[str] = field(default_factory=list)

    @property
    def other_work(self) -> list[str]:
        """Why the ratio says nothing about speed; empty when it does."""
        return compare_settings.other_work(self.differences)


def groups(file: Results) -> dict[Key, list[Case]]:
    """All repeats of each case."""
    found: dict[Key, list[Case]] = {}
    for case in file.cases:
        found.setdefault((case.suite, case.name), []).append(case)
    return found


def good(cases: list[Case]) -> list[Case]:
    """The repeats that are ok."""
    return [case for case in cases if case.status == "ok"]


def rates(cases: list[Case]) -> list[float]:
    """tokens/s of each run that has them."""
    return [rate for rate in map(rate_of, cases) if rate is not None and 0 < rate < float("inf")]


def pair_up(file_a: Results, file_b: Results, confidence: float) -> list[Pairing]:
    """Every case that is ok in both files, in A's order."""
    in_b = groups(file_b)
    found = []
    for key, all_a in groups(file_a).items():
        a, b = good(all_a), good(in_b.get(key, []))
        if not a or not b:
            continue
        facts_a = compare_settings.facts_of(file_a, a[0])
        facts_b = compare_settings.facts_of(file_b, b[0])
        rates_a, rates_b = rates(a), rates(b)
        ratio = compare_statistics.ratio(rates_a, rates_b, confidence) \
            if rates_a and rates_b else None
        found.append(Pairing(key, a, b, ratio, compare_settings.differing(facts_a, facts_b),
                             compare_settings.one_sided(facts_a, facts_b),
                             compare_settings.one_sided(facts_b, facts_a)))
    return found


def median_of(cases: list[Case], name: str) -> float | None:
    """Median over the repeats that know it."""
    known = [float(case.value(name)) for case in cases if case.value(name) is not None]
    return statistics.median(known) if known else None


def _memory(pairing: Pairing, name: str) -> list[str]:
    a, b = median_of(pairing.a, name), median_of(pairing.b, name)
    gap = None if a is None or b is None else b - a
    return [number(a, 3, 1 / GIB), "-" if gap is None else f"{gap / GIB:+,.3f}"]


def row(pairing: Pairing) -> list[str]:
    """The cells of one case."""
    ratio = pairing.ratio
    a, b = rates(pairing.a), rates(pairing.b)
    verdict = "-" if ratio is None else "other work" if pairing.other_work else ratio.verdict
    interval = "-" if ratio is None or ratio.low is None else f"{ratio.low:.3f}..{ratio.high:.3f}"
    gap = loss_difference(pairing.a, pairing.b)
    return [pairing.key[1], f"{len(pairing.a)}, {len(pairing.b)}",
            number(statistics.median(a) if a else None, 0),
            number(statistics.median(b) if b else None, 0),
            "-" if ratio is None else f"{ratio.value:.3f}", interval, verdict,
            *_memory(pairing, "peak_allocated_bytes"), *_memory(pairing, "peak_reserved_bytes"),
            number(median_of(pairing.a, "first_step_seconds"), 2),
            number(median_of(pairing.b, "first_step_seconds"), 2),
            "-" if gap is None else f"{gap:.3g}"]


def lines(file_a: Results, file_b: Results, pairings: list[Pairing]) -> list[str]:
    """The whole comparison as printed."""
    confidence = next((p.ratio.confidence for p in pairings if p.ratio), 0.95)
    found = [f"A (base)   = {file_a.path}", f"B (judged) = {file_b.path}"]
    if pairings:
        found.append(table(HEADER, [row(pairing) for pairing in pairings], left=1))
        found.append(f"B/A is of tokens/s, over 1: B is faster. Interval: {confidence:.0%}, from "
                     "one value a run (the steps of a run are not independent).")
    found += [f"{pairing.key[1]}: {_sentence(pairing)}" for pairing in pairings]
    found += [f"{name}: {words}" for name, words in unpaired(file_a, file_b)]
    found += [f"{side} is not complete: no result of "
              f"{', '.join(file.missing()) or 'the rest of its run'}"
              for side, file in (("A", file_a), ("B", file_b)) if not file.complete]
    return found + _settings(pairings)


def _sentence(pairing: Pairing) -> str:
    dry = any(case.value("dry_run") for case in [*pairing.a, *pairing.b])
    return _finding(pairing) + _held_out(pairing) + \
        ("; dry run: no measurement of a real model" if dry else "")


def _held_out(pairing: Pairing) -> str:
    """Held-out losses before and after training, where both sides have them."""
    losses = [median_of(cases, f"held_out_loss_{when}") for cases in (pairing.a, pairing.b)
              for when in ("before", "after")]
    if None in losses:
        return ""
    before_a, after_a, before_b, after_b = losses
    return f"; held-out loss {before_a:.3f} to {after_a:.3f} in A, {before_b:.3f} to " \
           f"{after_b:.3f} in B"


def _finding(pairing: Pairing) -> str:
    if pairing.other_work:
        return "other work, no verdict: " + "; ".join(pairing.other_work)
    return "no rate on one side" if pairing.ratio is None else pairing.ratio.words()


def unpaired(file_a: Results, file_b: Results) -> list[tuple[str, str]]:
    """(case, words) of cases that are not ok on both sides."""
    groups_a, groups_b = groups(file_a), groups(file_b)

    def state(found: dict[Key, list[Case]], key: Key) -> str:
        cases = found.get(key)
        if not cases:
            return "absent"
        return "ok" if good(cases) else f"{cases[0].status} ({cases[0].reason or 'no reason'})"

    words = []
    for key in dict.fromkeys([*groups_a, *groups_b]):
        states = state(groups_a, key), state(groups_b, key)
        if states != ("ok", "ok"):
            words.append((key[1], f"{states[0]} in A, {states[1]} in B"))
    return words


def _grouped(pairings: list[Pairing], of: Callable[[Pairing], list[str]]) -> dict[str, list[str]]:
    """sentence -> the cases it is true of."""
    found: dict[str, list[str]] = {}
    for pairing in pairings:
        for sentence in of(pairing):
            found.setdefault(sentence, []).append(pairing.key[1])
    return found


def _settings(pairings: list[Pairing]) -> list[str]:
    def sentences(pairing: Pairing) -> list[str]:
        found = [f"{key} differs: {left} in A, {right} in B"
                 for key, left, right in pairing.differences]
        for side, names in (("A", pairing.only_a), ("B", pairing.only_b)):
            if names:
                found.append(f"known in {side} only: {', '.join(names)}")
        return found

    return [sentence + ("" if len(cases) == len(pairings) else f" ({', '.join(cases)})")
            for sentence, cases in _grouped(pairings, sentences).items()]


def judge(file_a: Results, file_b: Results, pairings: list[Pairing],
          limit: float) -> tuple[int, list[str]]:
    """(exit status, sentences) of --fail-if-slower: B slower than A by more than `limit`?"""
    failed, unsure, words = False, False, []
    of = {pairing.key: pairing for pairing in pairings}
    groups_b = groups(file_b)
    for key, all_a in groups(file_a).items():
        pairing = of.get(key)
        if not good(all_a):
            continue
        if pairing is None:
            ended_badly = key in groups_b
            failed, unsure = failed or ended_badly, unsure or not ended_badly
            words.append(f"{key[1]}: " + ("FAILED, ok in A but not in B" if ended_badly else
                                          "cannot tell, B does not hold it"))
            continue
        slower = None if pairing.ratio is None or pairing.other_work else \
            pairing.ratio.slower_than(limit)
        failed, unsure = failed or slower is True, unsure or slower is None
        words.append(f"{key[1]}: " + _judgement(pairing, slower, limit))
    unsure = unsure or not words
    return FAILED if failed else CANNOT_TELL if unsure else PASSED, words


def _judgement(pairing: Pairing, slower: bool | None, limit: float) -> str:
    if slower is None:
        why = "other work" if pairing.other_work else "no rate" if pairing.ratio is None else \
            "a single run cannot tell" if pairing.ratio.low is None else \
            f"the interval {pairing.ratio.low:.3f}..{pairing.ratio.high:.3f} holds {1 - limit:.3f}"
        return f"cannot tell, {why}"
    return f"FAILED, slower by more than {limit:.1%}" if slower else \
        f"passed, not slower by more than {limit:.1%}"
