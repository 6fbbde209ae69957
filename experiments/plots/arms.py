"""Arms against the first arm: the change in every metric of the table, with its 95 % paired interval."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any

from experiments.columns import shown
from experiments.plots.labels import legend, shortened
from experiments.plots.style import MUTED, PAGE_INCHES, RULE, Axes, Look, grow, seeds_note

TITLE = "Change against the first arm"
MOSAIC = (("points", "lower"), ("higher", "lower"))
RATIOS = {"width_ratios": (1.0, 1.2)}
SIZE = (PAGE_INCHES, 3.2)
CAPTION = (
    "Mean change over paired seeds and its 95 % interval, of shares in percentage points; the arrow points to the "
    "better side. An interval that ends in a small triangle goes on beyond the panel; the table has its bounds."
)
# Inches of one mark, of a row at least, of an axis with its caption, and of what is above the panels.
MARK, ROW, AXIS, HEAD = 0.085, 0.3, 0.5, 0.45


@dataclass(frozen=True)
class Mark:
    """One arm's change in one metric; low and high are None with one seed."""

    look: Look
    mean: float
    low: float | None
    high: float | None


@dataclass(frozen=True)
class Data:
    """rows: panel -> (metric label, marks) in table order. baseline: name of the first arm."""

    rows: dict[str, list[tuple[str, list[Mark]]]]
    baseline: str
    seeds: tuple[int, ...]


def data(group: Mapping[str, Any], looks: Mapping[str, Look], window: str = "full") -> Data:
    """Read one group of the summary; metrics that no arm has a change for are left out."""
    rows: dict[str, list[tuple[str, list[Mark]]]] = {"points": [], "lower": [], "higher": []}
    seeds: list[int] = []
    for column in shown(group["arms"], window):
        if column.change == "plain":
            continue
        marks = []
        for arm in group["arms"][1:]:
            change = arm["windows"][window]["change"].get(column.key)
            if change is not None:
                marks.append(Mark(looks[arm["name"]], change["mean"], change["low"], change["high"]))
                seeds.append(change["n"])
        if marks:
            rows["points" if column.change == "points" else column.better].append((column.label, marks))
    return Data(rows, group["arms"][0]["name"], tuple(seeds))


def draw(data: Data, axes: Axes) -> None:
    """Draw hit rates in points, and times and rates in percent. Mutates axes, and the figure's height by its rows."""
    units = {"points": "points", "lower": "%", "higher": "%"}
    for panel, rows in data.rows.items():
        arrow = "← better" if panel == "lower" else "better →"
        _panel(axes[panel], rows, f"change in {units[panel]}, {arrow}")
    figure = axes["points"].figure
    most = max((len(marks) for rows in data.rows.values() for _, marks in rows), default=0)
    points, higher, lower = (
        AXIS + max(ROW, MARK * (most + 1)) * max(len(data.rows[panel]), 1)
        for panel in ("points", "higher", "lower")
    )
    axes["points"].get_gridspec().set_height_ratios((points, higher))
    grow(figure, HEAD + max(points + higher, lower) - SIZE[1])
    against = f"against {shortened(data.baseline, 60)}, {seeds_note(data.seeds)}"
    axes["points"].set_title(against, fontweight="normal")
    found = {m.look.index: m.look for rows in data.rows.values() for _, marks in rows for m in marks}
    legend(figure, list(found.values()), markers=True)


def reach(marks: Sequence[Mark]) -> tuple[float, float]:
    """Return the ends of a panel's axis; 0 and all means are within.

    Intervals are cut where they would flatten the rest: a change of few seeds may be known to a factor of a thousand.
    """
    ends = [end for m in marks for end in (m.low, m.high) if end is not None]
    means = [0.0, *(m.mean for m in marks)]
    most = max(3 * max(map(abs, means)), 1.5 * median(map(abs, ends)) if ends else 0.0)
    seen = [*means, *(max(-most, min(end, most)) for end in ends)]
    low, high = min(seen), max(seen)
    margin = 0.08 * (high - low) or 1.0
    return low - margin, high + margin


def _panel(ax: Any, rows: list[tuple[str, list[Mark]]], xlabel: str) -> None:
    ax.axvline(0, color=MUTED, linewidth=0.8)
    ax.grid(False, axis="y")
    left, right = reach([m for _, marks in rows for m in marks])
    ax.set_xlim(left, right)
    for row, (_, marks) in enumerate(rows):
        if row:
            ax.axhline(row - 0.5, color=RULE, linewidth=0.6)
        for k, mark in enumerate(marks):
            y = row + 0.8 * ((k + 0.5) / len(marks) - 0.5)
            color = mark.look.color
            if mark.low is not None and mark.high is not None:
                ax.plot([max(mark.low, left), min(mark.high, right)], [y, y], color=color, linewidth=1.6)
                if mark.low < left:
                    ax.plot([left], [y], "<", color=color, markersize=3.5, clip_on=False)
                if mark.high > right:
                    ax.plot([right], [y], ">", color=color, markersize=3.5, clip_on=False)
            hollow = "none" if mark.look.offline else color
            ax.plot([mark.mean], [y], mark.look.marker, color=color, markersize=4, mfc=hollow)
    ax.set_yticks(range(len(rows)), [label for label, _ in rows])
    ax.tick_params(axis="y", length=0)
    ax.set_ylim(max(len(rows), 1) - 0.5, -0.5)
    ax.spines["left"].set_visible(False)
    ax.set_xlabel(xlabel)
