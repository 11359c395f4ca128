"""Plots as SVG within the page: colours follow the page's light and dark styles."""

from __future__ import annotations

import hashlib
import html
import io
import re
from collections.abc import Callable
from dataclasses import dataclass

import matplotlib
import numpy as np

matplotlib.use("svg")
from matplotlib import pyplot  # noqa: E402  (the backend comes first)

POINTS = 320  # of a line, before it is thinned
SERIES = 8  # colours that the page's style defines
# Placeholders, replaced by the page's variables: matplotlib knows no CSS.
INK, MUTED, GRID, SURFACE = "#010203", "#010204", "#010205", "#010206"
VARIABLES = {INK: "--ink", MUTED: "--muted", GRID: "--grid", SURFACE: "--surface"}
VARIABLES |= {f"#0102{16 + number:02x}": f"--series-{number + 1}" for number in range(SERIES)}
STYLE = {
    "svg.fonttype": "none", "svg.hashsalt": "trainsuite", "font.size": 9.5,
    "font.family": ["DejaVu Sans"], "axes.spines.top": False, "axes.spines.right": False,
    "axes.edgecolor": MUTED, "axes.labelcolor": INK, "axes.titlecolor": INK, "text.color": INK,
    "xtick.color": MUTED, "ytick.color": MUTED, "xtick.labelcolor": INK, "ytick.labelcolor": INK,
    "axes.grid": True, "axes.axisbelow": True, "grid.color": GRID, "grid.linewidth": 0.8,
    "axes.facecolor": "none", "figure.facecolor": "none", "legend.frameon": False,
    "legend.fontsize": 9, "lines.linewidth": 1.5, "axes.titlesize": 9.5, "path.simplify": True,
}
DASHES = ("solid", (0, (5, 2)), (0, (1, 1.5)), (0, (6, 2, 1, 2)))


@dataclass
class Plot:
    """An SVG figure with its caption and what it says to those who do not see it."""

    svg: str
    caption: str
    alt: str
    wide: bool = False


def color(number: int) -> str:
    """The placeholder of a series' colour."""
    return f"#0102{16 + number % SERIES:02x}"


def dash(number: int) -> object:
    """A line style, so that lines differ in more than colour."""
    return DASHES[number % len(DASHES)]


def draw(paint: Callable[[pyplot.Figure], None], height: float, name: str) -> str:
    """The SVG of what `paint` draws on a figure of that height in inches; ids begin with a hash
    of `name`."""
    with matplotlib.rc_context(STYLE):
        figure = pyplot.figure(figsize=(4.6, height), layout="constrained")
        try:
            paint(figure)
            text = io.StringIO()
            figure.savefig(text, format="svg", metadata={"Date": None, "Creator": None,
                                                         "Format": None, "Type": None})
        finally:
            pyplot.close(figure)
    return _inline(text.getvalue(), "p" + hashlib.sha256(name.encode()).hexdigest()[:8])


def _inline(svg: str, prefix: str) -> str:
    """From a file to an element: no header, no global style, own ids, colours by variable."""
    svg = svg[svg.index("<svg"):]
    svg = re.sub(r"<metadata>.*?</metadata>\s*", "", svg, flags=re.DOTALL)
    svg = re.sub(r"<style[^>]*>.*?</style>\s*", "", svg, flags=re.DOTALL)
    svg = re.sub(r"<!--.*?-->\s*", "", svg, flags=re.DOTALL)
    svg = re.sub(r'\bid="', f'id="{prefix}-', svg)
    svg = re.sub(r'(href="#|url\(#)', rf"\g<1>{prefix}-", svg)
    for placeholder, variable in VARIABLES.items():
        svg = svg.replace(placeholder, f"var({variable})")
    svg = re.sub(r"(font: [\d.]+px) 'DejaVu Sans'[^;\"]*", r"\g<1> var(--font)", svg)
    svg = re.sub(r'<svg ([^>]*?)height="[^"]*"', r"<svg \g<1>", svg, count=1)
    return re.sub(r'(<svg [^>]*?)width="[^"]*"', r"\g<1>", svg, count=1).rstrip()


@dataclass
class Thinned:
    """A series in bins: x is each bin's middle; where `size` is 1 nothing was thinned."""

    x: np.ndarray
    middle: np.ndarray
    low: np.ndarray
    high: np.ndarray
    size: int


def thin(values: np.ndarray, first: int = 1, points: int = POINTS) -> Thinned:
    """Median, least and most of bins of equal size; `first` is the number of the first value.
    Bins without a known value are NaN."""
    size = max(1, -(-len(values) // points))
    x = np.arange(first, first + len(values), dtype=float)
    if size == 1:
        return Thinned(x, values, values, values, 1)
    edges = range(0, len(values), size)

    def over(measure: Callable[[np.ndarray], float]) -> np.ndarray:
        parts = [values[edge:edge + size] for edge in edges]
        known = [part[~np.isnan(part)] for part in parts]
        return np.array([measure(part) if part.size else np.nan for part in known])

    return Thinned(np.array([x[edge:edge + size].mean() for edge in edges]), over(np.median),
                   over(np.min), over(np.max), size)


def thinned_words(size: int) -> str:
    """What the caption says about it."""
    return "" if size == 1 else f" Each point is the median of {size} steps, the shade reaches " \
                                "from the least to the most of them."


def plain_svg(svg: str, alt: str) -> str:
    """The element with its role and its text for those who do not see it."""
    return svg.replace("<svg ", f'<svg role="img" aria-label="{html.escape(alt)}" ', 1)
