"""The one look of every figure: palette, sizes, labels, and SVG that is the same bytes every time.

Colours are those of Okabe and Ito's set (told apart with the common colour blindnesses), darkened or
lightened so that each reads on white and on near-black. An arm keeps its colour in every figure: its place in
the plan. The first arm, which the others are compared with, is grey; offline references are dashed.
"""

from __future__ import annotations

import io
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import matplotlib as mpl
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.layout_engine import ConstrainedLayoutEngine
from matplotlib.lines import Line2D

from traces.errors import InputError, nearest

INK, MUTED, RULE = "#1c2024", "#5d6671", "#dde1e6"
PALETTE = ("#6b7480", "#0072b2", "#d55e00", "#00875f", "#a3528b", "#9a7300", "#3f6fd1")
PALETTE_DARK = ("#a4adb8", "#56b4e9", "#f5894a", "#2fc795", "#e39cca", "#e5b73b", "#8fb0ff")
MARKERS = ("o", "s", "^", "D", "v", "P", "X")
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


def seeds_note(counts: Sequence[int]) -> str:
    """Say how many seeds a figure rests on, where parts of it may have fewer.

    >>> seeds_note([1, 1]), seeds_note([5]), seeds_note([5, 4])
    ('1 seed', '5 seeds', '4 to 5 seeds')
    """
    low, high = min(counts, default=0), max(counts, default=0)
    if low < high:
        return f"{low} to {high} seeds"
    return "1 seed" if low == 1 else f"{low} seeds"


def shortened(label: str, most: int = 36) -> str:
    """Return a label of at most `most` characters, its end cut off.

    >>> shortened("s3_fifo(small_ratio=0.2)", 12)
    's3_fifo(smal…'
    """
    return label if len(label) <= most else label[:most] + "…"


def band_top(means: Sequence[Any], highs: Sequence[Any], limit: float = math.inf) -> float:
    """Return the top of a y axis from 0: bands are shown up to 1.6 times the largest mean, and to `limit`.

    means, highs: float64[points] a curve; a band of few seeds is wide and would flatten the curves.
    """
    top = max((float(v) for m in means for v in m if math.isfinite(v)), default=0.0)
    high = max((float(v) for h in highs for v in h if math.isfinite(v)), default=0.0)
    return min(max(1.08 * top, min(1.05 * high, 1.6 * top)), limit) or 1.0


def legend(figure: Figure, looks: Sequence[Look], *, markers: bool = False) -> None:
    """Put one legend above all panels, in plan order; markers: show those of the arms too."""
    handles = [
        Line2D(
            [], [], color=k.color, linestyle=k.dash, label=shortened(k.name, 60),
            marker=k.marker if markers else "",
            markersize=4, mfc="none" if k.offline else k.color,
        )
        for k in sorted(looks, key=lambda k: k.index)
    ]  # fmt: skip
    if handles:
        sizes = [len(str(h.get_label())) + 7 for h in handles]
        columns = len(handles) if sum(sizes) <= 110 else max(1, min(4, 110 // max(sizes)))
        figure.legend(handles=handles, loc="outside upper left", ncols=columns, handlelength=2.2)


def end_labels(ax: Any, ends: Sequence[tuple[Look, float, float]]) -> None:
    """Write each arm's name right of the end (x, y) of its curve, pushed apart where they would overlap.

    Call it once the axis limits are set. Mutates ax.
    """
    low, high = ax.get_ylim()
    height_points = (
        ax.figure.get_size_inches()[1] * 72 * 0.7 / max(ax.get_subplotspec().get_gridspec().nrows, 1)
    )
    gap = (high - low) * 9.5 / height_points
    places = spread([y for _, _, y in ends], gap, low, high)
    right = ax.get_xlim()[1]
    for (look, _, _), y in zip(ends, places, strict=True):
        ax.annotate(
            shortened(look.name), (right, y), (5, 0), textcoords="offset points", va="center",
            color=look.color, fontsize=7.5, annotation_clip=False,
        )  # fmt: skip


def spread(places: Sequence[float], gap: float, low: float, high: float) -> list[float]:
    """Return places at least `gap` apart, in the same order, moved as one block where they crowd, in bounds.

    >>> spread([1.0, 1.0, 5.0], 1.0, 0.0, 10.0)
    [0.5, 1.5, 5.0]
    """
    order = sorted(range(len(places)), key=lambda i: (places[i], i))

    def centre(wanted: float, n: int) -> float:
        return max(min(wanted, high - gap * (n - 1) / 2), low + gap * (n - 1) / 2)

    blocks: list[tuple[float, int]] = []  # (mean of the places wanted, members)
    for i in order:
        wanted, n = places[i], 1
        while blocks and centre(wanted, n) - centre(*blocks[-1]) < gap * (n + blocks[-1][1]) / 2:
            before, m = blocks.pop()
            wanted, n = (before * m + wanted * n) / (m + n), m + n
        blocks.append((wanted, n))
    slots = [centre(c, n) + gap * (k - (n - 1) / 2) for c, n in blocks for k in range(n)]
    out = [0.0] * len(places)
    for i, y in zip(order, slots, strict=True):
        out[i] = y
    return out


def save(figure: Figure, out: Path) -> Path:
    """Write the figure as .svg, .pdf or .png, the same bytes for the same figure; return `out`.

    Raises InputError for another suffix or a place that cannot be written.
    """
    kind = out.suffix.lstrip(".").lower()
    if kind not in FORMATS:
        raise InputError(f"{out}: {nearest(kind, FORMATS, what='figure format')}")
    buffer = io.BytesIO()
    with mpl.rc_context({"svg.fonttype": "path"}):
        figure.savefig(buffer, format=kind, metadata=_undated(kind), facecolor="white")
    try:
        out.write_bytes(buffer.getvalue())
    except OSError as e:
        raise InputError(f"{out}: {e.strerror}") from None
    return out


def inline_svg(figure: Figure, prefix: str, title: str) -> str:
    """Return the figure as an <svg> element whose colours are the page's CSS variables.

    prefix makes ids unique in the page. title is what a screen reader says; it is escaped here.
    """
    buffer = io.StringIO()
    figure.savefig(buffer, format="svg", metadata=_undated("svg"), transparent=True)
    text = buffer.getvalue()
    text = text[text.index("<svg") :].strip()
    text = re.sub(r"<metadata>.*?</metadata>\s*", "", text, flags=re.DOTALL)
    text = re.sub(r'\bid="', f'id="{prefix}-', text)
    text = re.sub(r"url\(#", f"url(#{prefix}-", text)
    text = re.sub(r'href="#', f'href="#{prefix}-', text)
    for color, variable in css_variables().items():
        text = text.replace(color, f"var({variable})")
    # The page's own font: matplotlib writes its family alone or, in other versions, within the shorthand.
    text = re.sub(r"font-family: [^;\"]*; ?", "", text)
    text = re.sub(r"font: ((?:bold |\d+ )?)([0-9.]+px) [^;\"]*", _font, text)
    width_height = re.compile(r'\s(?:width|height)="[0-9.]+pt"')
    head, rest = text.split(">", 1)
    label = title.replace("&", "&amp;").replace("<", "&lt;").replace('"', "&quot;")
    return f'{width_height.sub("", head)} role="img" aria-label="{label}">{rest}'


def _font(found: re.Match[str]) -> str:
    weight = found[1].strip()
    return (f"font-weight: {weight}; " if weight else "") + f"font-size: {found[2]}"


def css_variables() -> dict[str, str]:
    """Return the colours that `inline_svg` turns into CSS variables, hex to name."""
    names = {INK: "--ink", MUTED: "--muted", RULE: "--rule"}
    return names | {color: f"--arm{i}" for i, color in enumerate(PALETTE)}


def _undated(kind: str) -> dict[str, None]:
    if kind == "svg":
        return {"Date": None, "Creator": None}
    if kind == "pdf":
        return {"CreationDate": None, "Creator": None, "Producer": None}
    return {"Software": None}
