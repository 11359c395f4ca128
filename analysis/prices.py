"""Dated prices of GPU machines (prices.toml): what a run cost on its day, what it costs today.

Every price has a date and a source; a figure that is missing, zero, negative or not a number is
refused, never replaced by a placeholder.
"""

from __future__ import annotations

import os

import prices_file
from prices_model import KINDS, NOT_STATED, STALE_DAYS, OutOfStock, Price, Prices, Reading
from results_records import ResultError

__all__ = ["KINDS", "NOT_STATED", "STALE_DAYS", "OutOfStock", "Price", "Prices", "Reading", "load",
           "load_default", "run_price"]


def load(path: str | os.PathLike[str]) -> Prices:
    """Reads a prices.toml. Raises ResultError: one line that names the entry and the fix."""
    return prices_file.read(os.fspath(path))


def load_default() -> Prices:
    """The prices.toml beside this module."""
    return load(os.path.join(os.path.dirname(os.path.abspath(__file__)), "prices.toml"))


def run_price(text: str, gpu: str, date: str) -> Price:
    """--run-price: "2.64", or "2.64/4" for a machine of 4 GPUs. Raises ResultError."""
    amount, _, count = text.partition("/")
    where = f"--run-price {text}"
    try:
        numbers = float(amount), int(count or "1")
    except ValueError:
        raise ResultError(f"{where}: give $ per hour, or $ per hour/GPUs in the machine, "
                          "such as 2.64/4") from None
    return Price(gpu, prices_file.positive_amount(numbers[0], where, "the price"),
                 prices_file.positive_count(numbers[1], where, "the machine's GPUs"), date[:10],
                 "given as --run-price")
