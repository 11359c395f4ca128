"""One figure over the repeats of a case: median, 95% interval, and in words how it was found.

The same rules as src/result/repeats.h: repeats count, not steps, since steps of one run are not
independent.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy import stats

FEWEST_FOR_T, FEWEST_FOR_BOOTSTRAP = 3, 10
TAIL = 0.025  # on either side


@dataclass(frozen=True)
class Repeats:
    """The median over `count` repeats; low and high are None below three."""

    count: int
    median: float
    low: float | None
    high: float | None
    method: str

    @property
    def half_width(self) -> float | None:
        """The farther end's distance from the median, as a fraction of it."""
        if self.low is None or self.high is None:
            return None
        return max(self.median - self.low, self.high - self.median) / self.median


def over_repeats(values: Sequence[float]) -> Repeats:
    """From 3 repeats Student's t on the logarithms, from 10 the exact bootstrap of the median.

    Raises ValueError without values, or with one that is not positive and finite.
    """
    if not len(values) or not all(0 < value < math.inf for value in values):
        raise ValueError("an interval over repeats needs positive figures")
    count, median = len(values), float(np.median(values))
    if count < FEWEST_FOR_T:
        return Repeats(count, median, None, None,
                       "single run" if count == 1 else "2 runs: no interval")
    if count < FEWEST_FOR_BOOTSTRAP:
        logs = np.log(np.asarray(values, float))
        half = stats.t.ppf(1 - TAIL, count - 1) * logs.std(ddof=1) / math.sqrt(count)
        return Repeats(count, median, math.exp(logs.mean() - half), math.exp(logs.mean() + half),
                       "t on logarithms")
    medians, weights = resampled_medians(np.sort(np.asarray(values, float)))
    below = np.cumsum(weights) + 1e-12
    low, high = (float(medians[np.argmax(below >= share)]) for share in (TAIL, 1 - TAIL))
    return Repeats(count, median, low, high, "bootstrap of the median")


def resampled_medians(values: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Medians of all resamples with replacement of the sorted `values`, and their probabilities.

    Odd n: a value. Even n: the mean of the middle draws, the lower at most value i in half of the
    draws, the upper at least value j in the other half.
    """
    count, half = len(values), len(values) // 2
    needed = half + 1 if count % 2 else half
    ranks = np.arange(count + 1)
    reach = stats.binom.sf(needed - 1, count, ranks / count)  # needed draws among the first ranks
    both = np.diff(reach)
    medians, weights = list(values), list(both)
    if count % 2 == 0:
        share = (ranks / count) ** half
        lower = np.diff(share)  # half of the draws at most value i, one of them i
        upper = lower[::-1]  # the other half at least value j, one of them j
        for i in range(count):
            for j in range(i + 1, count):
                apart = math.comb(count, half) * lower[i] * upper[j]
                medians.append((values[i] + values[j]) / 2)
                weights.append(apart)
                weights[i] -= apart
    order = np.argsort(medians, kind="stable")
    return np.asarray(medians)[order], np.asarray(weights)[order]
