"""Workflows in motion: joins, fan-out, tools, waits, loops, arrivals, several replicas, served results."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import pytest
from engine_cases import OPEN, STEP_NS, Case, run

from policies.api import HostInfo, ReuseName, ReusePolicy, StageView
from policies.registry import PolicySet, load
from sim.config import LoadConfig, SimConfig
from sim.worlds import World, flat_profile
from traces.builder import WorkloadBuilder
from traces.errors import InputError
from traces.schema import StageKind

CLOSED = SimConfig(load=LoadConfig(loop="closed", concurrency=2))


def test_a_join_waits_for_all_its_parents_and_a_fan_out_starts_together() -> None:
    case = Case()
    root = case.call(4, 1)
    short = case.more(4, 2, parents=[root])
    long = case.more(4, 7, parents=[root])
    case.more(4, 1, parents=[short, long])
    result = run(case)
    assert result.ns("released_ns") == [0, STEP_NS, STEP_NS, 8 * STEP_NS]
    assert result.tables["workflows"][0]["finished_ns"] == 9 * STEP_NS


def test_tools_and_waits_take_their_time_and_hold_no_seat() -> None:
    case = Case()
    first = case.call(4, 1)
    tool = case.builder.delay(StageKind.TOOL, 5_500, parents=[first])
    wait = case.builder.delay(StageKind.WAIT, 2_000, parents=[tool])
    nothing = case.builder.delay(StageKind.TOOL, 0, parents=[wait])
    case.more(4, 1, parents=[nothing])
    case.call(4, 1, at_ns=2_000)
    result = run(case, max_num_seqs=1)
    assert result.requests[4]["released_ns"] == 1_000 + 5_500 + 2_000
    assert result.requests[5]["admitted_ns"] == 2_000


@pytest.mark.parametrize(("scale", "released"), [(1.0, 8_500), (0.0, 6_500), (2.5, 11_500)])
def test_think_scale_stretches_waits_and_leaves_tools(scale: float, released: int) -> None:
    case = Case()
    first = case.call(4, 1)
    tool = case.builder.delay(StageKind.TOOL, 5_500, parents=[first])
    wait = case.builder.delay(StageKind.WAIT, 2_000, parents=[tool])
    case.more(4, 1, parents=[wait])
    result = run(case, config=replace(OPEN, load=replace(OPEN.load, think_scale=scale)))
    assert result.requests[3]["released_ns"] == released
    assert bool(result.stats.notes) == (scale != 1.0)


def test_a_recorded_loop_runs_as_often_as_recorded() -> None:
    case = Case()
    stage = case.call(4, 1)
    for _ in range(4):
        stage = case.more(4, 1, parents=[stage])
    result = run(case)
    assert result.ns("released_ns") == [i * STEP_NS for i in range(5)]


def test_a_closed_loop_keeps_its_number_in_progress() -> None:
    case = Case()
    for _ in range(9):
        case.call(4, 3, at_ns=None)
    result = run(case, config=CLOSED)
    rows = result.tables["workflows"]
    assert len(rows) == 9
    for now in range(0, 12 * STEP_NS, STEP_NS):
        assert sum(w["started_ns"] <= now < w["finished_ns"] for w in rows) == 2
    assert result.stats.simulated_ns == 15 * STEP_NS


def test_the_order_of_a_closed_loop_is_drawn_from_the_seed() -> None:
    def order(seed: int) -> list[int]:
        case = Case()
        for _ in range(12):
            case.call(4, 3, at_ns=None)
        rows = run(case, config=replace(CLOSED, seed=seed)).tables["workflows"]
        return [w["workflow"] for w in sorted(rows, key=lambda w: w["started_ns"])]

    assert order(1) == order(1)
    assert order(1) != order(2)
    assert sorted(order(2)) == list(range(12))


def test_an_open_loop_follows_the_recorded_arrivals_whatever_is_in_progress() -> None:
    case = Case()
    for at in (300, 0, 4_700):
        case.call(4, 50, at_ns=at)
    result = run(case)
    assert result.ns("released_ns") == [300, 0, 4_700]
    assert [w["arrival_ns"] for w in sorted(result.tables["workflows"], key=lambda w: w["workflow"])] == [
        300,
        0,
        4_700,
    ]


def test_an_open_loop_at_a_rate_needs_no_recorded_times() -> None:
    case = Case()
    for _ in range(400):
        case.call(4, 1, at_ns=None)
    config = SimConfig(load=LoadConfig(loop="open", rate_per_s=1_000.0))
    times = np.sort(np.array(run(case, config=config).ns("released_ns")))
    gaps = np.diff(times) / 1e6  # expected mean 1 ms
    assert 0.85 < gaps.mean() < 1.15
    with pytest.raises(InputError, match="records no arrival times"):
        run(case, config=OPEN)


def test_two_replicas_serve_at_once_and_each_has_its_own_cache() -> None:
    case = Case()
    for at in (0, 0, 100_000, 100_000):
        case.call(9, 3, units=[1, 2], at_ns=at)
    config = replace(OPEN, replicas=2)
    result = run(
        case, config=config, max_num_seqs=1, policies=PolicySet(router=load("routers", "round_robin"))
    )
    assert result.ns("replica") == [0, 1, 0, 1]
    assert result.ns("admitted_ns") == [0, 0, 100_000, 100_000]
    assert result.ns("gpu_hit_tokens") == [0, 0, 8, 8]
    picks = [d["value"] for d in result.tables["decisions"] if d["family"] == "routers"]
    assert picks == [0, 1, 0, 1]


def test_a_router_that_sees_the_caches_sends_a_prefix_to_where_it_is() -> None:
    case = Case()
    case.call(13, 2, units=[1, 2, 3])
    case.call(13, 2, units=[7, 8, 9], at_ns=0)
    case.call(14, 2, units=[7, 8, 9], at_ns=100_000)
    case.call(14, 2, units=[1, 2, 3], at_ns=200_000)
    result = run(
        case, config=replace(OPEN, replicas=2), policies=PolicySet(router=load("routers", "prefix_aware"))
    )
    replica = result.ns("replica")
    assert replica[0] != replica[1]
    assert replica[2:] == [replica[1], replica[0]]
    assert result.ns("gpu_hit_tokens") == [0, 0, 12, 12]


@dataclass(frozen=True)
class SameInput(ReusePolicy[None]):
    """A result is known by agent and input."""

    def new_state(self, host: HostInfo) -> None:
        return None

    def names(self, state: None, stage: StageView) -> Sequence[ReuseName]:
        return [ReuseName("stage", hash((stage.agent, stage.rendered_input)))]


def test_a_finished_result_serves_a_stage_with_equal_input_and_no_other() -> None:
    case = Case()
    case.call(8, 5, units=[1, 2], agent="a")
    repeat = case.call(8, 5, units=[1, 2], agent="a", at_ns=50_000)
    case.more(4, 1, parents=[repeat])
    case.call(8, 5, units=[1, 3], agent="a", at_ns=50_000)
    case.call(9, 5, units=[1, 2], agent="a", at_ns=60_000)  # one token has no identity
    result = run(case, policies=PolicySet(reuse=SameInput()))
    assert set(result.requests) == {0, 2, 3, 4}
    assert result.requests[2]["released_ns"] == 50_000
    assert [d["stage"] for d in result.tables["decisions"] if d["family"] == "reuse"] == [1]
    assert result.stats.completed == 4


def test_a_rejected_sibling_ends_its_workflow_and_what_was_not_issued_stays_so() -> None:
    for before in (0, 1):
        builder = WorkloadBuilder("siblings")
        builder.workflow("w")
        root = [builder.llm(16, 2)] if before else []
        builder.llm(100_000, 2, parents=root)
        builder.llm(16, 2, parents=root)
        builder.workflow("x")
        builder.llm(16, 2)
        world = World(
            builder.build(), flat_profile(10**9), SimConfig(load=LoadConfig(concurrency=1)), PolicySet(), 100
        )
        stats, tables = world.run(check=True)
        finished = dict(
            zip(
                tables["workflows"]["workflow"].to_pylist(),
                tables["workflows"]["finished_ns"].to_pylist(),
                strict=True,
            )
        )
        assert sorted(w for w, ns in finished.items() if ns >= 0) == [1]
        assert stats.rejected == 1
        assert tables["requests"].num_rows == 2 + before


def test_a_long_chain_of_instant_stages_runs() -> None:
    builder = WorkloadBuilder("chain")
    builder.workflow("w")
    last = [builder.llm(16, 1)]
    for _ in range(5000):
        last = [builder.delay(StageKind.TOOL, 0, parents=last)]
    world = World(builder.build(), flat_profile(10**9), SimConfig(), PolicySet(), 100)
    assert world.run()[0].completed == 1
