"""Dated prices of GPU machines and how one is chosen; `prices` is the interface."""

from __future__ import annotations

import datetime
from dataclasses import dataclass

STALE_DAYS = 7
KINDS = ("on-demand", "spot")
NOT_STATED = "not stated"


@dataclass(frozen=True)
class Price:
    """What a machine costs. `usd_per_hour` is the whole machine's."""

    gpu: str  # page name
    usd_per_hour: float
    machine_gpus: int
    date: str  # ISO 8601, UTC
    source: str
    read_utc: str = ""  # when it was read, to the minute; empty where only the day is known
    provider: str = NOT_STATED
    region: str = NOT_STATED
    kind: str = "on-demand"
    currency: str = "USD"  # what it was quoted in; usd_per_hour is converted
    from_price: bool = False  # "from ...": the lowest of an offer, perhaps a larger machine's
    usd_per_gpu_hour: float = 0.0  # as quoted where quoted a GPU, else the machine's share

    def __post_init__(self) -> None:
        if not self.usd_per_gpu_hour:
            object.__setattr__(self, "usd_per_gpu_hour", self.usd_per_hour / self.machine_gpus)

    def usd_for(self, gpus: int) -> float:
        """$ per hour of `gpus` GPUs: their share of the machine, or several machines."""
        return self.usd_per_hour if gpus == self.machine_gpus else self.usd_per_gpu_hour * gpus

    def is_share(self, gpus: int) -> bool:
        """Whether `gpus` GPUs are less than the machine that must be rented."""
        return gpus < self.machine_gpus

    def age_days(self, date: str) -> int:
        """Days from the price to `date`."""
        return (_day(date) - _day(self.date)).days

    def stale(self, date: str) -> bool:
        """Older than a week on `date`."""
        return self.age_days(date) > STALE_DAYS


@dataclass(frozen=True)
class OutOfStock:
    """The last reading found no machine to rent."""

    gpu: str
    date: str
    source: str
    last: Price | None = None  # the last price that was seen, if any


@dataclass(frozen=True)
class Reading:
    """One entry of the history: a price, or an offer that was out of stock."""

    gpu: str
    machine_gpus: int
    date: str
    read_utc: str
    kind: str
    provider: str
    region: str
    price: Price | None  # None: out of stock
    source: str


@dataclass(frozen=True)
class Prices:
    """A history of readings."""

    path: str
    readings: tuple[Reading, ...]

    def on(self, gpu: str, date: str, machine_gpus: int | None = None, *, gpus: int = 1,
           kind: str = "on-demand") -> Price | None:
        """The price of that very day (ISO date or time, UTC); None when there is none.

        machine_gpus names the machine's size; without it the smallest machine that holds `gpus`
        GPUs counts, else the largest there is. Of several offers the cheapest GPU counts; of
        several readings of an offer that day, the last.
        """
        offers = [reading.price for reading in self._latest(gpu, kind, date, exact=True)
                  if reading.price is not None
                  and machine_gpus in (None, reading.price.machine_gpus)]
        if not offers:
            return None
        holding = [offer for offer in offers if offer.machine_gpus >= gpus]
        size = min(offer.machine_gpus for offer in holding) if holding else \
            max(offer.machine_gpus for offer in offers)
        return min((offer for offer in offers if offer.machine_gpus == size), key=_per_gpu)

    def today(self, gpu: str, date: str, machine_gpus: int | None = None, *,
              kind: str = "on-demand") -> Price | OutOfStock | None:
        """The cheapest GPU-hour of the last day up to `date` on which the GPU was read.

        With machine_gpus, offers of that size count before others. OutOfStock when that day's
        readings found none; None when the GPU was never read.
        """
        latest = self._latest(gpu, kind, date, exact=False)
        if not latest:
            return None
        last_day = max(reading.date for reading in latest)
        offers = [reading.price for reading in latest
                  if reading.date == last_day and reading.price is not None]
        if not offers:
            seen = [reading.price for reading in self.readings
                    if (reading.gpu, reading.kind) == (gpu, kind) and reading.price is not None
                    and reading.date < last_day]
            source = next(reading.source for reading in latest if reading.date == last_day)
            return OutOfStock(gpu, last_day, source, max(seen, key=_moment, default=None))
        sized = [offer for offer in offers if offer.machine_gpus == machine_gpus]
        return min(sized or offers, key=_per_gpu)

    def _latest(self, gpu: str, kind: str, date: str, exact: bool) -> list[Reading]:
        """The last reading of each offer, on that day or up to it."""
        day, last = date[:10], {}
        for reading in sorted(self.readings, key=_moment):
            fits = reading.date == day if exact else reading.date <= day
            if fits and (reading.gpu, reading.kind) == (gpu, kind):
                last[reading.provider, reading.region, reading.machine_gpus] = reading
        return list(last.values())


def _per_gpu(price: Price) -> float:
    return price.usd_per_gpu_hour


def _moment(reading: Reading | Price) -> str:
    return reading.read_utc or reading.date


def _day(date: str) -> datetime.date:
    return datetime.date.fromisoformat(date[:10])
