"""The page's closing tables: costs, the GPUs, a training of --tokens, the raw files."""

from __future__ import annotations

import hashlib
import os
import shlex
from dataclasses import dataclass

import numpy as np

import costs
import gpus
import report_costs
from prices import OutOfStock, Price
from report_costs import Costing
from report_mfu import MEASURED
from report_rows import Row, gib, on_gpu
from report_suite import Suite, letter
from report_tables import Cell, Column, Table, build, figure_cell, missing, text_cell
from results import Run
from results_ceilings import best

CHUNK_BYTES = 1 << 20


def price_table(costing: Costing, rows: list[Row]) -> Table | None:
    """Every price that a figure of the page was counted by."""
    found = costing.prices_of(rows)
    if not found:
        return None
    titles = ("GPU", "$/hour, machine", "GPUs in it", "Read", "Kind", "Provider, region", "Source")
    lines = []
    for price in found:
        if isinstance(price, OutOfStock):
            cells = [text_cell(price.gpu), missing(costs.NOT_IN_STOCK), missing(),
                     text_cell(price.date), missing(), missing(), text_cell(_source(price.source))]
        else:
            cells = _price_cells(costing, price, price in costing.stale(rows))
        lines.append(cells)
    columns = [Column(title, lambda row: missing(), title in titles[1:3]) for title in titles]
    return Table("Prices that the costs are counted by", columns, lines)


def _source(source: str) -> str:
    return os.path.basename(source) if os.sep in source else source


def _price_cells(costing: Costing, price: Price, stale: bool) -> list[Cell]:
    start = "from " if price.from_price else ""
    old = f" ({price.age_days(costing.today)} days old)" if stale else ""
    place = ", ".join(dict.fromkeys((price.provider, price.region)))
    currency = "" if price.currency == "USD" else f" (quoted in {price.currency})"
    return [text_cell(price.gpu),
            Cell(f"{start}${costs.number(price.usd_per_hour, 2)}{currency}", price.usd_per_hour),
            Cell(str(price.machine_gpus), price.machine_gpus),
            text_cell((price.read_utc or price.date) + old), text_cell(price.kind),
            text_cell(place), text_cell(_source(price.source))]


def tokens_table(suites: list[Suite], tokens: float) -> Table | None:
    """Hours and $ of training on so many tokens with each row."""
    rows = [(suite, row) for suite in suites for row in suite.ok
            if row.tokens_per_second and row.gpu != "CPU"]
    if not rows:
        return None
    titles = ("Row", "GPUs", "Hours", "$, run day", "$, today")
    lines = []
    for suite, row in rows:
        hours, run, today = suite.costing.for_tokens(row, tokens)
        now = suite.costing.today_price(row)
        gone = costs.NOT_IN_STOCK if isinstance(now, OutOfStock) else costs.NO_PRICE
        lines.append([text_cell(f"{suite.name}: {suite.name_of(row)}"),
                      figure_cell(row.gpus, 0), figure_cell(hours, 1),
                      _dollars(run, costs.NO_PRICE), _dollars(today, gone)])
    columns = [Column(title, lambda row: missing(), title != "Row") for title in titles]
    return Table(f"Training on {tokens:,.0f} tokens at each row's rate", columns, lines)


def _dollars(value: float | None, otherwise: str) -> Cell:
    return missing(otherwise) if value is None else Cell(report_costs.amount(value), value)


@dataclass
class Card:
    """A GPU of the page."""

    name: str
    driver_name: str
    memory_bytes: int
    hosts: set[str]
    measured_flops: float | None = None


def gpu_table(suites: list[Suite]) -> Table | None:
    """Every card that a row ran on."""
    cards: dict[str, Card] = {}
    for suite in suites:
        for row in suite.rows:
            for one in row.run.ranks if row.run else []:
                if not on_gpu(one):
                    continue
                name = gpus.page_name(one["device_name"])
                card = cards.setdefault(name, Card(name, one["device_name"], one["memory_bytes"],
                                                   set()))
                card.hosts.add(one["host"])
                if row.gpu == name:
                    card.measured_flops = card.measured_flops or _bf16_ceiling(row)
            if row.published is not None:
                cards.setdefault(row.gpu, Card(row.gpu, "", 0, set()))
    columns = [
        Column("GPU", lambda card: text_cell(card.name), False),
        Column("Driver's name", lambda card: text_cell(card.driver_name), False),
        Column("Nominal memory, GB", lambda card: _nominal(card)),
        Column("Usable memory, GiB", lambda card: figure_cell(card.memory_bytes or None, 1,
                                                              gib(1))),
        Column("Listed dense bf16 peak, TFLOP/s", lambda card: figure_cell(
            gpus.listed_flops(card.driver_name), 0, 1e-12)),
        Column("Measured bf16 product, TFLOP/s", lambda card: figure_cell(
            card.measured_flops, 0, 1e-12)),
        Column("Machines", lambda card: figure_cell(len(card.hosts) or None, 0))]
    return build("The GPUs of this page", columns, list(cards.values())) if cards else None


def _bf16_ceiling(row: Row) -> float | None:
    """FLOP/s of the row's own measuring of products, or of what its MFU is of."""
    if row.recipe == "matmul-bf16":
        rates = [point.rate for case in row.cases if (point := best(case)) is not None]
        return float(np.median(rates)) if rates else None
    known = row.peak_source == MEASURED and row.settings.get("precision") == "bf16"
    return row.peak_flops if known else None


def _nominal(card: Card) -> Cell:
    by_page = {page: size for page, size, _ in gpus.GPU_TABLE.values()}
    return figure_cell(gpus.nominal_gb(card.driver_name) or (
        by_page.get(card.name) if not card.driver_name else None), 0)


@dataclass
class RawFile:
    """A file that the page was made from."""

    name: str
    letter: str
    sha256: str
    size: str
    complete: bool = True


def raw_file(path: str, number: int, complete: bool) -> RawFile:
    """Name, letter, hash and size of a file."""
    digest, size = hashlib.sha256(), 0
    with open(path, "rb") as file:
        while block := file.read(CHUNK_BYTES):
            digest.update(block)
            size += len(block)
    return RawFile(os.path.basename(path), letter(number), digest.hexdigest(), f"{size:,} bytes",
                   complete)


def commands(runs: list[Run]) -> list[str]:
    """The recorded command lines, ready for a shell, as mpirun or python would be given them."""
    lines = []
    for run in runs:
        words = list(run.argv)
        if not words:
            continue
        ranks = int(run.attributes.get("ranks_total", len(run.ranks)) or 1)
        name = os.path.basename(words[0])
        if name.endswith(".py"):
            start = ["python3", words[0]] if ranks == 1 else \
                ["torchrun", f"--nproc-per-node={ranks}", words[0]]
        else:
            start = ["mpirun", "-np", str(ranks), name]
        lines.append(shlex.join([*start, *words[1:]]))
    return list(dict.fromkeys(lines))
