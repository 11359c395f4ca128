"""What training costs: $ for tokens, tokens for $, in two modes.

"exact" never rounds. "published" follows the page whose figures lie in examples/published.toml: a
run-day figure is rounded as it is printed, and today's figure is made from the rounded one by the
ratio of the prices. Every printed cell there comes out so; unrounded figures do not.
"""

from __future__ import annotations

from dataclasses import dataclass
from decimal import ROUND_HALF_UP, Decimal

from prices_model import OutOfStock, Price

EXACT, PUBLISHED = "exact", "published"
MODES = (EXACT, PUBLISHED)
NO_PRICE = "no price for this date"
NOT_IN_STOCK = "Not in stock"
ONE_SHARE = "one GPU's share"
# Digits after the point as the published page prints them.
DIGITS = {"usd_per_billion_tokens": 2, "million_tokens_per_usd": 0, "training_usd": 3}


def rounded(value: float, digits: int) -> float:
    """`value` as a person would print it: half away from zero, in decimal."""
    step = Decimal(1).scaleb(-digits)
    return float(Decimal(repr(float(value))).quantize(step, ROUND_HALF_UP))


def usd_per_billion_tokens(tokens_per_second: float, usd_per_hour: float,
                           mode: str = EXACT) -> float:
    """$ for 1e9 tokens at that rate."""
    _check(tokens_per_second, "tokens/s")
    return _as_printed(1e9 / tokens_per_second / 3600 * usd_per_hour, "usd_per_billion_tokens",
                       mode)


def million_tokens_per_usd(tokens_per_second: float, usd_per_hour: float,
                           mode: str = EXACT) -> float:
    """1e6 tokens trained for $1."""
    _check(usd_per_hour, "$ per hour")
    return _as_printed(tokens_per_second * 3600 / usd_per_hour / 1e6, "million_tokens_per_usd",
                       mode)


def training_usd(seconds: float, usd_per_hour: float, mode: str = EXACT) -> float:
    """$ for that time; the published page takes tokens / rate for the time."""
    return _as_printed(seconds / 3600 * usd_per_hour, "training_usd", mode)


def hours_for(tokens: float, tokens_per_second: float) -> float:
    """Hours that training on `tokens` takes."""
    _check(tokens_per_second, "tokens/s")
    return tokens / tokens_per_second / 3600


def usd_for(tokens: float, tokens_per_second: float, usd_per_hour: float) -> float:
    """$ that training on `tokens` takes."""
    return hours_for(tokens, tokens_per_second) * usd_per_hour


def _check(value: float, what: str) -> None:
    if not value > 0:
        raise ValueError(f"{what} is {value}; a cost needs a number above 0")


def _as_printed(value: float, figure: str, mode: str) -> float:
    if mode not in MODES:
        raise ValueError(f"mode '{mode}' is none of {', '.join(MODES)}")
    return rounded(value, DIGITS[figure]) if mode == PUBLISHED else value


@dataclass(frozen=True)
class Pair:
    """A figure at the price of the run's day and at today's; None where there is no such price."""

    figure: str  # a key of DIGITS
    run_day: float | None
    today: float | None
    no_today: str = NO_PRICE  # what the cell says without a figure

    def texts(self, digits: int | None = None) -> tuple[str, str]:
        """Both cells as they are printed, without a unit."""
        digits = DIGITS[self.figure] if digits is None else digits
        return (NO_PRICE if self.run_day is None else number(self.run_day, digits),
                self.no_today if self.today is None else number(self.today, digits))


def number(value: float, digits: int) -> str:
    """Rounded half away from zero, with thousands separators."""
    return f"{rounded(value, digits):,.{digits}f}"


def pair(figure: str, amount: float, run: Price | None, today: Price | OutOfStock | None,
         gpus: int, mode: str = EXACT) -> Pair:
    """`figure` of a row on `gpus` GPUs at both prices.

    amount: tokens/s of the row, or for training_usd its seconds. In mode "published" today's
    figure needs the run day's and is made from it as printed.
    """
    compute = {"usd_per_billion_tokens": usd_per_billion_tokens,
               "million_tokens_per_usd": million_tokens_per_usd,
               "training_usd": training_usd}[figure]
    run_figure = None if run is None else compute(amount, run.usd_for(gpus), mode)
    no_today = NOT_IN_STOCK if isinstance(today, OutOfStock) else NO_PRICE
    if not isinstance(today, Price):
        return Pair(figure, run_figure, None, no_today)
    if mode == EXACT:
        return Pair(figure, run_figure, compute(amount, today.usd_for(gpus)))
    if run is None:
        return Pair(figure, None, None)
    ratio = today.usd_per_gpu_hour / run.usd_per_gpu_hour
    ratio = 1 / ratio if figure == "million_tokens_per_usd" else ratio
    return Pair(figure, run_figure, rounded(run_figure * ratio, DIGITS[figure]))


def price_words(price: Price | OutOfStock | None, gpus: int = 1) -> str:
    """A price in words: "$0.66/h, one GPU's share of a 4-GPU machine at $2.64/h (2026-10-26)"."""
    if price is None:
        return NO_PRICE
    if isinstance(price, OutOfStock):
        return f"{NOT_IN_STOCK} ({price.date})"
    start = "from " if price.from_price else ""
    spot = ", spot" if price.kind == "spot" else ""
    words = f"{start}${number(price.usd_for(gpus), 2)}/h"
    if price.is_share(gpus):
        share = ONE_SHARE if gpus == 1 else f"{gpus} GPUs' share"
        words += f", {share} of a {price.machine_gpus}-GPU machine at " \
                 f"${number(price.usd_per_hour, 2)}/h"
    elif gpus > price.machine_gpus:
        words += f", {gpus} GPUs by the price of a {price.machine_gpus}-GPU machine"
    return f"{words}{spot} ({price.date})"
