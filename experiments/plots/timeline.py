"""A run's hit rate over time with its phases: when memory fills, when the first workflows end, when the pool drains."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from experiments.plots.labels import legend
from experiments.plots.source import NS_PER_S, ArmRuns, Float, n_seeds, time_unit
from experiments.plots.style import PAGE_INCHES, Axes, Look, seeds_note
from traces.runlog import RunLog
from traces.series import SERIES
from traces.tables import CACHE_EVENTS
from traces.windows import full_window

TITLE = "Hit rate over a run, with its phases"
MOSAIC = (("rate",),)
SIZE = (PAGE_INCHES, 2.9)
CAPTION = (
    "GPU hit rate by the time a request was first scheduled, mean over seeds. Vertical lines, means over the "
    "runs of the first arm: the first eviction from GPU memory, the first workflow that ends, the last that starts."
)
BINS = 48
PHASES = ("first eviction", "first workflow ends", "last workflow starts")


@dataclass(frozen=True)
class Data:
    """Hit rates by time, and when the phases begin.

    mid_s    float64[BINS], centres of the bins; every run is seen to its own end, so late bins hold fewer runs
    curves   (look, float64[BINS]) an arm; NaN where no request was scheduled in any run
    phases_s name -> s since the start, of the first arm; what never happened is left out
    """

    mid_s: Float
    curves: list[tuple[Look, Float]]
    phases_s: dict[str, float]
    seeds: tuple[int, ...]


def data(arms: Sequence[ArmRuns]) -> Data:
    """Bin hit and prompt tokens by admission time over the longest run."""
    end = max((full_window(run).end_ns for arm in arms for run in arm.runs), default=1)
    edges = np.linspace(0.0, float(max(end, 1)), BINS + 1)
    curves = []
    for arm in arms:
        rates = np.array([rate(run, edges) for run in arm.runs])
        there = np.isfinite(rates)
        total = np.where(there, rates, 0.0).sum(axis=0)
        curves.append(
            (
                arm.look,
                np.divide(total, there.sum(axis=0), out=np.full(BINS, np.nan), where=there.any(axis=0)),
            )
        )
    found = [phases_s(run) for run in arms[0].runs] if arms else []
    means = {
        name: float(np.mean(times)) for name in PHASES if (times := [f[name] for f in found if name in f])
    }
    return Data((edges[:-1] + edges[1:]) / 2 / NS_PER_S, curves, means, n_seeds(arms))


def rate(run: RunLog, edges_ns: Float) -> Float:
    """Return the GPU hit rate in bins of admission time, float64[bins]."""
    return SERIES["gpu_hit_rate"][1](run, edges_ns)


def phases_s(run: RunLog) -> dict[str, float]:
    """Return when each of `PHASES` began, s since the start; what never happened is left out."""
    time_ns, event = run.columns("blocks", "time_ns", "event")
    evicted = time_ns[event == CACHE_EVENTS.index("evict")]
    started, finished = run.columns("workflows", "started_ns", "finished_ns")
    finished, started = finished[finished >= 0], started[started >= 0]
    moments = (evicted.min() if len(evicted) else None, finished.min() if len(finished) else None)
    last = started.max() if len(started) else None
    return {
        name: float(t) / NS_PER_S for name, t in zip(PHASES, (*moments, last), strict=True) if t is not None
    }


def between(run: RunLog, start_s: float, end_s: float) -> float:
    """Return the GPU hit rate of requests first scheduled in [start_s, end_s), NaN without any."""
    if not end_s > start_s:
        return float("nan")
    return float(rate(run, np.array([start_s, end_s]) * NS_PER_S)[0])


def draw(data: Data, axes: Axes) -> None:
    """Draw onto the panel `rate`. Mutates axes."""
    ax = axes["rate"]
    end_s = float(data.mid_s[-1] + data.mid_s[0])
    scale, unit = time_unit(end_s)
    for look, curve in data.curves:
        ax.plot(data.mid_s / scale, 100 * curve, color=look.color, linestyle=look.dash)
    for name, at_s in data.phases_s.items():
        ax.axvline(at_s / scale, color="0.55", linewidth=0.8, linestyle=":")
        ax.annotate(name, (at_s / scale, 101), rotation=90, va="top", ha="right", fontsize=6.5, color="0.45")
    ax.set_xlim(0, end_s / scale)
    ax.set_ylim(0, 102)
    ax.set_xlabel(f"time since start ({unit}), {seeds_note(data.seeds)}")
    ax.set_ylabel("hit rate (% of prompt tokens)")
    legend(ax.figure, [look for look, _ in data.curves])
