"""What the engine holds over time: the running batch, the queue, and the KV pool."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from experiments.plots.labels import legend
from experiments.plots.source import NS_PER_S, ArmRuns, Float, n_seeds, shared_edges_ns, time_unit
from experiments.plots.style import PAGE_INCHES, Axes, Look, seeds_note
from traces.runlog import RunLog
from traces.series import SERIES

TITLE = "Batch and KV occupancy over time"
MOSAIC = (("running", "waiting"), ("active", "resident"))
SIZE = (PAGE_INCHES, 4.0)
CAPTION = (
    "Time averages within each interval, of one replica, averaged over seeds. Resident blocks are those that "
    "running requests hold and those the prefix cache keeps."
)
BINS = 80


@dataclass(frozen=True)
class Data:
    """Levels by time.

    mid_s   float64[BINS], centres of the bins
    curves  panel -> (look, float64[BINS]) an arm, of one replica
    shares  active and resident are shares of the pool; False: blocks, since its size is not known
    """

    mid_s: Float
    curves: dict[str, list[tuple[Look, Float]]]
    shares: bool
    seeds: tuple[int, ...]


def data(arms: Sequence[ArmRuns]) -> Data:
    """Average the levels that the step rows state over equal bins up to the end of the shortest run."""
    edges = shared_edges_ns(arms, bins=BINS)
    shares = bool(arms) and all(arm.kv_blocks > 0 for arm in arms)
    curves: dict[str, list[tuple[Look, Float]]] = {panel: [] for row in MOSAIC for panel in row}
    for arm in arms:
        levels = [_levels(run, edges, arm.kv_blocks if shares else 1) for run in arm.runs]
        for panel, its in curves.items():
            its.append((arm.look, np.mean([level[panel] for level in levels], axis=0)))
    return Data((edges[:-1] + edges[1:]) / 2 / NS_PER_S, curves, shares, n_seeds(arms))


def draw(data: Data, axes: Axes) -> None:
    """Draw one panel a quantity. Mutates axes."""
    end_s = float(data.mid_s[-1] + data.mid_s[0])
    scale, unit = time_unit(end_s)
    times, pool = (100.0, "% of the pool") if data.shares else (1.0, "blocks")
    shown = {
        "running": ("Running", "sequences", 1.0),
        "waiting": ("Waiting", "requests", 1.0),
        "active": ("KV of running requests", pool, times),
        "resident": ("KV resident, cache included", pool, times),
    }
    for panel, (title, ylabel, factor) in shown.items():
        ax, curves = axes[panel], data.curves[panel]
        for look, level in curves:
            ax.plot(data.mid_s / scale, factor * level, color=look.color, linestyle=look.dash)
        top = max((factor * float(level.max()) for _, level in curves), default=0.0)
        ax.set_title(title)
        ax.set_ylabel(ylabel)
        ax.set_xlim(0, end_s / scale)
        ax.set_ylim(0, 1.08 * top if top > 0 else 1.0)
    for panel in MOSAIC[0]:
        axes[panel].tick_params(labelbottom=False)
    for panel in MOSAIC[1]:
        axes[panel].set_xlabel(f"time since start ({unit}), {seeds_note(data.seeds)}")
    legend(axes["running"].figure, [look for look, _ in data.curves["running"]])


def _levels(run: RunLog, edges_ns: Float, blocks: int) -> dict[str, Float]:
    level = {
        name: SERIES[name][1](run, edges_ns) / run.replicas
        for name in ("running", "waiting", "kv_blocks_active", "kv_blocks_cached")
    }
    active = level["kv_blocks_active"] / blocks
    return {
        "running": level["running"],
        "waiting": level["waiting"],
        "active": active,
        "resident": active + level["kv_blocks_cached"] / blocks,
    }
