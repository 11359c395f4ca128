"""What stood out: one function a rule, each from the suite's rows to sentences that they bear.

Speeds are compared within one set of hosts only. Within 10% single runs tie.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from report_rows import Row, giga, gib
from report_suite import NOISE, Suite

Rule = Callable[[Suite], Iterator[str]]


def percent(value: float) -> str:
    """A share in words: 33%, 1.2%."""
    return f"{100 * value:.0f}%" if abs(value) >= 0.095 else f"{100 * value:.1f}%"


def times(value: float) -> str:
    """1.33x."""
    return f"{value:.2f}x" if value < 10 else f"{value:.0f}x"


def listed(words: list[str]) -> str:
    """a, b and c."""
    return words[0] if len(words) == 1 else f"{', '.join(words[:-1])} and {words[-1]}"


def peak_words(suite: Suite, row: Row) -> str:
    """The row's peak in the suite's unit."""
    if suite.name == "compile":
        return f"{giga(row.peak_bytes):.1f} GB"
    return f"{gib(row.peak_bytes):.1f} GiB"


def attention_words(row: Row) -> str:
    """compile: the attention as the row's table calls it."""
    return row.variant.rpartition(" + ")[2]


def one_place(rows: list[Row]) -> bool:
    """Whether all are known to have run on one set of hosts."""
    return all(row.same_place(rows[0]) for row in rows)


def fastest(suite: Suite) -> Iterator[str]:
    """The highest tokens/s of each program, card and model, or the tie at the top."""
    for rows in suite.groups():
        rows = sorted((row for row in rows if row.tokens_per_second),
                      key=lambda row: -row.tokens_per_second)
        if len(rows) < 2 or not one_place(rows):
            continue
        best, ties = rows[0], [row for row in rows[1:] if suite.tie(rows[0], row)]
        if len(ties) > 2:
            yield f"{suite.name_of(best)} had the most tokens/s, {best.tokens_per_second:,.0f}, " \
                  f"but {len(ties)} other rows tie with it inside the noise or their spread"
        elif ties:
            gap = max(best.tokens_per_second / row.tokens_per_second - 1 for row in ties)
            noise = "inside the noise of single runs" if gap < NOISE else "inside their spread"
            yield f"{listed([suite.name_of(row) for row in (best, *ties)])} tie for the most " \
                  f"tokens/s: {best.tokens_per_second:,.0f} at most, the lowest {percent(gap)} " \
                  f"behind in tokens/s, {noise}"
        else:
            ratio = best.tokens_per_second / rows[1].tokens_per_second
            yield f"{suite.name_of(best)} was fastest at {best.tokens_per_second:,.0f} " \
                  f"tokens/s, {times(ratio)} those of the next, {suite.name_of(rows[1])}"


def cheapest(suite: Suite) -> Iterator[str]:
    """The least $ per token of each model, over cards and programs, at the run day's prices."""
    models: dict[str, list[tuple[float, Row]]] = {}
    for row in suite.ok:
        cost = suite.costing.usd_per_billion(row)
        if cost is not None:
            models.setdefault(row.size, []).append((cost, row))
    for priced in models.values():
        if len(priced) < 2:
            continue
        priced.sort(key=lambda pair: pair[0])
        (cost, best), (next_cost, other) = priced[:2]
        if best.gpu == other.gpu and not best.same_place(other):
            continue  # their $ differ by their speeds, which must not be compared
        if next_cost / cost < 1.1:
            yield f"{suite.name_of(best)} and {suite.name_of(other)} tie for the cheapest token: " \
                  f"${cost:,.2f} and ${next_cost:,.2f} per 1B tokens at their run days' prices"
        else:
            yield f"{suite.name_of(best)} trained the cheapest tokens: ${cost:,.2f} per 1B at " \
                  f"its run day's price, {percent(1 - cost / next_cost)} less $ per token than " \
                  f"the next, {suite.name_of(other)}"


def out_of_memory(suite: Suite) -> Iterator[str]:
    """Each row that ran out of memory, with the phase and the bytes where they are recorded."""
    for row in suite.rows:
        if row.status != "oom":
            continue
        words = f"{suite.name_of(row)} ran out of memory"
        if row.oom_phase:
            words += f" in the {row.oom_phase} phase with {gib(row.oom_bytes):.1f} GiB allocated"
        elif row.published is None and row.reason:
            words += f" ({row.reason.splitlines()[0]})"
        yield words


def fits_compiled(suite: Suite) -> Iterator[str]:
    """compile: what fits only compiled, and what fits neither way."""
    rows = {(row.source, row.file, row.gpu, row.recipe): row for row in suite.rows}
    for (source, file, gpu, recipe), eager in rows.items():
        if not recipe.startswith("eager-") or eager.status != "oom":
            continue
        other = rows.get((source, file, gpu, recipe.replace("eager-", "compile-")))
        if other is not None and other.ok:
            yield f"On the {gpu} {attention_words(eager)} fits only compiled"
        elif other is not None and other.status == "oom":
            yield f"On the {gpu} {attention_words(eager)} fits neither eager nor compiled"


def peak_between_methods(suite: Suite) -> Iterator[str]:
    """finetune: the peaks of LoRA and QLoRA over that of full, at one micro-batch."""
    for rows in suite.groups():
        shapes = dict.fromkeys(row.batches for row in rows)
        for shape in shapes:
            peaks = {row.recipe: row for row in rows if row.batches == shape and row.peak_bytes}
            base = peaks.get("full")
            for recipe in ("lora", "qlora"):
                row = peaks.get(recipe)
                if base is None or row is None:
                    continue
                share = row.peak_bytes / base.peak_bytes
                yield f"{suite.name_of(row)} peaked at {peak_words(suite, row)}, " \
                      f"{percent(share)} of the peak of {suite.name_of(base)} " \
                      f"({peak_words(suite, base)})"


def peak_of_compile(suite: Suite) -> Iterator[str]:
    """compile: what compiling took off the peak of the same attention."""
    cuts: dict[tuple, list[tuple[float, Row]]] = {}
    for row in suite.ok:
        base = suite.find(row, recipe=f"eager-{row.attention}")
        if row.execution == "compile" and base and base.peak_bytes and row.peak_bytes:
            key = (row.source, attention_words(row))
            cuts.setdefault(key, []).append((1 - row.peak_bytes / base.peak_bytes, row))
    for (source, attention), found in cuts.items():
        low, high = min(cut for cut, _ in found), max(cut for cut, _ in found)
        share = percent(low) if percent(low) == percent(high) else \
            f"{percent(low)} to {percent(high)}"
        verb = "cut" if low > 0 else "changed"
        place = f"the {found[0][1].gpu}" if len(found) == 1 else "every GPU that ran both"
        many = len(suite.distinct("source")) > 1
        yield f"Compiling {verb} the peak of {attention} by {share} on {place}" + \
            (f" ({source})" if many else "")


def peak_by_micro_batch(suite: Suite) -> Iterator[str]:
    """finetune: one method's peak at its smallest and its largest micro-batch."""
    for rows in suite.groups():
        for recipe in dict.fromkeys(row.recipe for row in rows):
            same = sorted((row for row in rows if row.recipe == recipe and row.peak_bytes
                           and row.settings.get("micro_batch")),
                          key=lambda row: row.settings["micro_batch"])
            if len(same) > 1 and same[0].settings["micro_batch"] < same[-1].settings["micro_batch"]:
                yield f"{same[0].variant} peaked at {peak_words(suite, same[0])} at micro-batch " \
                      f"{same[0].settings['micro_batch']} and at " \
                      f"{peak_words(suite, same[-1])} at {same[-1].settings['micro_batch']}"


def starting_penalty(suite: Suite) -> Iterator[str]:
    """finetune: what quantizing cost before training against what training won back."""
    for rows in suite.groups():
        for row in (row for row in rows if row.recipe == "qlora"):
            base = next((other for other in rows if other.recipe == "lora"
                         and other.batches == row.batches and other.loss_before), None)
            if base is None or not row.loss_before or not row.loss_after:
                continue
            penalty, gained = row.loss_before - base.loss_before, row.loss_before - row.loss_after
            if penalty > 0 and gained > 0:
                yield f"{suite.name_of(row)} starts from a held-out loss of " \
                      f"{row.loss_before:.3f} against {base.loss_before:.3f} of " \
                      f"{suite.name_of(base)}: quantizing the base cost {penalty:.3f}, " \
                      f"{percent(penalty / gained)} of the {gained:.3f} that its fine-tune " \
                      "took off"


def cost_of_more_gpus(suite: Suite) -> Iterator[str]:
    """ddp: $ per token of the best variant on N GPUs against one GPU."""
    for rows in suite.groups():
        one = next((row for row in rows if row.recipe == "1gpu"), None)
        many = [row for row in rows if row.gpus > 1 and row.recipe != "independent"]
        base = suite.costing.usd_per_billion(one) if one else None
        priced = [(suite.costing.usd_per_billion(row), row) for row in many]
        priced = [(cost, row) for cost, row in priced if cost is not None]
        if base is None or not priced:
            continue
        cost, row = min(priced, key=lambda pair: pair[0])
        more = cost / base - 1
        yield f"At its best, with {suite.name_of(row)}, a token cost {percent(abs(more))} " \
              f"{'more' if more > 0 else 'less'} $ than on one GPU " \
              f"(${cost:,.2f} against ${base:,.2f} per 1B tokens at the run day's price)"


def scaling(suite: Suite) -> Iterator[str]:
    """ddp: the best variant's tokens/s over plain DDP, and over N times one GPU."""
    for rows in suite.groups():
        plain = next((row for row in rows if row.recipe == "plain"), None)
        best = max((row for row in rows if row.ranks > 1 and row.recipe != "independent"),
                   key=lambda row: row.tokens_per_second or 0, default=None)
        if plain is None or best is None or best is plain or not best.same_place(plain) \
                or suite.tie(best, plain):
            continue
        ratio = best.tokens_per_second / plain.tokens_per_second
        own = suite.speed_up(best, "own")
        words = f"{suite.name_of(best)} trained {times(ratio)} the tokens/s of " \
                f"{suite.name_of(plain)}"
        if own and best.gpus > 1:
            words += f", {percent(own / best.gpus)} of {best.gpus} times the tokens/s of one " \
                     "GPU with the same accumulation"
        yield words


RULES: tuple[Rule, ...] = (fastest, cheapest, out_of_memory, fits_compiled, peak_between_methods,
                           peak_of_compile, peak_by_micro_batch, starting_penalty,
                           cost_of_more_gpus, scaling)
