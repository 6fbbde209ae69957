"""Who is who in a figure: legends, and names at the ends of curves."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from experiments.plots.style import Look, grow


def legend(figure: Figure, looks: Sequence[Look], *, markers: bool = False) -> None:
    """Put one legend above all panels, in plan order, the figure growing by its rows.

    markers: show those of the arms too. Mutates figure.
    """
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
        grow(figure, 0.17 * (math.ceil(len(handles) / columns) - 1))
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


def shortened(label: str, most: int = 36) -> str:
    """Return a label of at most `most` characters, its end cut off.

    >>> shortened("s3_fifo(small_ratio=0.2)", 12)
    's3_fifo(smal…'
    """
    return label if len(label) <= most else label[:most] + "…"


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
