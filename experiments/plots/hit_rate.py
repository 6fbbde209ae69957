"""Prefix-cache hit rate over time: how the cache warms up, and where the arms part."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from experiments.plots.labels import end_labels
from experiments.plots.source import NS_PER_S, ArmRuns, Float, n_seeds, over_seeds, shared_edges_ns, time_unit
from experiments.plots.style import PAGE_INCHES, Axes, Look, band_top, seeds_note
from traces.series import SERIES

TITLE = "GPU hit rate over time"
MOSAIC = (("rate",),)
SIZE = (PAGE_INCHES, 2.5)
CAPTION = (
    "Share of prompt tokens found in GPU memory, by the time a request was first scheduled. "
    "Line: mean over seeds; band: 95 % interval. Time ends with the shortest run; a gap means that in some "
    "run no request was scheduled then."
)
REQUESTS_PER_BIN = 40


@dataclass(frozen=True)
class Data:
    """Hit rates by time.

    mid_s   float64[bins], centres of the bins
    curves  (look, mean, low, high) an arm; shares, float64[bins], NaN where there is none
    """

    mid_s: Float
    curves: list[tuple[Look, Float, Float, Float]]
    seeds: tuple[int, ...]


def data(arms: Sequence[ArmRuns]) -> Data:
    """Bin hit and prompt tokens by admission time; bins hold about `REQUESTS_PER_BIN` requests a run."""
    rows = min((run.rows("requests") for arm in arms for run in arm.runs), default=0)
    edges = shared_edges_ns(arms, bins=int(np.clip(rows // REQUESTS_PER_BIN, 6, 60)))
    _, rate = SERIES["gpu_hit_rate"]
    curves = [(arm.look, *over_seeds(np.array([rate(run, edges) for run in arm.runs]))) for arm in arms]
    return Data((edges[:-1] + edges[1:]) / 2 / NS_PER_S, curves, n_seeds(arms))


def draw(data: Data, axes: Axes) -> None:
    """Draw onto the panel `rate`. Mutates axes."""
    ax = axes["rate"]
    last = max(
        (int(np.flatnonzero(np.isfinite(m))[-1]) for _, m, *_ in data.curves if np.isfinite(m).any()),
        default=0,
    )
    end_s = float(data.mid_s[last] + data.mid_s[0])
    scale, unit = time_unit(end_s)
    x = data.mid_s / scale
    ends = []
    for look, mean, low, high in data.curves:
        ax.fill_between(x, 100 * low, 100 * high, color=look.color, alpha=0.16, linewidth=0)
        ax.plot(x, 100 * mean, color=look.color, linestyle=look.dash)
        known = np.flatnonzero(np.isfinite(mean))
        if len(known):
            ends.append((look, float(x[known[-1]]), 100 * float(mean[known[-1]])))
    ax.set_xlim(0, end_s / scale)
    ax.set_ylim(0, 100 * band_top([c[1] for c in data.curves], [c[3] for c in data.curves], 1.0))
    ax.set_xlabel(f"time since start ({unit})")
    ax.set_ylabel(f"hit rate (% of prompt tokens)\n{seeds_note(data.seeds)}")
    end_labels(ax, ends)
