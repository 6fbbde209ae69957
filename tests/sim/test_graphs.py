"""CUDA graphs in the simulator: what a miss costs, what graphs take from the pool, and that nothing else changes."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pyarrow.compute as pc
import pytest
from engine_cases import STEP_PS, Case

from policies.registry import PolicySet, load
from sim.config import EngineConfig, SimConfig
from sim.worlds import World, flat_profile, random_world
from traces.errors import InputError

GRAPHS: dict[str, Any] = {
    "graph_build_ps": 61 * STEP_PS, "graph_compile_ps": 30 * STEP_PS, "graph_launch_ps": STEP_PS // 100,
    "graph_guard_ps_per_token": 5000, "graph_plan_ps": 3 * STEP_PS // 1000, "eager_launch_ps": 2 * STEP_PS,
    "graph_bytes": 3500,
}  # fmt: skip
CHOICES: list[tuple[str, dict[str, Any]]] = [
    ("all_shapes", {"d_max": 2}), ("max_pad", {"d_max": 2}), ("plan_buffer", {}), ("plan_buffer", {"buckets": 3}),
    ("on_demand", {"context_bucket_tokens": 8}), ("on_demand", {"context_bucket_tokens": 1}),
    ("vllm_ladder", {"lazy": True}), ("vllm_ladder", {"eager_above": 2}),
]  # fmt: skip


def with_graphs(world: World, name: str, options: dict[str, Any], memory: str) -> World:
    policies = replace(world.policies, bucketer=load("bucketers", name, options))
    config = replace(world.config, engine=replace(world.config.engine, graph_memory=memory))
    blocks = world.kv_blocks + 40 * 3500 // (1000 * world.config.engine.block_tokens) + 1
    return replace(
        world, profile=replace(world.profile, **GRAPHS), policies=policies, config=config, kv_blocks=blocks
    )


@pytest.mark.parametrize("seed", range(8))
@pytest.mark.parametrize(("name", "options"), CHOICES)
def test_fast_forward_changes_nothing_under_any_bucketer(
    seed: int, name: str, options: dict[str, Any]
) -> None:
    world = with_graphs(random_world(seed), name, options, ("pool", "outside")[seed % 2])
    fast_stats, fast = world.run(fast_forward=True, check=True)
    slow_stats, slow = world.run(fast_forward=False)
    for table in fast:
        assert fast[table].equals(slow[table]), table
    assert fast_stats.graph_misses == slow_stats.graph_misses


def durations(tables: dict[str, Any]) -> list[int]:
    return tables["steps"]["duration_ns"].to_pylist()


def builds(tables: dict[str, Any]) -> int:
    return pc.sum(pc.equal(tables["decisions"]["action"].cast("string"), "build")).as_py() or 0


def one_request(bucketer: str, options: dict[str, Any], **engine: Any) -> tuple[Any, dict[str, Any]]:
    case = Case()
    case.call(4, 20)
    config = SimConfig(EngineConfig(block_tokens=4, max_num_seqs=4, max_num_batched_tokens=64, **engine))
    policies = PolicySet(bucketer=load("bucketers", bucketer, options))  # type: ignore[arg-type]
    world = World(case.builder.build(), flat_profile(STEP_PS, **GRAPHS), config, policies, 100)
    return world.run()


def test_a_miss_costs_one_build_and_the_first_one_the_compilation_too() -> None:
    stats, tables = one_request("on_demand", {"context_bucket_tokens": 8})
    steps = durations(tables)[1:]  # the first is the prefill, eager
    usual = (STEP_PS + GRAPHS["graph_launch_ps"]) // 1000
    build, compile_ns = GRAPHS["graph_build_ps"] // 1000, GRAPHS["graph_compile_ps"] // 1000
    over = [round(d - usual) for d in steps if d > usual + 2]
    # Contexts 5 to 23 lie in buckets 1, 2 and 3.
    assert over == pytest.approx([build + compile_ns, build, build], abs=1)
    assert stats.graph_misses == stats.graphs == builds(tables) == 3
    assert stats.graph_build_ms == 0


def test_graphs_captured_at_start_miss_never_and_their_build_is_told() -> None:
    stats, tables = one_request("all_shapes", {"d_max": 8})
    assert builds(tables) == stats.graph_misses == 0
    assert stats.graphs == len({b * d for b in range(1, 5) for d in range(1, 9)})
    build_ps = stats.graphs * GRAPHS["graph_build_ps"] + GRAPHS["graph_compile_ps"]
    row = tables["decisions"].filter(pc.equal(tables["decisions"]["action"].cast("string"), "capture"))
    assert row["value"].to_pylist() == [build_ps // 1000]


def test_a_plan_buffer_pays_the_guards_of_its_idle_grid_and_its_update() -> None:
    _, padded = one_request("max_pad", {"d_max": 1})
    _, planned = one_request("plan_buffer", {"d_max": 8})
    extra_ps = 31 * GRAPHS["graph_guard_ps_per_token"] + GRAPHS["graph_plan_ps"]
    gaps = [b - a for a, b in zip(durations(padded)[1:], durations(planned)[1:], strict=True)]
    assert gaps == pytest.approx([extra_ps // 1000] * len(gaps), abs=1)


def test_graphs_take_blocks_from_the_pool_only_where_told_to() -> None:
    outside, _ = one_request("max_pad", {"d_max": 8})
    pool, _ = one_request("max_pad", {"d_max": 8}, graph_memory="pool")
    assert outside.kv_blocks == 100
    assert pool.kv_blocks == 100 - -(-4 * GRAPHS["graph_bytes"] // 4000)
    case = Case()
    case.call(4, 4)
    config = SimConfig(EngineConfig(block_tokens=4, max_num_seqs=100, graph_memory="pool"))
    policies = PolicySet(bucketer=load("bucketers", "max_pad", {}))  # type: ignore[arg-type]
    world = World(case.builder.build(), flat_profile(STEP_PS, **GRAPHS), config, policies, 20)
    with pytest.raises(InputError, match="graph_memory=pool: 100 graphs take"):
        world.run()


@pytest.mark.parametrize("seed", range(20))
def test_lazy_graphs_never_take_what_a_request_needs(seed: int) -> None:
    world = random_world(seed, faults=False)
    options = {"context_bucket_tokens": 4}
    world = with_graphs(world, "on_demand", options, "pool")
    stats, _ = replace(world, profile=replace(world.profile, graph_bytes=200_000)).run(check=True)
    assert stats.completed + stats.incomplete == stats.workflows
    assert stats.incomplete == 0 or stats.rejected > 0
