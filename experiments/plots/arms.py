"""Arms against the first arm: the change in every metric of the table, with its 95 % paired interval."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from experiments.columns import shown
from experiments.plots.labels import legend
from experiments.plots.style import MUTED, PAGE_INCHES, Axes, Look, grow, seeds_note

TITLE = "Change against the first arm"
MOSAIC = (("points", "lower"), ("higher", "lower"))
RATIOS = {"height_ratios": (2.0, 1.1), "width_ratios": (1.0, 1.25)}
SIZE = (PAGE_INCHES, 3.3)
CAPTION = "Mean change over paired seeds and its 95 % interval; the arrow points to the better side."


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
    """Draw hit rates in points, and times and rates in percent. Mutates axes."""
    units = {"points": "percentage points", "lower": "%", "higher": "%"}
    for panel, rows in data.rows.items():
        arrow = "← better" if panel == "lower" else "better →"
        _panel(axes[panel], rows, f"change ({units[panel]}), {seeds_note(data.seeds)}; {arrow}")
    most = max((len(marks) for rows in data.rows.values() for _, marks in rows), default=0)
    grow(axes["points"].figure, 0.35 * (most - 3))
    found = {m.look.index: m.look for rows in data.rows.values() for _, marks in rows for m in marks}
    axes["points"].set_title(f"against {data.baseline}", fontweight="normal")
    legend(axes["points"].figure, list(found.values()), markers=True)


def _panel(ax: Any, rows: list[tuple[str, list[Mark]]], xlabel: str) -> None:
    ax.axvline(0, color=MUTED, linewidth=0.8)
    ax.grid(False, axis="y")
    reach = [0.0]
    for row, (_, marks) in enumerate(rows):
        for k, mark in enumerate(marks):
            y = row + 0.62 * ((k + 0.5) / len(marks) - 0.5)
            if mark.low is not None and mark.high is not None:
                ax.plot([mark.low, mark.high], [y, y], color=mark.look.color, linewidth=1.6)
                reach += [mark.low, mark.high]
            hollow = "none" if mark.look.offline else mark.look.color
            ax.plot([mark.mean], [y], mark.look.marker, color=mark.look.color, markersize=4, mfc=hollow)
            reach.append(mark.mean)
    ax.set_yticks(range(len(rows)), [label for label, _ in rows])
    ax.tick_params(axis="y", length=0)
    ax.set_ylim(max(len(rows), 1) - 0.5, -0.5)
    low, high = min(0.0, *reach), max(0.0, *reach)
    margin = 0.08 * (high - low) or 1.0
    ax.set_xlim(low - margin, high + margin)
    ax.spines["left"].set_visible(False)
    ax.set_xlabel(xlabel)
