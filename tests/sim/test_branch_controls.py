"""Negative controls: without recurrence, without a window, with candidates that are never right, gains vanish."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from policies.registry import PolicySet, load
from sim.config import LoadConfig, SimConfig
from sim.log import MemorySink
from sim.run import RunStats, simulate
from sim.worlds import flat_profile
from traces import resample, workloads
from traces.schema import Workload

PROFILE = flat_profile(
    20_000_000_000, linear_tokens=(1, 64), linear_ps=(20 * 10**9, 21 * 10**9), kv_read_ps_per_token=50_000
)


def drawn(name: str, workflows: int = 60) -> Workload:
    return resample.resample(workloads.open(f"dynbranch_{name}"), workflows, seed=1)


def run(
    workload: Workload, *, think_scale: float = 1.0, rate: float = 0.3, **policies: Any
) -> tuple[RunStats, float]:
    """Return statistics and mean latency in s."""
    config = SimConfig(load=LoadConfig(loop="open", rate_per_s=rate, think_scale=think_scale))
    with MemorySink() as sink:
        stats = simulate(workload, PROFILE, PolicySet(**policies), config, sink, kv_blocks=20_000)
    w = sink.tables()["workflows"]
    return stats, float(np.mean(w["finished_ns"].to_numpy() - w["arrival_ns"].to_numpy())) / 1e9


def always(candidate: str, **options: object) -> dict[str, Any]:
    return {"gate": load("gates", "always"), "candidate": load("candidates", candidate, options)}


def test_without_recurrence_reuse_serves_nothing() -> None:
    workload = drawn("subagent")
    stats, _ = run(workload, reuse=load("reuse", "subgraph"))
    assert stats.spliced > 0
    branches = workload.branches
    assert branches is not None
    unique = np.arange(workload.n_stages, dtype=np.uint64) + np.uint64(1 << 40)
    fresh = replace(workload, branches=replace(branches, stage_content=unique))
    stats, latency = run(fresh, reuse=load("reuse", "subgraph"))
    assert stats.spliced == 0
    assert latency == run(fresh)[1]


def test_without_a_window_early_fill_promotes_nothing() -> None:
    workload = drawn("hci")
    with_window, _ = run(workload, rate=0.1, **always("frequency"))
    assert with_window.spliced > 20
    without, latency = run(workload, rate=0.1, think_scale=0.0, **always("frequency"))
    assert without.spliced == 0
    assert latency >= run(workload, rate=0.1, think_scale=0.0)[1]


def test_candidates_that_are_never_right_gain_nothing_and_priced_gates_stop_paying_for_them() -> None:
    workload = drawn("react", 150)
    _, floor = run(workload)
    right, faster = run(workload, **always("oracle"))
    assert right.spliced > 100
    assert faster < 0.95 * floor
    wrong, slower = run(workload, **always("oracle", accuracy=0.0, coverage=0.0))
    assert wrong.spliced == 0
    assert wrong.filled > 100
    assert slower > floor
    candidate = load("candidates", "oracle", {"accuracy": 0.0, "coverage": 0.0})
    gated, latency = run(workload, gate=load("gates", "priced"), candidate=candidate)
    assert gated.filled < 0.75 * wrong.filled
    assert latency <= 1.02 * floor


@pytest.mark.parametrize("device", ["own", "colocated"])
def test_a_drafter_beside_the_model_takes_its_time(device: str) -> None:
    workload = drawn("react")
    branches = workload.branches
    assert branches is not None
    slow = replace(workload, branches=replace(branches, branch_setup_ns=branches.branch_setup_ns * 20))
    config = SimConfig(load=LoadConfig(loop="open", rate_per_s=1.0))
    config = replace(config, drafter_device=replace(config.drafter_device, place=device))
    none = {"gate": load("gates", "always"), "candidate": load("candidates", "none")}
    with MemorySink() as sink:
        simulate(slow, PROFILE, PolicySet(**none), config, sink, kv_blocks=20_000)  # type: ignore[arg-type]
    busy = int(np.sum(sink.tables()["steps"]["duration_ns"].to_numpy()))
    with MemorySink() as plain:
        simulate(slow, PROFILE, PolicySet(), config, plain, kv_blocks=20_000)
    floor = int(np.sum(plain.tables()["steps"]["duration_ns"].to_numpy()))
    assert (busy > floor) == (device == "colocated")
