"""A profile from the rows of `python -m kernels bench`: the step's time by tokens and context, and what graphs cost.

t(M, context) = f(M) + kv · context, f free at every measured M and never falling, kv shared by all; both from exact
graphs (all_shapes), whose kernels work on the step's tokens and no others. The guard's price is what a plan buffer's
larger grid adds; the update's is measured alone. Padding is predicted and compared: no padded step is fitted.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate
from typing import Any

import numpy as np
from numpy.typing import NDArray

from calibration import roofline
from calibration.gpus import Gpu
from calibration.models import Shard
from policies.costs import Profile
from traces.errors import InputError

Row = Mapping[str, Any]
_PS_PER_US = 1_000_000


@dataclass(frozen=True)
class KernelFit:
    """What the rows say, in microseconds.

    tokens, step_us    f at the measured token counts
    kv_us_per_token    reading one KV token
    guard_us_per_token   a token of grid that only tests its guard
    update_us          writing the plan
    build_ms, graph_bytes   a capture, mean over graphs
    eager_us           shortest eager step: launches, not kernels, bound it
    slope_us, base_us  a line through f
    errors_percent     mean absolute error by strategy; max_pad was not fitted
    """

    tokens: tuple[int, ...]
    step_us: tuple[float, ...]
    kv_us_per_token: float
    guard_us_per_token: float
    update_us: float
    build_ms: float
    graph_bytes: int
    eager_us: float
    slope_us: float
    base_us: float
    errors_percent: Mapping[str, float]

    def predict_us(self, active: int, executed: int, context_tokens: int) -> float:
        """Return a replayed step's time, its plan update included."""
        f = float(np.interp(active, self.tokens, self.step_us))
        return (
            f
            + self.kv_us_per_token * context_tokens
            + self.guard_us_per_token * (executed - active)
            + self.update_us
        )


def fit(rows: Sequence[Row], variant: str) -> KernelFit:
    """Fit the rows of one kernel variant; InputError naming what they lack."""
    mine = [r for r in rows if r.get("variant") == variant]
    exact = _steps(mine, "all_shapes")
    if len({r["rows"] for r in exact}) < 2 or len({r["context"] for r in exact}) < 2:
        raise InputError(
            f"kernel rows, variant {variant}: all_shapes needs two token counts and two contexts or more"
        )
    update_us = float(np.median([r["p50_us"] for r in mine if r["kind"] == "update"]))
    tokens = sorted({int(r["rows"]) for r in exact})
    context = np.array([_context(r) for r in exact], dtype=np.float64)
    us = np.array([r["p50_us"] for r in exact]) - update_us
    place = np.array([tokens.index(int(r["rows"])) for r in exact])
    kv = max(_within(place, context, us), 0.0)
    free = [float(np.median((us - kv * context)[place == i])) for i in range(len(tokens))]
    step = tuple(accumulate(free, max))
    planned = _steps(mine, "plan_buffer(d_max")
    grid = int(rows[0]["batch"]) * int(rows[0]["draft"])
    alone = {(r["batch"], r["draft"], r["context"]): r["p50_us"] for r in exact}
    extra = [
        (r["p50_us"] - alone[r["batch"], r["draft"], r["context"]]) / (grid - r["rows"])
        for r in planned
        if r["rows"] < grid
    ]
    builds = [r for r in mine if r["kind"] == "build" and r["strategy"].startswith("all_shapes")]
    eager = [r["p50_us"] for r in _steps(mine, "eager")]
    slope, base = np.polyfit(tokens, step, 1)
    found = KernelFit(
        tokens=tuple(tokens),
        step_us=step,
        kv_us_per_token=kv,
        guard_us_per_token=max(float(np.median(extra)), 0.0) if extra else 0.0,
        update_us=update_us,
        build_ms=1000 * float(np.mean(builds[0]["seconds"])) if builds and builds[0]["seconds"] else 0.0,
        graph_bytes=int(np.mean(builds[0]["bytes"])) if builds and builds[0]["bytes"] else 0,
        eager_us=min(eager, default=0.0),
        slope_us=float(slope),
        base_us=float(base),
        errors_percent={},
    )
    padded = _steps(mine, "max_pad")
    d_max = int(rows[0]["draft"])
    errors = {
        "all_shapes": _error(found, exact, lambda r: (r["rows"], r["rows"])),
        "plan_buffer": _error(found, planned, lambda r: (r["rows"], grid)),
        "max_pad, not fitted": _error(found, padded, lambda r: (r["batch"] * d_max, r["batch"] * d_max)),
    }
    return replace(found, errors_percent={k: v for k, v in errors.items() if v is not None})


def profile(rows: Sequence[Row], variant: str, gpu: str, command: str) -> Profile:
    """Return the profile of the measured step on a GPU; what was not measured comes from its datasheet."""
    about = rows[0]
    found = fit(rows, variant)
    base = roofline.profile(str(about["model"]), gpu=gpu)
    synthetic = bool(about["synthetic"])
    said = "made-up times" if synthetic else f"measured on {about['device']}"
    steps = f"decode steps of {about['layers']} layers, kernels '{variant}', {said}"
    notes = [f"{steps}; prefill, host link and memory by datasheet"]
    return replace(
        base,
        identity={**base.identity, "engine": "plan-buffer kernels", "timing": "made up" if synthetic else "measured"},
        linear_tokens=found.tokens,
        linear_ps=tuple(round(us * _PS_PER_US) for us in found.step_us),
        kv_read_ps_per_token=round(found.kv_us_per_token * _PS_PER_US),
        per_seq_ps=0,
        overhead_ps=0,
        overhead_per_seq_ps=0,
        graph_build_ps=round(found.build_ms * 1000 * _PS_PER_US),
        graph_bytes=found.graph_bytes,
        graph_launch_ps=0,  # between the events of a replay
        eager_launch_ps=round(found.eager_us * _PS_PER_US),
        graph_guard_ps_per_token=round(found.guard_us_per_token * _PS_PER_US),
        graph_plan_ps=round(found.update_us * _PS_PER_US),
        provenance={**base.provenance, "command": command, "rows": dict(about), "notes": notes},
        error={
            "mape_percent": max(found.errors_percent.values()), "by_strategy": dict(found.errors_percent),
            "how": "against the medians of the rows, the worst strategy; max_pad was kept out of the fit",
        },
        posterior={},
        bands={},
    )  # fmt: skip


def floor_us(shard: Shard, g: Gpu, precision: str, rows: int, context_tokens: int) -> float:
    """Return the datasheet's floor of a step: bytes over bandwidth or flops over peak, whichever is more."""
    read = shard.weight_bytes(precision) + shard.kv_bytes_per_token() * context_tokens
    flops = shard.weight_bytes(precision) * rows  # two flops a weight of two bytes
    return 1e6 * max(read / g.bytes_per_s, flops / g.flop_per_s(precision))


def table(rows: Sequence[Row], variant: str, shard: Shard, g: Gpu) -> list[str]:
    """Return lines: measured medians of exact graphs against the floor, by tokens, at the shortest context."""
    exact = _steps([r for r in rows if r.get("variant") == variant], "all_shapes")
    shortest = min(r["context"] for r in exact)
    out = [f"{'M':>5s} {'B x d':>8s} {'p50 us':>9s} {'p99 us':>9s} {'floor us':>9s} {'ratio':>6s}"]
    for r in sorted((r for r in exact if r["context"] == shortest), key=lambda r: (r["rows"], r["batch"])):
        floor = floor_us(shard, g, "bf16", int(r["rows"]), _context(r))
        shape = f"{r['batch']} x {r['draft']}"
        out.append(
            f"{r['rows']:5d} {shape:>8s} {r['p50_us']:9.1f} {r['p99_us']:9.1f} {floor:9.1f} {r['p50_us'] / floor:6.2f}"
        )
    return out


def _steps(rows: Sequence[Row], strategy: str) -> list[Row]:
    return [r for r in rows if r["kind"] == "step" and r["strategy"].startswith(strategy)]


def _context(row: Row) -> int:
    return int(row["batch"]) * (int(row["context"]) + int(row["draft"]))


def _within(place: NDArray[np.int64], x: NDArray[np.float64], y: NDArray[np.float64]) -> float:
    """Return the slope of y on x within groups."""
    dx, dy = x.copy(), y.copy()
    for i in np.unique(place):
        mine = place == i
        dx[mine] -= x[mine].mean()
        dy[mine] -= y[mine].mean()
    return float((dx * dy).sum() / max(float((dx * dx).sum()), 1e-30))


def _error(found: KernelFit, rows: Sequence[Row], size: Callable[[Row], tuple[int, int]]) -> float | None:
    if not rows:
        return None
    errors = []
    for r in rows:
        active, executed = size(r)
        errors.append(abs(found.predict_us(active, executed, _context(r)) / r["p50_us"] - 1))
    return round(100 * float(np.mean(errors)), 2)
