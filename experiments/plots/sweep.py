"""Metrics against a swept option, one curve an arm."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from matplotlib.ticker import FixedLocator, FuncFormatter, NullLocator

from experiments.columns import Column, by_key, shown
from experiments.plots.labels import legend
from experiments.plots.source import Float
from experiments.plots.style import PAGE_INCHES, Axes, Look, band_top, seeds_note

TITLE = "Metrics against the swept option"
KEYS = (
    "gpu_hit_rate", "ttft_ms_p99", "itl_ms_p99", "workflow_latency_s_mean", "workflow_latency_s_p99",
    "slo_goodput",
)  # fmt: skip
# Where candidates are filled, the same panels show what that costs and gains.
FILL_KEYS = (
    "workflow_latency_s_mean", "workflow_latency_s_p99", "promoted_stages", "fills", "fill_gpu_s",
    "fill_discarded_share",
)  # fmt: skip
MOSAIC = (KEYS[:3], KEYS[3:])  # the panels, by the metrics that they usually show
SIZE = (PAGE_INCHES, 4.2)
CAPTION = "Mean over seeds; band: 95 % interval of the mean (not of the difference between arms)."


@dataclass(frozen=True)
class Data:
    """Curves over one axis.

    axis    the swept option; values: its values in order; fixed: what the other axes are at
    curves  metric -> (look, mean, low, high) an arm; display units, float64[values], NaN where there is none
    """

    axis: str
    values: list[Any]
    fixed: dict[str, Any]
    curves: dict[str, list[tuple[Look, Float, Float, Float]]]
    seeds: tuple[int, ...]

    @property
    def numeric(self) -> bool:
        """Whether the axis holds distinct numbers, so that distances on it mean something."""
        kinds = (isinstance(v, int | float) and not isinstance(v, bool) for v in self.values)
        return all(kinds) and len(set(self.values)) == len(self.values)


def axis_of(groups: Sequence[Mapping[str, Any]]) -> str | None:
    """Return the axis with the most values, the first of several; None where nothing is swept."""
    names = list(groups[0]["axes"]) if groups else []
    counts = {name: len({str(g["axes"][name]) for g in groups}) for name in names}
    swept = [name for name in names if counts[name] > 1]
    return max(swept, key=lambda n: counts[n]) if swept else None


def slices(groups: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Return the points of the other axes, in order: one figure each; `[{}]` with a single axis."""
    axis = axis_of(groups)
    out: list[dict[str, Any]] = []
    for group in groups:
        rest = {k: v for k, v in group["axes"].items() if k != axis}
        if rest not in out:
            out.append(rest)
    return out


def data(
    groups: Sequence[Mapping[str, Any]],
    looks: Mapping[str, Look],
    fixed: Mapping[str, Any] | None = None,
    window: str = "full",
) -> Data:
    """Read the groups of a summary whose other axes are at `fixed` (None: the first slice).

    Raises ValueError where nothing is swept.
    """
    axis = axis_of(groups)
    if axis is None:
        raise ValueError("the summary has no axis")
    rest = slices(groups)[0] if fixed is None else dict(fixed)
    chosen = [g for g in groups if {k: v for k, v in g["axes"].items() if k != axis} == rest]
    values = [g["axes"][axis] for g in chosen]
    if all(isinstance(v, int | float) for v in values):
        chosen = [g for _, g in sorted(zip(values, chosen, strict=True), key=lambda x: x[0])]
        values = sorted(values)
    by_arm = [{a["name"]: a for a in g["arms"]} for g in chosen]
    names = [n for n in looks if any(n in arms for arms in by_arm)]
    everyone = [a for arms in by_arm for a in arms.values()]
    keys = FILL_KEYS if any(c.key == "fills" for c in shown(everyone, window)) else KEYS
    curves = {key: [_curve(key, n, by_arm, looks[n], window) for n in names] for key in keys}
    seeds = tuple(len(a["seeds"]) for arms in by_arm for a in arms.values() if a["seeds"])
    return Data(axis, values, rest, curves, seeds)


def draw(data: Data, axes: Axes) -> None:
    """Draw one panel a metric. Mutates axes."""
    x = np.array([float(v) for v in data.values]) if data.numeric else np.arange(float(len(data.values)))
    log = data.numeric and x[0] > 0 and x[-1] / x[0] >= 8
    for panel, (key, curves) in zip(KEYS, data.curves.items(), strict=True):
        ax, column = axes[panel], by_key(key)
        top = band_top(
            [c[1] for c in curves], [c[3] for c in curves], 100.0 if column.unit == "%" else math.inf
        )
        # Milliseconds in the tens of thousands are read as seconds.
        factor, unit = (0.001, "s") if column.unit == "ms" and top >= 10_000 else (1.0, column.unit)
        for look, mean, low, high in curves:
            ax.fill_between(x, factor * low, factor * high, color=look.color, alpha=0.13, linewidth=0)
            ax.plot(
                x, factor * mean, color=look.color, linestyle=look.dash, marker=look.marker, markersize=3.5,
                mfc="none" if look.offline else look.color,
            )  # fmt: skip
        ax.set_title(f"{column.label} ({unit})" if unit else column.label, fontweight="normal")
        if log:
            ax.set_xscale("log")
        ax.xaxis.set_major_locator(FixedLocator(x.tolist()))
        ax.xaxis.set_minor_locator(NullLocator())
        ax.xaxis.set_major_formatter(FuncFormatter(_tick(x, data.values)))
        ax.set_ylim(0, factor * top)
    for key in KEYS[3:]:
        axes[key].set_xlabel(data.axis)
    axes[KEYS[0]].set_ylabel(seeds_note(data.seeds))
    axes[KEYS[3]].set_ylabel(seeds_note(data.seeds))
    first = next(iter(data.curves.values()))
    legend(axes[KEYS[0]].figure, [look for look, *_ in first], markers=True)


def _curve(
    key: str, name: str, by_arm: Sequence[Mapping[str, Any]], look: Look, window: str
) -> tuple[Look, Float, Float, Float]:
    column: Column = by_key(key)
    metrics = [(a[name]["windows"][window]["metrics"][key] if name in a else None) or {} for a in by_arm]
    mean, low, high = (
        np.array([np.nan if m.get(part) is None else column.scale * m[part] for m in metrics])
        for part in ("mean", "low", "high")
    )
    return look, mean, low, high


def _tick(x: Float, values: Sequence[Any]) -> Any:
    def text(at: float, _: int) -> str:
        nearest = int(np.argmin(np.abs(x - at)))
        return str(values[nearest]) if np.isclose(x[nearest], at) else ""

    return text
