"""Walks strategies and points within a time budget, and writes a row for each."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict
from typing import Any

import numpy as np

from kernels.bench.machine import Machine
from kernels.bench.points import Point, Strategy
from kernels.bench.rows import RowFile


def measure(
    machine: Machine,
    file: RowFile,
    strategies: Sequence[Strategy],
    points: Sequence[Point],
    *,
    repeats: int,
    left_s: Callable[[], float],
    say: Callable[[str], None],
) -> bool:
    """Measure what `file` lacks; return whether all of it is there. Stops before a point when no time is left."""
    for done, strategy in enumerate(strategies):
        named = {"strategy": strategy.name, "variant": strategy.variant}
        rows = [{"kind": "step", **named, **asdict(p), "rows": p.rows} for p in points]
        update = {"kind": "update", **named}
        missing = [(p, r) for p, r in zip(points, rows, strict=True) if not file.has(r)]
        if not missing and file.has(update):
            continue
        if left_s() <= 0:
            return False
        say(f"{done + 1}/{len(strategies)} {strategy.name}, {strategy.variant}: {len(missing)} points")
        account = machine.prepare(strategy)
        build: dict[str, Any] = {"kind": "build", **named}
        if not file.has(build):
            file.add(
                {
                    **build,
                    "graphs": len(account.built),
                    "seconds": [round(b.seconds, 6) for b in account.built],
                    "bytes": [b.bytes for b in account.built],
                }
            )
        if not file.has(update):
            file.add({**update, **_quantiles(machine.update_us(repeats))})
        for point, row in missing:
            if left_s() <= 0:
                return False
            file.add({**row, **_quantiles(machine.step_us(point, repeats))})
    return True


def _quantiles(us: Sequence[float]) -> dict[str, float | int]:
    p50, p99 = np.quantile(np.array(us), [0.5, 0.99])
    return {"repeats": len(us), "p50_us": round(float(p50), 3), "p99_us": round(float(p99), 3)}
