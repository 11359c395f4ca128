"""Reads and validates prices.toml; `prices` is the interface."""

from __future__ import annotations

import datetime
import difflib
import math
import tomllib
from typing import Any

from gpus import check_known
from prices_model import KINDS, NOT_STATED, Price, Prices, Reading
from results_records import ResultError

KEYS = ("gpu", "machine_gpus", "usd_per_hour", "usd_per_gpu_hour", "per_hour", "currency",
        "usd_rate", "date", "read_utc", "provider", "region", "kind", "source", "from",
        "out_of_stock")
MOST = 1_000_000  # no machine costs more $ an hour or has more GPUs
AMOUNTS = ("usd_per_hour", "usd_per_gpu_hour", "per_hour")


def read_toml(path: str) -> dict[str, Any]:
    """A TOML file. Raises ResultError."""
    try:
        with open(path, "rb") as file:
            return tomllib.load(file)
    except OSError as error:
        raise ResultError(f"cannot read {path}: {error.strerror}") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ResultError(f"{path} is not TOML: {error}") from error


def positive_amount(value: object, where: str, what: str) -> float:
    """A finite number above 0."""
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise ResultError(f"{where}: {what} is {value!r}, not a number of $")
    if MOST < value < math.inf:
        raise ResultError(f"{where}: {what} is beyond {MOST:,}; look at its digits")
    if not math.isfinite(value) or value <= 0:
        raise ResultError(f"{where}: {what} is {value}; a price is a finite number above 0 "
                          "(an offer without one: out_of_stock = true)")
    return float(value)


def table_list(document: dict[str, Any], name: str, path: str) -> list[dict[str, Any]]:
    """The entries of [[name]]; none is fine. Raises ResultError."""
    entries = document.get(name, [])
    if not isinstance(entries, list) or not all(isinstance(entry, dict) for entry in entries):
        raise ResultError(f"{path}: '{name}' is a list of tables: [[{name}]] before each")
    return entries


def positive_count(value: object, where: str, what: str) -> int:
    """A whole number from 1."""
    if isinstance(value, bool) or not isinstance(value, int) or not 1 <= value <= MOST:
        raise ResultError(f"{where}: {what} is {value!r}; give a whole number from 1")
    return value


def _utc(text: str) -> str:
    """An ISO time in UTC, to the second; without a zone it is UTC."""
    time = datetime.datetime.fromisoformat(text)
    time = time.replace(tzinfo=time.tzinfo or datetime.timezone.utc)
    return time.astimezone(datetime.timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ")


def date_of(entry: dict[str, Any], where: str) -> tuple[str, str]:
    """(date, moment) of a reading, from its keys date and read_utc. Raises ResultError."""
    moment = entry.get("read_utc", "")
    if isinstance(moment, datetime.datetime):
        moment = moment.isoformat()
    date = entry.get("date", moment)
    date = date.isoformat() if isinstance(date, datetime.date) else date
    if not date:
        raise ResultError(f"{where}: no date; every price needs the day it was read "
                          "(date = \"2026-01-31\")")
    try:
        day = datetime.date.fromisoformat(str(date)[:10]).isoformat()
        moment = _utc(str(moment)) if moment else ""
    except ValueError:
        raise ResultError(f"{where}: '{moment or date}' is not a date; write it as 2026-01-31, "
                          "read_utc as 2026-01-31T04:00:00Z") from None
    if moment and moment[:10] != day:
        raise ResultError(f"{where}: date {day} and read_utc {moment} are different days")
    return day, moment


def _text(entry: dict[str, Any], key: str, where: str, default: str = NOT_STATED) -> str:
    value = entry.get(key, default)
    if not isinstance(value, str) or not value.strip():
        raise ResultError(f"{where}: {key} is {value!r}; give it as text or leave it out")
    return value


def _flag(entry: dict[str, Any], key: str, where: str) -> bool:
    value = entry.get(key, False)
    if not isinstance(value, bool):
        raise ResultError(f"{where}: {key} is {value!r}; write true or false")
    return value


def _amounts(entry: dict[str, Any], machine_gpus: int, where: str) -> tuple[float, float]:
    """($ per machine-hour, $ per GPU-hour)."""
    given = [key for key in AMOUNTS if key in entry]
    if len(given) != 1:
        found = "no price" if not given else " and ".join(given)
        raise ResultError(f"{where}: {found}; give one of {', '.join(AMOUNTS)}, "
                          "or out_of_stock = true")
    amount = positive_amount(entry[given[0]], where, given[0])
    currency = _text(entry, "currency", where, "USD")
    if given[0] == "per_hour":
        if currency == "USD":
            raise ResultError(f"{where}: per_hour is for other currencies; write usd_per_hour")
        if "usd_rate" not in entry:
            raise ResultError(f"{where}: a price in {currency} needs usd_rate, the $ that one "
                              f"{currency} was worth on that day")
        amount *= positive_amount(entry["usd_rate"], where, "usd_rate")
    elif currency != "USD":
        raise ResultError(f"{where}: {given[0]} is in USD but currency is {currency}; "
                          "give per_hour and usd_rate")
    if given[0] == "usd_per_gpu_hour":
        return amount * machine_gpus, amount
    return amount, amount / machine_gpus


def _reading(entry: dict[str, Any], where: str) -> Reading:
    for key in entry:
        if key not in KEYS:
            nearest = difflib.get_close_matches(key, KEYS, 1)
            hint = f"; did you mean '{nearest[0]}'?" if nearest else f" ({', '.join(KEYS)})"
            raise ResultError(f"{where}: unknown key '{key}'{hint}")
    if "gpu" not in entry:
        raise ResultError(f"{where}: no gpu; name the GPU that the price is for")
    gpu = check_known(_text(entry, "gpu", where), where)
    where = f"{where} ({gpu})"
    date, moment = date_of(entry, where)
    if "source" not in entry:
        raise ResultError(f"{where}: no source; say where the price was read")
    kind = _text(entry, "kind", where, KINDS[0])
    if kind not in KINDS:
        raise ResultError(f"{where}: kind '{kind}' is none of {', '.join(KINDS)}")
    machine_gpus = positive_count(entry.get("machine_gpus", 1), where, "machine_gpus")
    source, provider = _text(entry, "source", where), _text(entry, "provider", where)
    region = _text(entry, "region", where)
    price = None
    if _flag(entry, "out_of_stock", where):
        if any(key in entry for key in AMOUNTS):
            raise ResultError(f"{where}: out of stock, but with a price; leave one out")
    else:
        machine, each = _amounts(entry, machine_gpus, where)
        price = Price(gpu, machine, machine_gpus, date, source, moment, provider, region, kind,
                      _text(entry, "currency", where, "USD"), _flag(entry, "from", where), each)
    return Reading(gpu, machine_gpus, date, moment, kind, provider, region, price, source)


def read(path: str) -> Prices:
    """The history in `path`; see prices.load."""
    document = read_toml(path)
    entries = table_list(document, "price", path)
    unknown = [key for key in document if key != "price"]
    if unknown:
        raise ResultError(f"{path}: unknown table '{unknown[0]}'; only [[price]] is known")
    readings, seen = [], {}
    for number, entry in enumerate(entries, 1):
        reading = _reading(entry, f"{path}: price {number}")
        key = (reading.gpu, reading.machine_gpus, reading.read_utc or reading.date, reading.kind,
               reading.provider, reading.region)
        if key in seen:
            raise ResultError(f"{path}: price {number} ({reading.gpu}): the same offer and time "
                              f"as price {seen[key]}; keep one of them")
        seen[key] = number
        readings.append(reading)
    return Prices(path, tuple(readings))
