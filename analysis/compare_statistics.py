"""Is one rate higher than another? By repeats: the steps of one run are not independent."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy import stats

SLOWER, FASTER, TIE, SINGLE_RUN = "slower", "faster", "tie", "single run"


@dataclass(frozen=True)
class Ratio:
    """B / A of rates, with the interval that repeats give; None where a side has one run."""

    value: float
    low: float | None
    high: float | None
    confidence: float
    runs_a: int
    runs_b: int

    @property
    def verdict(self) -> str:
        """B against A: faster or slower where the interval leaves out 1."""
        if self.low is None or self.high is None:
            return SINGLE_RUN
        return FASTER if self.low > 1 else SLOWER if self.high < 1 else TIE

    def slower_than(self, limit: float) -> bool | None:
        """Whether B is slower than A by more than the fraction `limit`; None: cannot tell."""
        if self.low is None or self.high is None:
            return None
        if self.high < 1 - limit:
            return True
        return False if self.low >= 1 - limit else None

    def words(self) -> str:
        """The finding in words, B's change in tokens/s with A's as its base."""
        change = f"{abs(self.value - 1) * 100:.1f}%"
        if self.verdict == SINGLE_RUN:
            return f"single run ({self.runs_a} of A, {self.runs_b} of B): no test; repeat to tell"
        if self.verdict == TIE:
            return "tie: the interval holds 1"
        return f"{self.verdict}: tokens/s of B are {change} " \
               f"{'above' if self.verdict == FASTER else 'below'} A's"


def ratio(a: Sequence[float], b: Sequence[float], confidence: float = 0.95) -> Ratio:
    """Geometric mean of b / that of a. The interval is Welch's, on logarithms of one value a run,
    so runs of unequal number and spread may be compared.

    Raises ValueError without a positive finite value on both sides.
    """
    if not len(a) or not len(b) or not all(0 < value < math.inf for value in [*a, *b]):
        raise ValueError("a ratio needs positive rates on both sides")
    logs_a, logs_b = np.log(np.asarray(a, float)), np.log(np.asarray(b, float))
    gap = float(logs_b.mean() - logs_a.mean())
    if len(a) < 2 or len(b) < 2:
        return Ratio(math.exp(gap), None, None, confidence, len(a), len(b))
    part_a, part_b = logs_a.var(ddof=1) / len(a), logs_b.var(ddof=1) / len(b)
    half = 0.0
    if part_a + part_b > 0:
        freedom = (part_a + part_b) ** 2 / (part_a ** 2 / (len(a) - 1)
                                            + part_b ** 2 / (len(b) - 1))
        half = float(stats.t.ppf((1 + confidence) / 2, freedom) * math.sqrt(part_a + part_b))
    return Ratio(math.exp(gap), math.exp(gap - half), math.exp(gap + half), confidence, len(a),
                 len(b))
