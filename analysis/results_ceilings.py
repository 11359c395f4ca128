"""Rates of the ceilings suite from its rows' raw repetitions; the rules of src/result/ceilings.h,
bandwidths of collectives as nccl-tests defines them.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from results_model import Case, Results

BUS = {"all-reduce": 2.0, "all-gather": 1.0, "reduce-scatter": 1.0}  # x (n - 1) / n


@dataclass(frozen=True)
class Point:
    """One problem size: rows of square matrices, or bytes. rate: FLOP/s or bytes/s; bus_rate is
    None for one rank and where nothing is communicated."""

    size: float
    seconds: float
    rate: float
    bus_rate: float | None
    wrong_values: float


def is_product(case: Case) -> bool:
    """Whether rates are FLOP/s."""
    return str(case.value("recipe", "")).startswith("matmul")


def points(case: Case) -> list[Point]:
    """Medians of the measured repetitions at the slowest rank; empty for rows of other suites and
    rows that are not ok."""
    recipe = str(case.value("recipe", ""))
    if case.suite != "ceilings" or case.status != "ok" or "problem_size" not in case.series \
            or recipe == "pairs":
        return []
    sizes = case.measured("problem_size")[0]
    seconds = case.measured("step_seconds").max(axis=0)
    wrong = np.nansum(case.measured("wrong_values"), axis=0)
    ranks = len(case.ranks)
    factor = BUS[recipe] * (ranks - 1) / ranks if recipe in BUS and ranks > 1 else None
    found = []
    for size in dict.fromkeys(sizes.tolist()):
        median = float(np.median(seconds[sizes == size]))
        work = 2 * size**3 if is_product(case) else 2 * size if recipe == "copy-device" else size
        rate = work / median
        found.append(Point(size, median, rate, None if factor is None else rate * factor,
                           float(wrong[sizes == size].sum())))
    return found


def best(case: Case) -> Point | None:
    """The point of the highest rate."""
    return max(points(case), key=lambda point: point.rate, default=None)


def pairs(case: Case) -> dict[tuple[int, int], tuple[float, float]]:
    """(node, node) -> (bytes, bytes/s in each direction over all ranks of a node) at the fastest
    size; the numbers are ranks where the row had one node. Empty for rows that are no sweep."""
    if case.suite != "ceilings" or case.status != "ok" or "pair_a" not in case.series:
        return {}
    seconds = case.measured("step_seconds")
    sizes, first, second = (case.measured(name)[0] for name in ("problem_size", "pair_a", "pair_b"))
    found: dict[tuple[int, int], tuple[float, float]] = {}
    for a, b, size in dict.fromkeys(zip(first.tolist(), second.tolist(), sizes.tolist())):
        own = seconds[:, (first == a) & (second == b) & (sizes == size)]
        own = own[~np.isnan(own).all(axis=1)]
        rate = size * len(own) / 2 / float(np.median(own.max(axis=0)))
        if rate > found.get((int(a), int(b)), (0.0, 0.0))[1]:
            found[int(a), int(b)] = (size, rate)
    return found


def product_ceiling(file: Results, precision: str, device_name: str) -> float | None:
    """FLOP/s of the fastest product of that precision on that device in `file`: the median over
    repeats, of the faster size where `full` and `tiny` were run. None where none was measured."""
    rates: dict[str, list[float]] = {}
    for case in file.cases:
        if case.value("recipe") == f"matmul-{precision}" and (point := best(case)) \
                and device_name == case.value("device_name"):
            rates.setdefault(case.name, []).append(point.rate)
    return max((float(np.median(own)) for own in rates.values()), default=None)


def lines(case: Case) -> list[list[str]]:
    """Cells of a table: case, repeat, size, ms, rate, bus bandwidth, wrong values."""
    scale, unit = (1e12, "TFLOP/s") if is_product(case) else (1e9, "GB/s")
    rows = []
    for point in points(case):
        bus = "-" if case.value("recipe") not in BUS else "not defined for one rank" \
            if point.bus_rate is None else f"{point.bus_rate / scale:,.3f} {unit}"
        rows.append([case.name, str(case.repeat), f"{point.size:,.0f}",
                     f"{point.seconds * 1e3:,.4f}", f"{point.rate / scale:,.3f} {unit}", bus,
                     f"{point.wrong_values:.0f}"])
    for (a, b), (size, rate) in pairs(case).items():
        rows.append([f"{case.name} {a}-{b}", str(case.repeat), f"{size:,.0f}", "-",
                     f"{rate / 1e9:,.3f} GB/s", "-", "-"])
    return rows
