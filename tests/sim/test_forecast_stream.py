"""Forecasts in virtual time: who is told what, in which batches, and when it arrives."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from policies.api import Forecast, HostInfo, Predictor, Profile, WorkflowView
from policies.evictors.lru import Lru
from policies.laws import toy_host
from policies.predictors.markov import Markov
from policies.predictors.oracle import OracleForecast
from policies.training.text import DIMS
from sim.clock import Clock
from sim.forecasts import ForecastStream
from sim.worlds import random_world
from traces.schema import StageKind, Workload

BATCH_PS, WORKFLOW_PS = 5_000_000, 1_000_000
LOG: list[tuple[str, Any]] = []


@dataclass(frozen=True)
class Slow(Predictor[None]):
    """Takes 5 us a batch and 1 us a workflow; forecasts the length of the prefix as END's mass."""

    reads_text = True

    def new_state(self, host: HostInfo) -> None:
        return

    def observe(self, state: None, workflow: WorkflowView) -> None:
        assert workflow.features is not None
        assert workflow.features.shape == (DIMS,)
        LOG.append(("observe", workflow.agents))

    def workflow_finished(self, state: None, workflow: WorkflowView) -> None:
        LOG.append(("finished", workflow.agents))

    def forecast(self, state: None, workflow: WorkflowView) -> NDArray[np.float32]:
        return np.array([[len(workflow.agents), 0]], dtype=np.float32)

    def cost_ps(self, profile: Profile, workflows: int) -> int:
        LOG.append(("batch", workflows))
        return BATCH_PS + WORKFLOW_PS * workflows


@dataclass(frozen=True)
class Watching(Lru):
    def forecast(self, state: Any, forecast: Forecast) -> None:
        LOG.append(("arrived", forecast))


@pytest.fixture
def workload() -> Workload:
    LOG.clear()
    return random_world(3).workload


def test_waiting_workflows_share_a_batch_and_the_newest_prefix_counts(workload: Workload) -> None:
    got: list[Forecast] = []
    env = Clock(initial_time=0)
    stream = ForecastStream(Slow(), workload, toy_host(), got.append)
    stream.released(env, 0, 0, 0)
    stream.released(env, 1, 0, 0)
    env.run(until=BATCH_PS)
    assert got == []
    for workflow in (0, 2, 2):
        stream.released(env, workflow, 0, 0)
    env.run(until=10**9)
    assert [(f.workflow, f.now_ns, f.probability[0, 0]) for f in got] == [
        (0, 7000, 1), (1, 7000, 1), (0, 14_000, 2), (2, 14_000, 2),
    ]  # fmt: skip
    assert [n for what, n in LOG if what == "batch"][1:] == [2, 2]


def test_a_finished_workflow_gets_no_forecast_any_more(workload: Workload) -> None:
    got: list[Forecast] = []
    env = Clock(initial_time=0)
    stream = ForecastStream(Slow(), workload, toy_host(), got.append)
    for workflow in (0, 1):
        stream.released(env, workflow, 0, 0)
    env.run(until=1_000_000)
    stream.released(env, 1, 0, 0)
    stream.finished(0, 1000)
    stream.finished(1, 1000)
    env.run(until=10**9)
    assert got == []
    assert [a for what, a in LOG if what == "finished"] == [(0,), (0, 0)]


@pytest.mark.parametrize("seed", range(6))
def test_costly_forecasts_leave_fast_forward_exact(seed: int) -> None:
    world = random_world(seed)
    world = replace(world, policies=replace(world.policies, predictor=Slow(), evictor=Watching()))
    logs = []
    for fast in (True, False):
        LOG.clear()
        logs.append((world.run(fast_forward=fast)[1], [x.now_ns for what, x in LOG if what == "arrived"]))
    assert logs[0][1] == logs[1][1] != []
    for name, table in logs[0][0].items():
        assert table.equals(logs[1][0][name]), name


@pytest.mark.parametrize("seed", range(8))
def test_forecasts_on_the_step_arrive_at_once_and_lengthen_steps_exactly(seed: int) -> None:
    world = random_world(seed)
    engine = replace(world.config.engine, forecasts="step")
    policies = replace(world.policies, predictor=Slow(), evictor=Watching())
    world = replace(world, policies=policies, config=replace(world.config, engine=engine))
    LOG.clear()
    _, fast = world.run(fast_forward=True)
    arrived = [x.now_ns for what, x in LOG if what == "arrived"]
    assert set(arrived) == set(fast["requests"]["released_ns"].to_pylist())
    _, slow = world.run(fast_forward=False)
    for name, table in fast.items():
        assert table.equals(slow[name]), name


def test_a_step_pays_for_its_forecasts_and_no_other(workload: Workload) -> None:
    world = random_world(5, faults=False)
    policies = replace(world.policies, predictor=Slow(), evictor=Lru())
    load = replace(world.config.load, loop="closed", concurrency=1, horizon_s=None)
    busy = {}
    for where in ("stream", "step"):
        LOG.clear()
        config = replace(
            world.config, replicas=1, load=load, engine=replace(world.config.engine, forecasts=where)
        )
        _, tables = replace(world, policies=policies, config=config).run()
        busy[where] = int(tables["steps"]["duration_ns"].to_numpy().sum())
        batches = [n for what, n in LOG if what == "batch"]
    paid_ns = (
        sum(BATCH_PS + WORKFLOW_PS * n for n in batches[1:]) // 1000
    )  # the first call asks whether it costs
    assert busy["step"] - busy["stream"] == pytest.approx(paid_ns, abs=len(batches))


@pytest.mark.parametrize("seed", range(3))
def test_forecasts_nobody_uses_change_no_log(seed: int) -> None:
    world = random_world(seed, evictor="lru")
    plain = world.run()[1]
    for predictor in (Slow(), Markov(), OracleForecast()):
        other = replace(world, policies=replace(world.policies, predictor=predictor)).run()[1]
        for name, table in plain.items():
            assert table.equals(other[name]), (name, predictor)


def test_every_release_is_observed_once_and_every_end_told(workload: Workload) -> None:
    world = random_world(1, faults=False)
    LOG.clear()
    world = replace(world, policies=replace(world.policies, predictor=Slow()))
    stats, _ = world.run()
    runs = [a for what, a in LOG if what == "finished"]
    assert sum(map(len, runs)) == sum(what == "observe" for what, _ in LOG) == stats.requests
    assert len(runs) == stats.completed


def test_the_oracle_forecast_is_what_the_workflow_runs_next() -> None:
    world = random_world(4)
    LOG.clear()
    policies = replace(world.policies, predictor=OracleForecast(horizon=2), evictor=Watching())
    replace(world, policies=policies).run()
    w = world.workload
    llm = w.stage_kind == StageKind.LLM
    seen: dict[int, int] = {}
    for what, forecast in LOG:
        assert what == "arrived"
        rows = np.flatnonzero(llm & (w.stage_workflow == forecast.workflow))
        seen[forecast.workflow] = at = seen.get(forecast.workflow, 0) + 1
        for k in range(2):
            agent = w.stage_agent[rows[at + k]] if at + k < len(rows) else len(w.agents)
            assert forecast.probability[k].argmax() == (agent if agent >= 0 else len(w.agents))
    assert seen
