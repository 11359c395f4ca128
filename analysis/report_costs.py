"""What the rows of a page cost: on the day of the run and today."""

from __future__ import annotations

import costs
import prices
from costs import EXACT, PUBLISHED, Pair
from prices import OutOfStock, Price, Prices
from report_rows import Row

FIGURES = {"finetune": "training_usd", "ddp": "usd_per_billion_tokens",
           "compile": "million_tokens_per_usd"}
HEADINGS = {"training_usd": "Training, $", "usd_per_billion_tokens": "$ per 1B tokens",
            "million_tokens_per_usd": "M tokens per $"}
NOT_PRICED = "not priced"


class Costing:
    """Prices of rows. `today` is an ISO date; `given` is --run-price or empty."""

    def __init__(self, history: Prices | None, today: str, given: str = ""):
        self.history, self.today, self.given = history, today, given

    def run_price(self, row: Row) -> Price | None:
        """The machine's price on the day of the run."""
        if row.published is not None:
            return row.published.run_price
        if row.gpu == "CPU" or not row.gpu:
            return None
        if self.given:
            return prices.run_price(self.given, row.gpu, row.date)
        if self.history is None or not row.date:
            return None
        return self.history.on(row.gpu, row.date, gpus=max(row.gpus, row.machine_gpus))

    def today_price(self, row: Row) -> Price | OutOfStock | None:
        """The price that is known today. A published row brings the price of its page's day,
        unless the history has a later one."""
        if row.gpu == "CPU" or not row.gpu:
            return None
        found = self.history.today(row.gpu, self.today) if self.history else None
        if row.published is not None:
            own = row.published.today_price
            return own if found is None or (own is not None and found.date <= own.date) else found
        return found

    def figure(self, row: Row, figure: str = "") -> Pair | None:
        """The suite's cost figure of a row (or that of the name); None when it has none."""
        figure = figure or FIGURES[row.suite]
        amount = row.train_seconds if figure == "training_usd" else row.tokens_per_second
        if row.published is not None and figure == "training_usd" and row.tokens_per_second:
            amount = row.published.train_tokens / row.tokens_per_second
        if not row.ok or not amount or row.gpu == "CPU":
            return None
        return costs.pair(figure, amount, self.run_price(row), self.today_price(row), row.gpus,
                          EXACT if row.published is None else PUBLISHED)

    def job(self, row: Row) -> Pair | None:
        """$ of the whole case: set-up, compile, training, evaluation; on the whole machine when
        less of it is used."""
        if not row.case_seconds or row.gpu == "CPU":
            return None
        return costs.pair("training_usd", row.case_seconds, self.run_price(row),
                          self.today_price(row), row.gpus)

    def whole_machine(self, row: Row) -> tuple[float, Price] | None:
        """The run day's figure if the whole machine is paid, where the row used a share."""
        price, pair = self.run_price(row), self.figure(row)
        if price is None or pair is None or pair.run_day is None or not price.is_share(row.gpus):
            return None
        factor = price.usd_per_hour / price.usd_for(row.gpus)
        return (pair.run_day / factor if pair.figure == "million_tokens_per_usd"
                else pair.run_day * factor), price

    def for_tokens(self, row: Row, tokens: float) -> tuple[float, float | None, float | None]:
        """(hours, $ on the run's day, $ today) of training on so many tokens."""
        hours = costs.hours_for(tokens, row.tokens_per_second)
        run, now = self.run_price(row), self.today_price(row)
        return (hours, run.usd_for(row.gpus) * hours if run else None,
                now.usd_for(row.gpus) * hours if isinstance(now, Price) else None)

    def usd_per_billion(self, row: Row, today: bool = False) -> float | None:
        """$ per 1B tokens, to compare rows by."""
        pair = self.figure(row, "usd_per_billion_tokens")
        return None if pair is None else pair.today if today else pair.run_day

    def prices_of(self, rows: list[Row]) -> list[Price | OutOfStock]:
        """Every price that these rows are counted by, each once, oldest first."""
        found = []
        for row in rows:
            for price in (self.run_price(row), self.today_price(row)):
                if price is not None and price not in found:
                    found.append(price)
        return sorted(found, key=lambda price: (price.date, price.gpu))

    def stale(self, rows: list[Row]) -> list[Price]:
        """Today's prices that are older than a week."""
        return [price for price in self.prices_of(rows)
                if isinstance(price, Price) and price.stale(self.today)
                and any(self.today_price(row) == price for row in rows)]


def texts(pair: Pair | None) -> tuple[str, str]:
    """Both cells, with $; figures of ours keep three digits."""
    if pair is None:
        return NOT_PRICED, NOT_PRICED
    money = "" if pair.figure == "million_tokens_per_usd" else "$"

    def cell(value: float | None, otherwise: str) -> str:
        if value is None:
            return otherwise
        digits = costs.DIGITS[pair.figure]
        while digits < 6 and 0 < value < 10 ** (1 - digits):
            digits += 1
        return money + costs.number(value, digits)

    return cell(pair.run_day, costs.NO_PRICE), cell(pair.today, pair.no_today)


def amount(value: float | None, otherwise: str = "-") -> str:
    """$ as people write it: cents, or three digits below a cent."""
    if value is None:
        return otherwise
    return "$" + (f"{value:,.0f}" if value >= 1000 else f"{value:,.2f}" if value >= 0.1
                  else f"{value:.2g}")
