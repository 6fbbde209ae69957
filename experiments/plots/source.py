"""What figures read: columns of the run logs, by arm and seed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import stdtrit

from experiments.plan import Arm, Plan
from experiments.plots.style import Look
from experiments.store import Store
from traces.runlog import RunLog, read_run
from traces.windows import full_window

NS_PER_S = 1_000_000_000
Float = NDArray[np.float64]


@dataclass(frozen=True)
class ArmRuns:
    """One arm's complete runs, seeds ascending.

    kv_blocks: capacity of one replica in blocks, 0 where unknown. draft_ns: time spent drafting, of each run.
    """

    look: Look
    seeds: tuple[int, ...]
    runs: tuple[RunLog, ...]
    kv_blocks: int = 0
    draft_ns: tuple[int, ...] = ()


def looks(plan: Plan) -> dict[str, Look]:
    """Return how each arm name is drawn; an arm keeps its look over all points of the axes."""
    out: dict[str, Look] = {}
    for arm in plan.arms:
        out.setdefault(arm_name(arm), Look(arm_name(arm), len(out), arm.offline_reference))
    return out


def arm_name(arm: Arm) -> str:
    """Return the arm's name without axis values."""
    return arm.name or arm.label


def load_arms(plan: Plan, store: Store, axes: Mapping[str, Any] | None = None) -> list[ArmRuns]:
    """Return the arms at one point of the axes (None: the first) with those of their runs that exist."""
    point = plan.axis_points()[0] if axes is None else dict(axes)
    styles = looks(plan)
    out = []
    for arm in plan.arms:
        if arm.axes != point:
            continue
        done = {s: plan.runs.get((arm.label, s), "") for s in sorted(plan.seeds)}
        done = {s: run for s, run in done.items() if run and store.has(run)}
        if not done:
            continue
        manifests = [store.manifest(run) for run in done.values()]
        out.append(
            ArmRuns(
                styles[arm_name(arm)],
                tuple(done),
                tuple(read_run(store.run_dir(run)) for run in done.values()),
                int((manifests[0].get("kv") or plan.kv).get("blocks") or 0),
                tuple(int((m.get("stats") or {}).get("draft_ns", 0)) for m in manifests),
            )
        )
    return out


def n_seeds(arms: Sequence[ArmRuns]) -> tuple[int, ...]:
    """Return the number of seeds behind each arm of a figure."""
    return tuple(len(a.runs) for a in arms)


def shared_edges_ns(arms: Sequence[ArmRuns], *, bins: int) -> Float:
    """Return float64[bins + 1] ns: equal bins from the start to the end of the shortest run.

    Beyond that, means over seeds and arms would be over other sets of runs.
    """
    ends = [full_window(run).end_ns for arm in arms for run in arm.runs]
    return np.linspace(0.0, float(max(min(ends, default=1), 1)), bins + 1)


def time_unit(span_s: float) -> tuple[float, str]:
    """Return (seconds in the unit, its name) that keeps a time axis readable.

    >>> time_unit(90.0), time_unit(3600.0), time_unit(90000.0)
    ((1.0, 's'), (60.0, 'min'), (3600.0, 'h'))
    """
    if span_s < 300:
        return 1.0, "s"
    return (60.0, "min") if span_s < 4 * 3600 else (3600.0, "h")


def over_seeds(values: Float) -> tuple[Float, Float, Float]:
    """Return (mean, low, high) over axis 0 (seeds), float64[bins], with the 95 % t interval of each bin.

    A bin that any seed lacks (NaN) is NaN in all three, since its mean would be over another set of seeds;
    low and high are NaN with one seed.
    """
    n = values.shape[0]
    mean = values.mean(axis=0)
    if n < 2:
        return mean, np.full_like(mean, np.nan), np.full_like(mean, np.nan)
    half = float(stdtrit(n - 1, 0.975)) * values.std(axis=0, ddof=1) / np.sqrt(n)
    return mean, mean - half, mean + half
