"""A backend that answers from a profile: the simulated ground truth of tests, and the dry run of the whole chain.

Times are the profile's, with keyed lognormal noise, outliers and a drift over the readings, so that what `fit` and
`validate` find can be compared with what is true.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from calibration.measure_machine import machine
from calibration.measure_run import Limit, RunResult, closed_loop, kernel_ps
from calibration.plan import Point, RunPoint
from policies.costs import Profile
from traces import draws, portable

_OUTLIER_SHARE, _OUTLIER_FACTOR = 0.03, 1.6


@dataclass
class FakeBackend:
    """Answers from `profile`. Mutates only its count of readings.

    noise        deviation of the log of a repetition
    drift        relative change of every time per hundred readings
    """

    profile: Profile
    noise: float = 0.01
    drift: float = 0.0
    seed: int = 0
    name: str = "fake"

    def __post_init__(self) -> None:
        self._readings = 0

    def machine(self) -> dict[str, Any]:
        """Return the host, and that no time in this folder was measured."""
        return {**machine(), "backend": "fake: times drawn from a profile", "profile": self.profile.name}

    def refuses(self, point: Point) -> str | None:
        """Refuse nothing."""
        return None

    def measure(self, point: Point, repetitions: int) -> dict[str, list[int]]:
        """Return the profile's price of the point, repeated with noise."""
        self._readings += 1
        out = {}
        for quantity, value in self._true(point).items():
            ids = np.arange(repetitions, dtype=np.int64)
            at = f"fake {self._readings} {quantity}"
            factor = portable.exp(self.noise * portable.normal(self.seed, at, ids))
            outlier = draws.uniform_array(self.seed, at + " outlier", ids) < _OUTLIER_SHARE
            factor = np.where(outlier, _OUTLIER_FACTOR, factor) * (1 + self.drift * self._readings / 100)
            out[quantity] = [max(round(float(f) * value), 1) for f in factor]
        return out

    def run(self, run: RunPoint, budget: Limit) -> RunResult:
        """Run the loop on the profile's prices."""
        return closed_loop(run, lambda point: self.measure(point, 1)["step"][0], budget)

    def _true(self, point: Point) -> dict[str, int]:
        p = self.profile
        if point.kind == "copy":
            # Decode and a copy share memory bandwidth, of which a copy takes little: no slower when loaded.
            return {
                "copy": (p.pcie_copy_overhead_ps + point.size_bytes * 10**12 // p.pcie_bytes_per_s) // 1000
            }
        if point.kind == "graph":
            launch = p.graph_launch_ps + point.nodes * 1_300_000
            build = p.graph_build_ps * point.nodes // 400
            return {"capture": build // 1000, "replay": launch // 1000, "memory": p.graph_bytes}
        if point.kind == "idle":
            return {"client": max(p.http_overhead_ps, 1_000_000) // 1000}
        kernel = kernel_ps(p, point)
        if point.mode == "":
            return {"step": kernel // 1000}
        engine = p.overhead_ps + p.overhead_per_seq_ps * point.batch
        whole = kernel + engine if point.mode == "sync" else max(kernel, engine)
        return {"engine": whole // 1000}
