"""R50 from the engine alone, and protocol P-3: calibrate on one cell, predict the others blind."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from experiments.cards.pbkv.tables import ARMS, CELLS
from experiments.cards.results import HIT, LATENCY, Results
from experiments.cards.rows import VALUE_TOLERANCE, Check, Row, judged, mean
from experiments.targets import target

BLOCKS = "engine.num_gpu_blocks"
POOLS = {study: f"pool_{study}" for study, _ in CELLS.values()}
NAMES = ("lru", "lae", "he")
CALIBRATED = "R46"
Point = tuple[float, float]  # hit rate in percent, latency in s


def rows(studies: Mapping[str, Results], wanted: tuple[str, ...]) -> list[Row]:
    """Return R50's row of the engine alone, and P3, where their studies were run."""
    cells = {id: _points(studies, study) for id, (study, _) in CELLS.items() if POOLS[study] in studies}
    out = []
    if cells and "R50" in wanted:
        out.append(_alone(cells))
    if CALIBRATED in cells and "P3" in wanted:
        out.append(blind(cells))
    return out


def _points(studies: Mapping[str, Results], study: str) -> dict[str, dict[float, Point]]:
    """Return arm -> pool over the GPU's own -> (hit rate, latency), means over seeds."""
    out: dict[str, dict[float, Point]] = {name: {} for name in NAMES}
    pools, own = studies[POOLS[study]], studies.get(study)
    whole = _whole(pools)
    for name in NAMES:
        evictor = ARMS[name][0]
        for arm in pools.plan.arms:
            if arm.policies["evictors"] == evictor:
                size = round(float(arm.axes[BLOCKS]) / whole, 2)
                out[name][size] = mean(pools.metric(arm, HIT)), mean(pools.metric(arm, LATENCY))
        arm_of_table = None if own is None else own.arm(evictors=evictor, prefetchers="none")
        if own is not None and arm_of_table is not None:
            out[name][1.0] = mean(own.metric(arm_of_table, HIT)), mean(own.metric(arm_of_table, LATENCY))
        out[name] = dict(sorted(out[name].items()))
    return out


def _whole(pools: Results) -> float:
    """Return the GPU's own pool in blocks: the sizes of the study are 3/4 of it and more."""
    return min(float(arm.axes[BLOCKS]) for arm in pools.plan.arms) / 0.75


def _alone(cells: Mapping[str, dict[str, dict[float, Point]]]) -> Row:
    """One policy, pools of several sizes: does latency follow the miss rate, and do other policies lie on the line?"""
    limit = target("R50").values
    checks, told = [], []
    for id, arms in cells.items():
        x, y = _line_of(arms["lru"])
        if np.ptp(x) < 2.0 or len(x) < 3:
            checks.append(
                Check(f"{id}: miss rates over the pools span {np.ptp(x):.1f} pt, too few for a line", False)
            )
            continue
        slope, base = np.polyfit(x, y, 1)
        r2 = 1 - float(((y - slope * x - base) ** 2).sum() / ((y - y.mean()) ** 2).sum())
        ends = [int(np.argmin(x)), int(np.argmax(x))]
        line = np.polyfit(x[ends], y[ends], 1)
        between = [i for i in range(len(x)) if i not in ends]
        held_out = max(100 * abs(float(np.polyval(line, x[i]) / y[i]) - 1) for i in between)
        other = max(
            100 * abs(float(slope * (100 - hit) + base) / latency - 1)
            for name in ("lae", "he")
            for hit, latency in arms[name].values()
        )
        told.append(
            f"{id}: {slope:.2f} s a point, R2 {r2:.3f}, held-out error at most {held_out:.1f} %; other policies off its"
            f" line by at most {other:.1f} %"
        )
        checks.append(Check(f"{id}: latency rises with misses", bool(slope > 0)))
        checks.append(Check(f"{id}: R2 {r2:.3f}", r2 >= limit["r2_min"], "value"))
        checks.append(
            Check(f"{id}: held-out {held_out:.1f} %", held_out <= limit["held_out_pct_max"], "value")
        )
    return judged(
        "R50",
        "; ".join(told),
        "engine alone: LRU, pools of 3/4 to 3 times the GPU's own; no policy compared",
        checks,
    )


def _line_of(points: Mapping[float, Point]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    return np.array([100 - hit for hit, _ in points.values()]), np.array([s for _, s in points.values()])


def blind(cells: Mapping[str, dict[str, dict[float, Point]]]) -> Row:
    """Judge P3: two numbers fitted to one cell, everything else predicted with them.

    The pool's size, over the GPU's own, by least squares over the hit rates of LRU and HE in that cell, among the sizes
    that were run; then a factor on time, by the latency of LRU. Those three numbers are inputs from then on.
    """
    paper = target(CALIBRATED).values
    own = cells[CALIBRATED]
    sizes = sorted(set(own["lru"]) & set(own["he"]))

    def off(size: float) -> float:
        return sum((own[name][size][0] - float(paper[name]["hit_pct"])) ** 2 for name in ("lru", "he"))

    size = min(sizes, key=off)
    factor = float(paper["lru"]["latency_s"]) / own["lru"][size][1]
    checks, told, errors = [], [], []
    within = {"hit": 0, "latency": 0}
    count = {"hit": 0, "latency": 0}
    for id, arms in cells.items():
        values = target(id).values
        predicted = {
            n: (arms[n][size][0], factor * arms[n][size][1]) for n in NAMES if n in values and size in arms[n]
        }
        for name, (hit, latency) in predicted.items():
            inputs = {"lru": ("hit", "latency"), "he": ("hit",)}.get(name, ()) if id == CALIBRATED else ()
            for kind, ours, theirs in (
                ("hit", hit, float(values[name]["hit_pct"])), ("latency", latency, float(values[name]["latency_s"])),
            ):  # fmt: skip
                if kind in inputs:
                    continue
                error = ours / theirs - 1
                ok = abs(error) <= VALUE_TOLERANCE
                count[kind] += 1
                within[kind] += ok
                errors.append(abs(error))
                checks.append(Check(f"{id} {kind} of {name}: {ours:.3g} for {theirs:.3g}", ok, "value"))
        if len(predicted) > 1:
            hits = [hit for hit, _ in predicted.values()]
            checks.append(Check(f"{id}: hits in the paper's order", hits == sorted(set(hits))))
        told.append(f"{id} " + ", ".join(f"{n} {h:.1f} %, {s:.0f} s" for n, (h, s) in predicted.items()))
    ours_text = (
        f"pool {size:g} times the GPU's, times {factor:.2f}; within 25 %: {within['hit']} of {count['hit']} hit rates,"
        f" {within['latency']} of {count['latency']} latencies, mean error {100 * float(np.mean(errors)):.0f} %; "
        + "; ".join(told)
    )
    return judged("P3", ours_text, "fitted to LRU (hit, latency) and HE (hit) of R46; own prompts", checks)
