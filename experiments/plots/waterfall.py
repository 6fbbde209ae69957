"""Where the time that early fill could hide is lost: one bar a workload and load, in parts of what could be hidden."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from experiments.plots.style import MUTED, PAGE_INCHES, PALETTE, Axes
from experiments.stats import mean_interval

TITLE = "Where the overlap goes"
MOSAIC = (("bars",),)
PARTS = ("hidden", "contention", "late", "unfilled", "argument", "uncovered", "reused")
_SAID = {
    "hidden": "hidden",
    "contention": "contention",
    "late": "late",
    "unfilled": "not filled",
    "argument": "other arguments",
    "uncovered": "not named",
    "reused": "reused first",
}
_COLOURS = (PALETTE[3], PALETTE[2], PALETTE[5], PALETTE[1], PALETTE[4], PALETTE[0], PALETTE[8])


class Parts(Protocol):
    """A waterfall of one seed: seconds a workflow under the names of PARTS, which add up to `overlap`."""

    @property
    def overlap(self) -> float:
        """What could be hidden at most."""
        ...


@dataclass(frozen=True)
class Data:
    """Means over seeds, one a bar. parts: part -> percent of the overlap; overlap: s a workflow."""

    names: tuple[str, ...]
    parts: dict[str, tuple[float, ...]]
    overlap: tuple[float, ...]


def size(bars: int) -> tuple[float, float]:
    """Return the figure's size in inches."""
    return PAGE_INCHES, 0.9 + 0.24 * bars


def data(rows: Sequence[tuple[str, Sequence[Parts]]]) -> Data:
    """Return the means over seeds; rows: (name, waterfalls by seed)."""
    overlap = tuple(_mean([w.overlap for w in found]) for _, found in rows)
    parts = {
        part: tuple(
            100 * _mean([getattr(w, part) for w in found]) / total if total else 0.0
            for (_, found), total in zip(rows, overlap, strict=True)
        )
        for part in PARTS
    }
    return Data(tuple(name for name, _ in rows), parts, overlap)


def draw(data: Data, axes: Axes) -> None:
    """Draw stacked bars; what is below 0 goes to the left. Mutates axes."""
    ax = axes["bars"]
    y = list(range(len(data.names)))
    right, left = [0.0] * len(y), [0.0] * len(y)
    for part, colour in zip(PARTS, _COLOURS, strict=True):
        values = data.parts[part]
        starts = [right[i] if v >= 0 else left[i] for i, v in enumerate(values)]
        ax.barh(y, values, left=starts, height=0.7, color=colour, label=_SAID[part])
        for i, v in enumerate(values):
            if v >= 0:
                right[i] += v
            else:
                left[i] += v
    for i, seconds in enumerate(data.overlap):
        ax.text(right[i] + 1, i, f"{seconds:.2f} s", va="center", fontsize=7, color=MUTED)
    ax.axvline(0, color=MUTED, linewidth=0.8)
    ax.set_yticks(y, data.names)
    ax.set_ylim(len(y) - 0.5, -0.5)
    ax.grid(False, axis="y")
    ax.set_xlim(min(0.0, *left) * 1.05, max(100.0, *right) + 9)
    ax.set_xlabel("% of what could be hidden (s a workflow at the right)")
    ax.figure.legend(loc="outside upper left", ncols=len(PARTS), handlelength=1, columnspacing=1)


def _mean(values: Sequence[float]) -> float:
    found = mean_interval(list(values))
    assert found is not None
    return found.mean
