"""Arms of this card's studies by what they are, and their paired changes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from experiments.cards.results import LATENCY, Results
from experiments.cards.rows import BySeed, mean
from experiments.plan import Arm
from experiments.stats import Interval, paired_percent

WORK, P99 = "workflow_work_s_mean", "workflow_work_s_p99"
WORKLOADS = ("routing", "react", "subagent", "hci")
LOW, LOAD = 0.3, 0.8

# name -> (gate, candidate, reuse) as a plan writes them
SYSTEMS: dict[str, tuple[str, str, str]] = {
    "floor": ("never", "none", "none"),
    "C1": ("never", "none", "subgraph"),
    "C2": ("priced", "deployed", "none"),
    "full": ("priced", "deployed", "subgraph"),
    "InstCache": ("never", "none", "whole_response"),
    "Helium+": ("never", "none", "per_operator"),
    "DSP": ("dsp", "deployed", "none"),
    "SPAgent": ("spagent", "deployed", "none"),
    "PASTE": ("paste", "pattern", "none"),
    "Speculative Actions": ("speculative_actions", "deployed", "none"),
}
BASELINES = tuple(SYSTEMS)[4:]


def system(results: Results, name: str, axes: Mapping[str, Any]) -> Arm | None:
    """Return the arm of a system at a point of the axes."""
    gate, candidate, reuse = SYSTEMS[name]
    return results.arm(axes, gates=gate, candidates=candidate, reuse=reuse)


def at(workload: str, load: float) -> dict[str, Any]:
    """Return the point of the main study's axes."""
    return {"workload": f"dynbranch_{workload}", "load.utilisation": load}


def work(results: Results, name: str, axes: Mapping[str, Any], metric: str = WORK) -> BySeed:
    """Return a metric of a system by seed; by default latency less waits."""
    return results.metric(system(results, name, axes), metric)


def change(base: BySeed, other: BySeed) -> Interval | None:
    """Return the paired change in percent; None without pairs."""
    return paired_percent(base, other) if base and other else None


def told(interval: Interval | None) -> str:
    """Return a change as text."""
    if interval is None:
        return "-"
    if interval.low is None or interval.high is None:
        return f"{interval.mean:+.1f} %"
    return f"{interval.mean:+.1f} % [{interval.low:+.1f}, {interval.high:+.1f}]"


def diverged(results: Results, arm: Arm | None) -> bool:
    """Say whether latency grows through the run: over twice from its middle to its last third, in most seeds."""
    if arm is None:
        return False
    votes = list[bool]()
    for log in results.logs(arm).values():
        arrival, finished = log.columns("workflows", "arrival_ns", "finished_ns")
        done = finished >= 0
        latency = (finished - arrival)[done][arrival[done].argsort()]
        third = len(latency) // 3
        if third:
            votes.append(bool(latency[2 * third :].mean() > 2 * latency[third : 2 * third].mean()))
    return sum(votes) > len(votes) / 2


def latency(results: Results, arm: Arm | None) -> BySeed:
    """Return mean workflow latency by seed, s."""
    return results.metric(arm, LATENCY)


def ratio(base: BySeed, other: BySeed) -> float:
    """Return the ratio of means, base over other."""
    return mean(base) / mean(other)
