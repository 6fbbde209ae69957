"""The one look of every figure: palette, sizes, labels, and SVG that is the same bytes every time.

Colours are those of Okabe and Ito's set (told apart with the common colour blindnesses), darkened or
lightened so that each reads on white and on near-black. An arm keeps its colour in every figure: its place in
the plan. The first arm, which the others are compared with, is grey; offline references are dashed.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import matplotlib as mpl
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.layout_engine import ConstrainedLayoutEngine

INK, MUTED, RULE = "#1c2024", "#5d6671", "#dde1e6"
PALETTE = (
    "#6b7480", "#0072b2", "#d55e00", "#00875f", "#a3528b", "#9a7300", "#3f6fd1", "#8a5a35", "#0d8494",
)  # fmt: skip
PALETTE_DARK = (
    "#a4adb8", "#56b4e9", "#f5894a", "#2fc795", "#e39cca", "#e5b73b", "#8fb0ff", "#cf9f73", "#4fd0e0",
)  # fmt: skip
MARKERS = ("o", "s", "^", "D", "v", "P", "X", "p", "h")
COLUMN_INCHES, PAGE_INCHES = 3.4, 7.0
Axes = Mapping[str, Any]  # panel name -> matplotlib Axes
FORMATS = ("svg", "pdf", "png")

_RC: Any = {
    "text.parse_math": False,  # labels come from users and may hold a dollar sign
    "font.family": "sans-serif",
    "font.sans-serif": ["DejaVu Sans"],
    "font.size": 8.0,
    "axes.titlesize": 8.5,
    "axes.titleweight": "bold",
    "axes.titlelocation": "left",
    "axes.titlepad": 6.0,
    "axes.labelsize": 8.0,
    "axes.edgecolor": MUTED,
    "axes.labelcolor": MUTED,
    "axes.titlecolor": INK,
    "axes.linewidth": 0.6,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "axes.axisbelow": True,
    "axes.facecolor": "none",
    "grid.color": RULE,
    "grid.linewidth": 0.6,
    "text.color": INK,
    "xtick.color": MUTED,
    "ytick.color": MUTED,
    "xtick.labelsize": 7.5,
    "ytick.labelsize": 7.5,
    "xtick.major.width": 0.6,
    "ytick.major.width": 0.6,
    "xtick.minor.visible": False,
    "ytick.minor.visible": False,
    "lines.linewidth": 1.4,
    "lines.solid_capstyle": "round",
    "legend.frameon": False,
    "legend.fontsize": 7.5,
    "svg.hashsalt": "foreserve",
    "svg.fonttype": "none",
    "pdf.fonttype": 42,
    "figure.dpi": 100,
    "savefig.dpi": 220,
}


@dataclass(frozen=True)
class Look:
    """How one arm is drawn everywhere: `index` is its place in the plan."""

    label: str
    index: int
    offline: bool = False

    @property
    def color(self) -> str:
        """The arm's colour, as light-background hex."""
        return PALETTE[self.index % len(PALETTE)]

    @property
    def marker(self) -> str:
        """The arm's marker, which also tells arms apart in greyscale."""
        return MARKERS[self.index % len(MARKERS)]

    @property
    def dash(self) -> Any:
        """Line style: dashed for offline references, dotted once the palette has been through."""
        if self.offline:
            return (0, (4, 2))
        return "-" if self.index < len(PALETTE) else (0, (1, 1.2))

    @property
    def name(self) -> str:
        """The label as shown."""
        return self.label + (" (offline reference)" if self.offline else "")


def context() -> Any:
    """Return the context manager under which every figure is made and saved."""
    return mpl.rc_context(_RC)


def panels(mosaic: Sequence[Sequence[str]], size: tuple[float, float], **ratios: Any) -> tuple[Figure, Axes]:
    """Return a figure of `size` inches and its axes by name; call within `context()`.

    mosaic: rows of panel names, as for `Figure.subplot_mosaic`; ratios: its width_ratios and height_ratios.
    """
    figure = Figure(figsize=size, layout=ConstrainedLayoutEngine(wspace=0.04, hspace=0.04))
    FigureCanvasAgg(figure)
    return figure, figure.subplot_mosaic([list(row) for row in mosaic], **ratios)


def grow(figure: Figure, inches: float) -> None:
    """Make the figure higher. Mutates it."""
    width, height = figure.get_size_inches()
    figure.set_size_inches(width, height + max(inches, 0.0))


def seeds_note(counts: Sequence[int]) -> str:
    """Say how many seeds a figure rests on, where parts of it may have fewer.

    >>> seeds_note([1, 1]), seeds_note([5]), seeds_note([5, 4])
    ('1 seed', '5 seeds', '4 to 5 seeds')
    """
    low, high = min(counts, default=0), max(counts, default=0)
    if low < high:
        return f"{low} to {high} seeds"
    return "1 seed" if low == 1 else f"{low} seeds"


def band_top(means: Sequence[Any], highs: Sequence[Any], limit: float = math.inf) -> float:
    """Return the top of a y axis from 0: bands are shown up to 1.6 times the largest mean, and to `limit`.

    means, highs: float64[points] a curve; a band of few seeds is wide and would flatten the curves.
    """
    top = max((float(v) for m in means for v in m if math.isfinite(v)), default=0.0)
    high = max((float(v) for h in highs for v in h if math.isfinite(v)), default=0.0)
    return min(max(1.08 * top, min(1.05 * high, 1.6 * top)), limit) or 1.0
