"""Prefetching in the simulator: fast-forward stays exact, the books add up, and prefetched blocks are used."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import cache
from typing import Any, cast

import numpy as np
import pyarrow as pa
import pytest
from prefetch_cases import SEEDS, world_of

from policies.api import Access, CacheNode, Evictor, Predictor, Prefetcher
from policies.evictors.lookahead import Lookahead
from policies.registry import PolicySet, load
from sim.kv.paths import PrefixPaths
from sim.kv.radix import Node
from sim.kv.readers import Readers
from sim.memory import Memory
from sim.run import RunStats
from sim.worlds import World, flat_profile, random_world
from traces.builder import WorkloadBuilder
from traces.schema import StageKind
from traces.tables import CACHE_EVENTS

PREFETCH, INSERT, EVICT = (CACHE_EVENTS.index(e) for e in ("prefetch", "insert", "evict"))


@cache
def result(seed: int) -> tuple[RunStats, dict[str, pa.Table]]:
    return world_of(seed).run(check=True)


@pytest.mark.parametrize("seed", SEEDS)
def test_fast_forward_writes_the_log_of_single_steps_while_prefetching(seed: int) -> None:
    fast_stats, fast = result(seed)
    slow_stats, slow = world_of(seed).run(fast_forward=False, check=True)
    for name in fast:
        assert fast[name].equals(slow[name]), name
    assert fast_stats.steps == slow_stats.steps
    assert fast_stats.prefetched_blocks == slow_stats.prefetched_blocks
    assert fast_stats.prefetched_blocks_used == slow_stats.prefetched_blocks_used


@pytest.mark.parametrize("seed", SEEDS)
def test_what_was_copied_arrived_or_was_dropped_and_what_was_used_had_arrived(seed: int) -> None:
    stats, tables = result(seed)
    decisions = tables["decisions"].to_pylist()
    count = {
        action: sum(d["value"] for d in decisions if d["family"] == "prefetchers" and d["action"] == action)
        for action in ("copy", "drop", "used")
    }
    events, blocks = tables["blocks"]["event"].to_numpy(), tables["blocks"]["blocks"].to_numpy()
    arrived = int(blocks[events == PREFETCH].sum())
    assert stats.prefetched_blocks == arrived
    assert stats.prefetched_blocks_used == count["used"] <= arrived
    assert arrived + count["drop"] <= count["copy"]  # a run that HBM got part of meanwhile brings the rest
    resident = blocks[(events == INSERT) | (events == PREFETCH)].sum() - blocks[events == EVICT].sum()
    assert resident >= 0


def test_the_random_worlds_do_prefetch_and_fast_forward() -> None:
    stats = [result(seed)[0] for seed in SEEDS]
    prefetched = sum(s.prefetched_blocks for s in stats)
    assert sum(s.prefetched_blocks > 0 for s in stats) > len(stats) // 3
    assert 0 < sum(s.prefetched_blocks_used for s in stats) < prefetched
    assert float(np.mean([s.fast_forward_ratio for s in stats])) > 0.2
    assert sum(d["action"] == "drop" for seed in SEEDS for d in result(seed)[1]["decisions"].to_pylist()) > 0


def retry_world(prefetcher: str, *, infinite: bool = False, **options: object) -> World:
    """Return agents that come back to a long prefix of their own after a pause, in a pool that holds half of them."""
    builder = WorkloadBuilder("retry", hash_block_tokens=16)
    for w in range(12):
        builder.workflow(f"w{w}")
        units = [1000 * (w + 1) + k for k in range(40)]
        previous: list[int] = []
        for _ in range(5):
            previous = [
                builder.llm(
                    len(units) * 16,
                    40,
                    parents=previous,
                    agent="solver",
                    prompt_units=np.array(units, dtype=np.uint64),
                )
            ]
            previous = [builder.delay(StageKind.TOOL, 150_000_000, parents=previous)]
            units = [*units, 900_000 + 1000 * w + len(units)]
        builder.llm(16, 300, parents=previous, agent="writer")
    workload = builder.build()
    profile = flat_profile(
        5_000_000_000,
        linear_tokens=(1, 64),
        linear_ps=(5 * 10**9, 5 * 10**9 + 63 * 10**8),
        pcie_bytes_per_s=2 * 10**8,
    )
    base = random_world(0)
    engine = replace(
        base.config.engine, block_tokens=16, max_num_seqs=16, max_num_batched_tokens=512, max_model_len=10_000,
        prefix_cache="radix", queue="fcfs", watermark_blocks_ratio=0.0,
    )  # fmt: skip
    config = replace(
        base.config,
        engine=engine,
        replicas=1,
        load=replace(base.config.load, loop="closed", concurrency=8, horizon_s=None),
        host_tier=replace(base.config.host_tier, ratio=8.0, write="write_through", load_back="never"),
        fault=replace(base.config.fault, pause_for_s=0.0),
    )
    policies = PolicySet(
        evictor=cast("Evictor[Any]", load("evictors", "lookahead")),
        predictor=cast("Predictor[Any]", load("predictors", "oracle")),
        prefetcher=cast("Prefetcher[Any]", load("prefetchers", prefetcher, options)),
    )
    return World(workload, profile, config, policies, 4000 if infinite else 200)


def gpu_hits(tables: dict[str, pa.Table]) -> int:
    return int(tables["requests"]["gpu_hit_tokens"].to_numpy().sum())


def test_prefetched_prefixes_are_hit_in_hbm() -> None:
    without = retry_world("none").run(check=True)[1]
    stats, tables = retry_world("conservative").run(check=True)
    assert stats.prefetched_blocks_used > 0
    assert gpu_hits(tables) > gpu_hits(without)


def test_conservative_prefetch_displaces_no_active_node_and_aggressive_does(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    active: dict[str, list[int]] = {"conservative": [], "aggressive": []}
    evict = Memory.evict
    name = ""

    def spy(memory: Memory, blocks: int) -> None:
        victim = memory.evictor.next_victim(memory.tree.state, 0)
        assert victim is not None
        active[name].append(not memory.evictor.retired(memory.tree.state, victim))
        evict(memory, blocks)

    monkeypatch.setattr(Memory, "evict", spy)
    for name in active:
        retry_world(name).run()
    assert active["conservative"]
    assert not any(active["conservative"])
    assert any(active["aggressive"])


@pytest.mark.parametrize("rho", [0.05, 0.2, 0.5])
def test_no_active_node_is_displaced_beyond_rho(rho: float, monkeypatch: pytest.MonkeyPatch) -> None:
    displaced = []
    evict, size = Memory.evict, 16

    def spy(memory: Memory, blocks: int) -> None:
        victim = memory.evictor.next_victim(memory.tree.state, 0)
        assert isinstance(victim, Node)
        if not memory.evictor.retired(memory.tree.state, victim):
            assert memory.prefetch is not None
            displaced.append(victim.end - victim.start + memory.prefetch.outstanding_blocks)
        evict(memory, blocks)

    monkeypatch.setattr(Memory, "evict", spy)
    world = retry_world("aggressive", rho=rho)
    world.run()
    limit = int(rho * world.kv_blocks * size) // size
    assert max(displaced) <= limit
    assert displaced


def test_what_is_loaded_back_has_the_readers_it_had(monkeypatch: pytest.MonkeyPatch) -> None:
    """Agents alternate on one growing prefix: after a load for one of them the other still counts."""
    builder = WorkloadBuilder("pair", hash_block_tokens=16)
    for w in range(10):
        builder.workflow(f"w{w}")
        units = [1000 * (w + 1) + k for k in range(40)]
        previous: list[int] = []
        for agent in ("a", "b", "a", "b"):
            prompt = np.array(units, dtype=np.uint64)
            previous = [builder.llm(16 * len(units), 20, parents=previous, agent=agent, prompt_units=prompt)]
            previous = [builder.delay(StageKind.TOOL, 100_000_000, parents=previous)]
    world = retry_world("none")
    tier = replace(world.config.host_tier, load_back="always")
    world = replace(world, workload=builder.build(), config=replace(world.config, host_tier=tier))
    seen: list[set[int]] = []
    restore = Lookahead.restore

    def spy(policy: Lookahead, state: Any, node: CacheNode, readers: Sequence[Access]) -> None:
        restore(policy, state, node, readers)
        assert len({r.workflow for r in readers}) == 1
        seen.append({r.agent for r in readers})
        assert state.history.records[node.id].readers[readers[0].workflow] == sum(
            1 << r.agent for r in readers
        )

    monkeypatch.setattr(Lookahead, "restore", spy)
    world.run(check=True)
    assert {0, 1} in seen


def test_with_room_for_all_prefetching_changes_nothing() -> None:
    without = retry_world("none", infinite=True).run()[1]
    for name in ("conservative", "aggressive"):
        stats, tables = retry_world(name, infinite=True).run()
        assert stats.prefetched_blocks == 0
        for table in tables:
            assert tables[table].equals(without[table]), table


def test_a_path_that_continues_another_replaces_it_and_ends_with_its_workflow() -> None:
    workload = retry_world("none").workload
    paths = PrefixPaths(workload, 16)
    readers = Readers(paths)
    stages = [
        int(s)
        for s in np.flatnonzero(workload.stage_workflow == 0)
        if workload.stage_kind[s] == StageKind.LLM
    ]
    first, last = stages[0], stages[4]
    for stage in (first, last):
        readers.read(0, 0, stage, paths.prompt_segment[stage], paths.prompt_blocks[stage])
    assert [(p.segment, p.blocks) for p in readers.paths()] == [
        (paths.prompt_segment[last], paths.prompt_blocks[last])
    ]
    segment = paths.prompt_segment[last]
    assert [a.agent for a in readers.of(0, segment, 10, 5)] == [0]
    assert readers.of(0, segment, paths.prompt_blocks[last] + 1, 5) == []
    assert readers.of(1, segment, 10, 5) == []
    readers.finish(0)
    assert not readers.active(0)
    assert list(readers.paths()) == []
