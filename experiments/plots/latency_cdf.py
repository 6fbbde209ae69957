"""Latency distributions: time to first token, and the whole workflow."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from matplotlib.ticker import FuncFormatter, LogLocator, NullLocator

from experiments.plots.labels import legend
from experiments.plots.source import ArmRuns, Float, n_seeds
from experiments.plots.style import MUTED, PAGE_INCHES, Axes, Look, seeds_note
from traces.metrics import ttft_ms, workflow_latency_s
from traces.runlog import RunLog

TITLE = "Latency distributions"
MOSAIC = (("time to first token", "workflow latency"),)
SIZE = (PAGE_INCHES, 2.7)
CAPTION = (
    "Share of requests (left) and of finished workflows (right) that took at most this long, all seeds "
    "pooled. Dotted: median and 99th percentile."
)
SHARES: Float = np.unique(np.concatenate([np.linspace(0, 1, 161), np.linspace(0.95, 1, 51)]))


def _ttft_s(run: RunLog) -> Float:
    return ttft_ms(run) / 1000


_READERS: dict[str, Callable[[RunLog], Float]] = {
    "time to first token": _ttft_s,
    "workflow latency": workflow_latency_s,
}


@dataclass(frozen=True)
class Data:
    """curves: panel -> (look, latency_s float64[len(SHARES)] ascending, samples pooled) an arm."""

    curves: dict[str, list[tuple[Look, Float, int]]]
    seeds: tuple[int, ...]


def data(arms: Sequence[ArmRuns]) -> Data:
    """Pool the samples of all seeds, keep their quantiles at SHARES; an arm without samples is left out."""
    curves: dict[str, list[tuple[Look, Float, int]]] = {}
    for panel, read in _READERS.items():
        curves[panel] = []
        for arm in arms:
            pooled = np.concatenate([read(run) for run in arm.runs])
            if len(pooled):
                quantiles = np.quantile(pooled, SHARES, method="inverted_cdf")
                curves[panel].append((arm.look, quantiles, len(pooled)))
    return Data(curves, n_seeds(arms))


def draw(data: Data, axes: Axes) -> None:
    """Draw one panel a latency. Mutates axes."""
    for panel, curves in data.curves.items():
        _panel(axes[panel], panel, curves)
    first = axes["time to first token"]
    first.set_ylabel(f"share at or below (%), {seeds_note(data.seeds)}")
    legend(first.figure, [look for look, _, _ in data.curves["time to first token"]])


def _panel(ax: Any, name: str, curves: list[tuple[Look, Float, int]]) -> None:
    ax.grid(False, axis="y")
    for share in (50, 99):
        ax.axhline(share, color=MUTED, linewidth=0.6, linestyle=(0, (1, 2)))
    ends = []
    for look, latency_s, _ in curves:
        # a latency of zero has no place on a log axis: the curve starts at the first positive one
        shown = latency_s > 0
        ax.plot(latency_s[shown], 100 * SHARES[shown], color=look.color, linestyle=look.dash)
        ends += [float(x) for x in latency_s[shown & (SHARES >= 0.005)][[0, -1]] if shown.any()]
    ax.set_xscale("log")
    low, high = min(ends, default=1.0), max(ends, default=10.0)
    ax.set_xlim(low * 0.9, max(high * 1.1, low * 2))
    ax.xaxis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0) if high / low < 100 else (1.0,)))
    ax.xaxis.set_major_formatter(FuncFormatter(lambda v, _: f"{v:g}"))
    ax.xaxis.set_minor_locator(NullLocator())
    ax.set_ylim(0, 101)
    ax.set_yticks([0, 25, 50, 75, 99])
    ax.set_xlabel(f"{name} (s, log scale)")
