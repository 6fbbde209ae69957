"""What the judges read: metrics by arm and seed of one study's runs."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from experiments.plan import Arm, Plan
from experiments.policyspec import parse
from experiments.store import Store
from policies import registry
from traces.definitions import Slo
from traces.metrics import run_metrics
from traces.runlog import RunLog, read_run
from traces.windows import window_of

HIT, LATENCY, TTFT, HOST_HIT = "gpu_hit_rate", "workflow_latency_s_mean", "ttft_ms_mean", "host_hit_rate"


@dataclass(frozen=True)
class Results:
    """The runs of a plan that exist, by arm."""

    plan: Plan
    store: Store

    def arm(self, axes: Mapping[str, Any] | None = None, **policies: str) -> Arm | None:
        """Return the first arm at a point of the axes whose policies are written so; None when there is none."""
        for arm in self.plan.arms:
            if axes is not None and arm.axes != dict(axes):
                continue
            if all(arm.policies[family] == written for family, written in policies.items()):
                return arm
        return None

    def runs(self, arm: Arm) -> dict[int, Path]:
        """Return the folders of an arm's runs by seed, those that exist."""
        found = {s: self.plan.runs.get((arm.label, s), "") for s in sorted(self.plan.seeds)}
        return {s: self.store.run_dir(run) for s, run in found.items() if run and self.store.has(run)}

    def logs(self, arm: Arm) -> dict[int, RunLog]:
        """Return an arm's logs by seed."""
        return {s: read_run(folder) for s, folder in self.runs(arm).items()}

    def metric(self, arm: Arm | None, name: str, window: str = "full") -> dict[int, float]:
        """Return a metric by seed; hit rates in percent, TTFT in s. Empty for None."""
        if arm is None:
            return {}
        scale = {HIT: 100.0, HOST_HIT: 100.0, TTFT: 1e-3}.get(name, 1.0)
        return {s: scale * _metrics(folder, window)[name] for s, folder in self.runs(arm).items()}


@functools.lru_cache(maxsize=8192)
def _metrics(folder: Path, window: str) -> Mapping[str, float]:
    log = read_run(folder)
    return run_metrics(log, window_of(log, window), Slo())


def option(arm: Arm, family: str, name: str) -> Any:
    """Return an option of an arm's policy: as written, or its default. Numbers come back as float."""
    choice = parse(family, arm.policies[family])
    given = dict(choice.options)
    value = given[name] if name in given else registry.options(family, choice.name)[name][1]
    try:
        return float(value)
    except (TypeError, ValueError):
        return value
