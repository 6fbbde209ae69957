"""Goodput against the first arm, over the swept option: a panel for each of the first two points of the other axes."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from experiments.plan import Plan
from experiments.plots.labels import legend
from experiments.plots.source import Float, arm_name, looks
from experiments.plots.style import MUTED, PAGE_INCHES, Axes, Look, band_top, seeds_note
from experiments.plots.sweep import axis_of
from experiments.stats import paired_percent
from experiments.store import Store
from traces.metrics import generated_tokens
from traces.runlog import read_run
from traces.windows import full_window

TITLE = "Goodput against the first arm"
MOSAIC = (("left", "right"),)
SIZE = (PAGE_INCHES, 2.7)
CAPTION = "Generated tokens a second over the first arm's with the same seed; band or bar: 95 % interval over seeds."


@dataclass(frozen=True)
class Data:
    """axis: the swept option; values: its values. panels: (title, (look, mean, low, high) an arm), float64[values]."""

    axis: str
    values: list[Any]
    panels: list[tuple[str, list[tuple[Look, Float, Float, Float]]]]
    seeds: tuple[int, ...]


def data(plan: Plan, store: Store) -> Data:
    """Read the goodput of every run. Raises ValueError where nothing is swept or there is no second arm."""
    points = [{"axes": p} for p in plan.axis_points()]
    axis = axis_of(points)
    if axis is None or len(looks(plan)) < 2:
        raise ValueError("nothing is swept, or there is nothing to compare")
    goodput = {arm.label: _by_seed(plan, store, arm.label) for arm in plan.arms}
    values = list(dict.fromkeys(p["axes"][axis] for p in points))
    if all(isinstance(v, int | float) for v in values):
        values.sort()
    rest = [
        dict(t)
        for t in dict.fromkeys(tuple((k, v) for k, v in p["axes"].items() if k != axis) for p in points)
    ]
    names = list(looks(plan))
    panels = []
    counts: list[int] = []
    for fixed in rest[:2]:
        curves = []
        for name in names[1:]:
            rows = []
            for value in values:
                at = {**fixed, axis: value}
                found = {arm_name(a): goodput[a.label] for a in plan.arms if a.axes == at}
                change = paired_percent(found.get(names[0], {}), found.get(name, {}))
                rows.append(
                    (math.nan, math.nan, math.nan)
                    if change is None
                    else tuple(
                        math.nan if x is None else 1 + x / 100 for x in (change.mean, change.low, change.high)
                    )
                )
                if change is not None:
                    counts.append(change.n)
            mean, low, high = np.array(rows, dtype=np.float64).T
            curves.append((looks(plan)[name], mean, low, high))
        panels.append((", ".join(f"{k}={v}" for k, v in fixed.items()), curves))
    return Data(axis, values, panels, tuple(counts))


def _by_seed(plan: Plan, store: Store, label: str) -> Mapping[int, float]:
    out = {}
    for seed in sorted(plan.seeds):
        run = plan.runs.get((label, seed), "")
        if run and store.has(run):
            log = read_run(store.run_dir(run))
            out[seed] = generated_tokens(log) / max(full_window(log).seconds, 1e-12)
    return out


def draw(data: Data, axes: Axes) -> None:
    """Draw the panels; an axis of numbers is logarithmic where it spans a decade. Mutates axes."""
    numeric = all(isinstance(v, int | float) and not isinstance(v, bool) for v in data.values)
    x = np.array(data.values, dtype=np.float64) if numeric else np.arange(float(len(data.values)))
    curves = [c for _, panel in data.panels for c in panel]
    top = band_top([c[1] for c in curves], [c[3] for c in curves])
    for name in ("left", "right"):
        axes[name].set_visible(False)
    for name, (title, panel) in zip(("left", "right"), data.panels, strict=False):
        ax = axes[name]
        ax.set_visible(True)
        ax.axhline(1.0, color=MUTED, linewidth=0.8)
        for k, (look, mean, low, high) in enumerate(panel):
            shift = 0.0 if numeric else 0.7 * ((k + 0.5) / len(panel) - 0.5)
            if numeric:
                ax.fill_between(x, low, high, color=look.color, alpha=0.13, linewidth=0)
            else:
                ax.vlines(x + shift, low, high, color=look.color, linewidth=1.4)
            ax.plot(
                x + shift, mean, color=look.color, linestyle=look.dash if numeric else "", marker=look.marker,
                markersize=3.5,
            )  # fmt: skip
        if numeric and len(x) and x[0] > 0 and x[-1] / x[0] >= 8:
            ax.set_xscale("log")
        ax.set_xticks(x, [str(v) for v in data.values])
        ax.minorticks_off()
        ax.set_ylim(0, top)
        ax.set_xlabel(data.axis)
        ax.set_title(title, fontweight="normal")
    axes["left"].set_ylabel(f"speedup ({seeds_note(data.seeds)})")
    legend(axes["left"].figure, _looks(data.panels), markers=True)


def _looks(panels: Sequence[tuple[str, list[tuple[Look, Float, Float, Float]]]]) -> list[Look]:
    return [look for look, *_ in panels[0][1]] if panels else []
