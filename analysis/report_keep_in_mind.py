"""Keep in mind: what limits the figures, one function a rule, said only where the data bear it."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np

from report_machine import runs_of
from report_rows import NOT_MEASURED
from report_steady import disturbed, unsteady
from report_stood_out import listed
from report_suite import Suite

Rule = Callable[[Suite], Iterator[str]]


def single_run(suite: Suite) -> Iterator[str]:
    """Rows without repeats."""
    single = [row for row in suite.ok if row.repeats < 2]
    if single and len(single) == len(suite.ok):
        yield "Single runs: differences in tokens/s under about 10% are noise"
    elif single:
        yield f"{len(single)} of {len(suite.ok)} rows are single runs: differences in tokens/s " \
              "under about 10% are noise there"


def not_comparable(suite: Suite) -> Iterator[str]:
    """CPU rows and dry runs."""
    if any(row.gpu == "CPU" for row in suite.rows):
        yield "Rows on a CPU show that the program works; their speeds are not comparable with " \
              "those of a GPU and have no cost"
    dry = list(dict.fromkeys(row.size for row in suite.rows if row.dry_run))
    if dry:
        yield f"Dry run: the model {listed(dry)} is a stand-in for machines without a GPU, no " \
              "row of it measures a real model"


def different_hosts(suite: Suite) -> Iterator[str]:
    """Rows of one program and card from several hosts, or from hosts that are not known."""
    for rows in suite.groups():
        if len(rows) > 1 and any(not row.hosts for row in rows):
            yield f"Which machine each row of the {rows[0].gpu} ran on is not stated: their " \
                  "speeds are not compared"
    known = [row for row in suite.ok if row.hosts and row.published is None]
    apart = any(a.gpu == b.gpu and not a.same_place(b) for a in known for b in known)
    if apart:
        yield "Rows of one kind of card come from several machines or sets of GPUs: speeds are " \
              "compared only within one"
    if len({row.gpu for row in suite.ok}) > 1:
        yield "The cards sit in different machines, which differ in CPU and host as well"


def learning_rates(suite: Suite) -> Iterator[str]:
    """finetune: nobody tuned them."""
    rates = dict.fromkeys(f"{row.settings['learning_rate']:g}" for row in suite.measured
                          if row.settings.get("learning_rate"))
    if suite.name == "finetune":
        words = f" ({listed(list(rates))})" if rates else ""
        yield f"Learning rates{words} are common defaults, not tuned: losses of the methods " \
              "might change places"


def savers_off(suite: Suite) -> Iterator[str]:
    """Which means of saving memory are off, as recorded."""
    off = []
    for words, name, values in (("gradient checkpointing", "checkpointing", ("none", "off", False)),
                                ("fused optimizer", "optimizer", ("foreach",)),
                                ("flash attention", "attention", ("math", "naive"))):
        rows = [row for row in suite.measured if name in row.settings]
        if rows and all(row.settings[name] in values for row in rows):
            off.append(f"no {words}")
    adam = [str(row.settings["optimizer"]) for row in suite.measured if "optimizer" in row.settings]
    if adam and not any("8" in name for name in adam):
        off.append("no 8-bit optimizer")
    if off:
        yield f"{', '.join(off)[0].upper()}{', '.join(off)[1:]}: each would change memory"


def random_tokens(suite: Suite) -> Iterator[str]:
    """ddp and compile train on noise."""
    from_file = suite.measured and all(
        row.settings.get("data", "synthetic") not in ("", "synthetic") for row in suite.measured)
    if suite.name in ("ddp", "compile") and not from_file:
        yield "Random tokens and random weights: throughput and memory, nothing about convergence"


def wire_precision(suite: Suite) -> Iterator[str]:
    """bf16 gradients."""
    if any(row.recipe.split("-")[0] in ("bf16", "both") for row in suite.ok):
        yield "bf16 gradients on the wire slightly change numerics"


def link_of_result(suite: Suite) -> Iterator[str]:
    """A result over one kind of link says nothing about the other."""
    if suite.name != "ddp" or not any(row.gpus > 1 for row in suite.ok):
        return
    links = {str(one["link"]) for run in runs_of(suite.measured)
             for one in run.topology}
    published = " ".join(text.get("topology", "") for text in suite.published_texts())
    nvlink = any(link.startswith("NV") for link in links)
    pcie = "no NVLink" in published or (links and not nvlink)
    if pcie and not nvlink:
        yield "A result over PCIe: machines with NVLink behave differently"
    elif nvlink and not pcie:
        yield "A result over NVLink: machines whose GPUs talk over PCIe behave differently"


def effective_batch(suite: Suite) -> Iterator[str]:
    """ddp: accumulation changes what one step is."""
    rows = [row for row in suite.ok if row.accumulates]
    if suite.name != "ddp" or not rows:
        return
    sizes = sorted({row.settings["micro_batch"] * row.settings["accumulate"] for row in rows
                    if row.settings.get("micro_batch") and row.settings.get("accumulate")})
    words = f" ({listed([str(size) for size in sizes])} examples a step per GPU)" if sizes else ""
    yield f"Accumulation changes the effective batch{words}: the learning rate must be tuned again"


def one_shape(suite: Suite) -> Iterator[str]:
    """compile: one model, one shape, one mode."""
    if suite.name != "compile" or not suite.ok:
        return
    parts = []
    if len({row.size for row in suite.ok}) == 1:
        parts.append("one model size")
    shapes = {(row.settings.get("micro_batch"), row.settings.get("sequence")) for row in suite.ok}
    if len(shapes) == 1:
        parts.append("one batch shape")
    if len({row.execution for row in suite.ok} - {"eager"}) == 1:
        parts.append("one compile mode")
    if parts:
        yield f"{', '.join(parts)[0].upper()}{', '.join(parts)[1:]}: others may turn out otherwise"


def no_master_weights(suite: Suite) -> Iterator[str]:
    """compile: pure bf16, by the bytes that are recorded or the published text."""
    stated = any("bf16 weights" in text.get("model", "") for text in suite.published_texts())
    pure = any(row.cases and row.cases[0].value("weight_bytes_bfloat16")
               and not row.cases[0].value("weight_bytes_float32") for row in suite.measured)
    if suite.name == "compile" and (stated or pure):
        yield "Pure bf16 weights and optimizer state, no fp32 master weights: real training " \
              "often keeps them, and needs more memory"


def prices_move(suite: Suite) -> Iterator[str]:
    """Where there are prices."""
    if suite.costing.prices_of(suite.ok):
        yield "Prices move: a cost holds for the day of its price"
    for price in suite.costing.stale(suite.ok):
        yield f"Today's price of the {price.gpu} was read {price.age_days(suite.costing.today)} " \
              f"days ago ({price.date})"


def loss_with_random_weights(suite: Suite) -> Iterator[str]:
    """finetune without --model."""
    if suite.name == "finetune" and any(
            row.ok and row.cases and row.settings.get("model", "random") in ("", "random")
            for row in suite.measured):
        yield "Rows without --model start from random weights: their held-out losses are not " \
              "comparable with those of a pretrained model"


def losses_not_numbers(suite: Suite) -> Iterator[str]:
    """NaN or infinite losses."""
    for row in suite.measured:
        for case in row.cases:
            if "loss" not in case.series:
                continue
            bad = ~np.isfinite(case.series["loss"].values).all(axis=0)
            if bad.any():
                yield f"{suite.name_of(row)}: the loss is not a number from step " \
                      f"{int(bad.argmax()) + 1} on, in {int(bad.sum())} of {len(bad)} steps: " \
                      "what it trained is no model"
                break


def not_measured(suite: Suite) -> Iterator[str]:
    """Planned, failed, timed out or skipped rows."""
    gone = [row for row in suite.rows if row.status == NOT_MEASURED]
    if gone:
        yield f"Not measured, their runs were cut short: " \
              f"{listed([suite.name_of(row) for row in gone])}"
    for row in suite.rows:
        if row.status in ("failed", "timeout", "skipped"):
            reason = row.reason.splitlines()[0] if row.reason else "no reason recorded"
            yield f"{suite.name_of(row)} {row.status_words}: {reason}"


def shared_gpu(suite: Suite) -> Iterator[str]:
    """Several ranks on one GPU."""
    if any(row.ranks > row.gpus and row.gpu != "CPU" for row in suite.ok):
        yield "Rows of several ranks on one GPU share its time: they say nothing about several GPUs"


def vocabulary(suite: Suite) -> Iterator[str]:
    """ddp: speeds over different or unstated vocabularies."""
    found = {row.settings.get("vocabulary") for row in suite.ok}
    if suite.name == "ddp" and None in found and len(found) > 1:
        yield "The published rows do not state their vocabulary, on which tokens/s depend"
    elif suite.name == "ddp" and len(found) > 1:
        yield "Rows differ in vocabulary, on which tokens/s depend"


def unknown_cards(suite: Suite) -> Iterator[str]:
    """Cards outside the table of GPUs."""
    cards = dict.fromkeys(row.gpu for row in suite.rows if row.gpu.startswith("NVIDIA "))
    for card in cards:
        yield f"'{card}' is not in the table of GPUs: no nominal memory and no MFU are given"


def printed_slips(suite: Suite) -> Iterator[str]:
    """What a published page printed otherwise."""
    for text in suite.published_texts():
        yield from (f"Printed otherwise on the published page: {slip}"
                    for slip in text.get("printed_slips", []))


RULES: tuple[Rule, ...] = (
    single_run, not_comparable, not_measured, losses_not_numbers, different_hosts, shared_gpu,
    disturbed, unsteady, learning_rates, savers_off, random_tokens, wire_precision, link_of_result,
    effective_batch, one_shape, no_master_weights, loss_with_random_weights, vocabulary,
    unknown_cards, prices_move, printed_slips)


def sentences(suite: Suite) -> list[str]:
    """Every rule's sentences, each once."""
    return list(dict.fromkeys(sentence for rule in RULES for sentence in rule(suite)))
