"""Published results (examples/published.toml): rows with summary figures only, as printed.

They are read into rows that pages and comparisons show beside measured ones. Their costs follow
the rules of `costs` in mode "published"; the printed cells are kept beside them.
"""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from typing import Any

import published_rows
from costs import PUBLISHED, Pair, pair
from prices_file import date_of, positive_amount, positive_count, read_toml, table_list
from prices_model import Price, Prices, Reading
from published_rows import SUITES, PublishedRow
from results_records import ResultError

__all__ = ["Published", "PublishedRow", "is_published", "read", "rows"]


@dataclass(frozen=True)
class Published:
    """A whole published page."""

    path: str
    page: dict[str, Any]  # title, prices_read_utc, noise_percent, ...
    prices: Prices  # of the run days and of the day of the page
    rows: tuple[PublishedRow, ...]
    sections: dict[str, dict[str, Any]] = field(default_factory=dict)  # suite -> its texts

    def today(self) -> str:
        """The day of the page's prices."""
        return self.page["prices_read_utc"][:10]


def rows(path: str | os.PathLike[str]) -> list[PublishedRow]:
    """The rows of a published.toml. Raises ResultError: one line that names the entry."""
    return list(read(path).rows)


def is_published(path: str | os.PathLike[str]) -> bool:
    """Whether a file claims to hold published rows (by its name; `read` checks the content)."""
    return os.fspath(path).endswith(".toml")


def read(path: str | os.PathLike[str]) -> Published:
    """Reads a published.toml. Raises ResultError."""
    path = os.fspath(path)
    document = read_toml(path)
    page = document.get("page")
    if not isinstance(page, dict) or "prices_read_utc" not in page:
        raise ResultError(f"{path} has no [page] with prices_read_utc; it holds no published "
                          "results")
    suites = [suite for suite in SUITES if suite in document]
    if not suites:
        raise ResultError(f"{path} has none of the sections {', '.join(SUITES)}")
    today = date_of({"read_utc": page["prices_read_utc"]}, f"{path}: [page]")
    prices = _prices(path, document, today)
    found: list[PublishedRow] = []
    for suite in suites:
        for row in published_rows.read_suite(path, suite, document[suite]):
            found.append(_priced(row, prices, today[0]))
    texts = {suite: {key: value for key, value in document[suite].items() if key != "rows"}
             for suite in suites}
    return Published(path, {**page, "prices_read_utc": today[1]}, prices, tuple(found), texts)


def _prices(path: str, document: dict[str, Any], today: tuple[str, str]) -> Prices:
    """Every price of the page; `today` is the (day, moment) of those without a date."""
    readings = []
    for number, entry in enumerate(table_list(document, "price", path), 1):
        where = f"{path}: price {number}"
        for key in ("gpu", "usd_per_hour", "machine_gpus"):
            if key not in entry:
                raise ResultError(f"{where}: no {key}")
        gpu = published_rows.check_gpu(entry["gpu"], where)
        usd = positive_amount(entry["usd_per_hour"], where, "usd_per_hour")
        count = positive_count(entry["machine_gpus"], where, "machine_gpus")
        readings.append(_reading(Price(gpu, usd, count, date_of(entry, where)[0], path)))
    for number, entry in enumerate(table_list(document, "price_today", path), 1):
        where = f"{path}: price_today {number}"
        gpu = published_rows.check_gpu(entry.get("gpu", ""), where)
        each = positive_amount(entry.get("from_usd_per_gpu_hour"), where, "from_usd_per_gpu_hour")
        count = positive_count(entry.get("on_machine_gpus", 1), where, "on_machine_gpus")
        readings.append(_reading(Price(gpu, each * count, count, today[0], path, today[1],
                                       from_price=True, usd_per_gpu_hour=each)))
    return Prices(path, tuple(readings))


def _reading(price: Price) -> Reading:
    return Reading(price.gpu, price.machine_gpus, price.date, price.read_utc, price.kind,
                   price.provider, price.region, price, price.source)


def _priced(row: PublishedRow, prices: Prices, today: str) -> PublishedRow:
    """The row with its prices and its costs by the published rules."""
    run = prices.on(row.gpu, row.run_date, row.machine_gpus)
    now = prices.today(row.gpu, today)
    costs: Pair | None = None
    if row.status == "ok":
        amount = row.tokens_per_second if row.train_tokens is None else \
            row.train_tokens / row.tokens_per_second
        costs = pair(row.cost_figure, amount, run, now, row.gpus, PUBLISHED)
    return row.with_prices(run, now, costs)
