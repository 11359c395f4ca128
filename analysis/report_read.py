"""Reads the rows of a page from result files."""

from __future__ import annotations

import re
from typing import Any

import numpy as np

import gpus
from figures import all_steps, check_units, rate_of, training_seconds
from report_rows import CEILINGS, NOT_MEASURED, OK, SUITES, Row, on_gpu, place_words, variant_words
from results import Case, Results, Run
from results_repeats import over_repeats

OOM_WORDS = re.compile(r"out of memory in (?:the )?(?P<phase>.+?) (?:with|beside) "
                       r"(?P<bytes>\d+) bytes")


def recipe_of(suite: str, name: str) -> str:
    """The part after the size; of finetune without AxB: 124m-plain-compile is plain-compile,
    1.5b-lora-4x4 is lora."""
    recipe = name.partition("-")[2]
    return re.sub(r"-\d+x\d+", "", recipe) if suite == "finetune" else recipe


def _batch_settings(case: Case) -> dict[str, Any]:
    """The settings, with AxB from the name where they are absent."""
    settings = dict(case.settings)
    match = re.search(r"-(\d+)x(\d+)(?:-|$)", case.name)
    if case.suite == "finetune" and match:
        settings.setdefault("micro_batch", int(match[1]))
        settings.setdefault("accumulate", int(match[2]))
    return settings


def _median(values: list[float | None]) -> float | None:
    known = [value for value in values if value is not None and not np.isnan(value)]
    return float(np.median(known)) if known else None


def padded_rate_of(case: Case) -> float | None:
    """finetune: all tokens over the training's seconds."""
    if case.suite != "finetune":
        return None
    seconds, tokens = training_seconds(case), all_steps(case, "tokens")
    return float(tokens.sum()) / seconds if seconds and tokens.size else None


def spread_of(rates: list[float]) -> tuple[tuple[float, float] | None, str]:
    """The 95% interval over repeats, from three on; of two their range; of one none. And how it was
    found, in words."""
    if len(rates) < 2:
        return None, "single run" if rates else ""
    spread = over_repeats(rates)
    if spread.low is None:
        return (min(rates), max(rates)), "range of 2 runs"
    return (spread.low, spread.high), f"95%, {spread.method}"


def _fill_figures(row: Row, cases: list[Case]) -> None:
    def over(measure) -> float | None:
        return _median([measure(case) for case in cases])

    rates = [rate for rate in map(rate_of, cases) if rate is not None]
    row.tokens_per_second = _median(rates)
    row.rate_range, row.rate_method = spread_of(rates)
    row.padded_tokens_per_second = over(padded_rate_of)
    row.step_seconds = over(lambda case: case.median("step_seconds"))
    row.step_p10 = over(lambda case: case.p10("step_seconds"))
    row.step_p90 = over(lambda case: case.p90("step_seconds"))
    row.exposed_sync_seconds = over(lambda case: case.median("exposed_sync_seconds"))
    row.train_seconds = over(training_seconds) if row.suite == "finetune" else None
    for name, key in (("peak_bytes", "peak_allocated_bytes"),
                      ("peak_reserved_bytes", "peak_reserved_bytes"),
                      ("case_peak_bytes", "case_peak_allocated_bytes"),
                      ("loss_before", "held_out_loss_before"),
                      ("loss_after", "held_out_loss_after")):
        setattr(row, name, over(lambda case, key=key: case.value(key)))
    for name in ("first_step_seconds", "setup_seconds", "case_seconds", "host_launch_seconds",
                 "parameters_total", "parameters_trainable"):
        setattr(row, name, over(lambda case, name=name: case.value(name)))


def _place(row: Row, run: Run | None, ranks: list[int]) -> None:
    """Card, hosts, how many GPUs the machines have, as far as the run saw."""
    identities = [one for one in (run.ranks if run else []) if one["rank"] in ranks or not ranks]
    names = {one["device_name"] for one in identities if on_gpu(one)}
    row.gpu = " + ".join(sorted(map(gpus.page_name, names))) if names else "CPU"
    row.device_names = tuple(sorted(names))
    row.gpus = len({one["uuid"] or one["rank"] for one in identities if one["rank"] in ranks}) or 1
    row.hosts = tuple(sorted({one["host"] for one in identities if one["host"]}))
    row.cards = frozenset(one["uuid"] for one in identities if one["uuid"])
    here = [one for one in (run.ranks if run else []) if one["host"] in row.hosts]
    row.machine_gpus = len({one["uuid"] or one["rank"] for one in here}) if names else 0


def _make_row(file: Results, group: list[Case]) -> Row:
    ok = [case for case in group if case.status == OK]
    case = (ok or group)[0]
    run = next((run for run in file.runs if run.number == case.run), None)
    ranks = [int(rank) for rank in case.ranks]
    recipe = recipe_of(case.suite, case.name)
    size = str(case.value("size") or case.name.partition("-")[0])
    row = Row(case.suite, case.name, size, recipe, str(case.value("implementation", "trainsuite")),
              "", 1, max(1, len(ranks)), 0, status=OK if ok else case.status, reason=case.reason,
              date=run.created_utc if run else "", file=file.path, repeats=max(1, len(ok)),
              dry_run=bool(case.value("dry_run")), settings=_batch_settings(case), run=run,
              cases=ok)
    _place(row, run, ranks)
    row.variant = variant_words(case.suite, recipe, place_words(row.gpu, row.gpus, row.ranks),
                                row.source)
    _fill_figures(row, ok or group)
    if not ok:
        row.tokens_per_second = row.train_seconds = None
    match = OOM_WORDS.search(case.reason)
    if row.status == "oom" and match:
        row.oom_phase, row.oom_bytes = match["phase"], float(match["bytes"])
    return row


def _missing_rows(file: Results) -> list[Row]:
    rows = []
    for name in file.missing():
        run = next(run for run in file.runs if name in run.planned)
        like = next((case for case in file.cases), None)
        suite = like.suite if like else _suite_of_argv(run.argv)
        size, recipe = name.partition("-")[0], recipe_of(suite, name)
        row = Row(suite, name, size, recipe,
                  str(run.attributes.get("implementation", "trainsuite")), "", 1, 1, 0,
                  status=NOT_MEASURED, reason="its run ended before it", date=run.created_utc,
                  file=file.path, run=run)
        _place(row, run, [])
        row.variant = variant_words(suite, recipe, place_words(row.gpu, 1, 1), row.source)
        rows.append(row)
    return rows


def _suite_of_argv(argv: list[str]) -> str:
    words = " ".join(argv)
    return next((suite for suite in (*SUITES, CEILINGS) if suite in words), SUITES[1])


def rows_of(file: Results) -> list[Row]:
    """The rows of a file in the order of its plan, repeats together, missing ones last."""
    groups: dict[tuple[str, str], list[Case]] = {}
    for case in file.cases:
        check_units(file.path, case)
        groups.setdefault((case.suite, case.name), []).append(case)
    return [_make_row(file, group) for group in groups.values()] + _missing_rows(file)
