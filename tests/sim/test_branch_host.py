"""Speculation and reuse in the simulator: nothing wrong is ever spliced, and only time changes."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from policies.registry import PolicySet
from sim.branch_worlds import Everything, branch_world
from sim.branches import SimulatedBranches
from sim.config import EngineConfig
from sim.log import MemorySink
from sim.run import RunStats, simulate
from sim.slowdown import Shape, probe
from sim.worlds import World, random_world
from traces.schema import StageKind
from traces.tables import REQUEST_STATUS

WORLDS = range(60)


def run(world: World, **engine: Any) -> tuple[RunStats, dict[str, pa.Table]]:
    """Simulate, checking all books."""
    return world.run(check=True, **engine)


@pytest.mark.parametrize("seed", WORLDS)
def test_no_result_is_spliced_that_would_not_have_been_computed(seed: int) -> None:
    world = branch_world(seed, parameters=bool(seed % 2))
    stats, tables = run(world)
    assert stats.unsafe == 0
    if stats.rejected == 0:
        assert stats.completed == world.workload.n_workflows
    requests = tables["requests"].to_pydict()
    canonical = world.workload.canonical()
    assert all(canonical[s] for s in requests["stage"])


def test_a_pooled_fill_may_be_dropped_after_its_branch_has_settled() -> None:
    """World 674 finds the result of one stale, and cancels what has no row left to write."""
    stats, _ = run(branch_world(674))
    assert stats.unsafe == 0


@pytest.mark.parametrize("seed", range(0, 60, 3))
def test_fast_forward_changes_nothing_under_speculation(seed: int) -> None:
    world = branch_world(seed)
    fast, single = run(world), run(world, fast_forward=False)
    for name, table in fast[1].items():
        assert table.equals(single[1][name]), name


@pytest.mark.parametrize("seed", range(0, 60, 5))
def test_every_stage_of_a_fill_has_one_row_and_one_fate(seed: int) -> None:
    world = branch_world(seed)
    stats, tables = run(world)
    fills = tables["fills"].to_pydict()
    keys = list(zip(fills["fill"], fills["position"], strict=True))
    assert len(set(keys)) == len(keys)
    assert len(set(fills["fill"])) == stats.filled
    assert "" not in fills["fate"]
    steps = tables["steps"].to_pydict()
    requests = tables["requests"].to_pydict()
    assert sum(steps["prefill_tokens"]) == sum(requests["prefilled_tokens"]) + sum(fills["prefilled_tokens"])
    branches = tables["branches"].to_pydict()
    assert sum(branches["fills"]) == stats.filled
    assert sum(branches["promoted_stages"]) == fills["fate"].count("promoted")
    assert all(b >= a or b < 0 for a, b in zip(branches["opened_ns"], branches["resolved_ns"], strict=True))


def outcome(world: World) -> tuple[dict[int, dict[int, int]], list[tuple[int, int]]]:
    """Run it; return the values of all canonical stages by workflow, and the order of effects (workflow, stage)."""
    values: dict[int, dict[int, int]] = {}
    effects: list[tuple[int, int]] = []

    class Watching(SimulatedBranches):
        """Notes results as workflows close, and writes as they happen."""

        def closed(self, workflow: int) -> None:
            values[workflow] = dict(self.host.values(workflow))
            super().closed(workflow)

        def done(self, stage: int) -> None:
            if self._views.rendering.writes[stage]:
                effects.append((self._views.workflow[stage], stage))
            super().done(stage)

    with pytest.MonkeyPatch.context() as patch, MemorySink() as sink:
        patch.setattr("sim.branch_setup.SimulatedBranches", Watching)
        simulate(world.workload, world.profile, world.policies, world.config, sink, kv_blocks=world.kv_blocks)
    return values, effects


@pytest.mark.parametrize("seed", range(0, 40, 2))
def test_speculation_changes_no_output_and_no_order_of_effects(seed: int) -> None:
    """Nothing writes from outside here, so that outputs cannot depend on time; each workflow has its own resources."""
    world = branch_world(seed)
    branches = world.workload.branches
    assert branches is not None
    owner = world.workload.stage_workflow
    own = replace(
        branches,
        read_key=branches.read_key + 100 * np.repeat(owner, np.diff(branches.read_ptr)),
        write_key=branches.write_key + 100 * np.repeat(owner, np.diff(branches.write_ptr)),
        external_workflow=branches.external_workflow[:0],
        external_time_ns=branches.external_time_ns[:0],
        external_key=branches.external_key[:0],
    )
    chain = replace(world, workload=replace(world.workload, branches=own), kv_blocks=4000)
    plain = replace(chain, policies=PolicySet(reuse=_Nothing()))
    on, off = outcome(chain), outcome(plain)
    parallel = _parallel_effects(chain)
    for workflow, result in off[0].items():
        if workflow in parallel:
            continue  # stages that write beside each other have no order to keep
        assert on[0][workflow] == result
    for w in range(world.workload.n_workflows):
        if w not in parallel:
            assert [s for v, s in on[1] if v == w] == [s for v, s in off[1] if v == w]


class _Nothing(Everything):
    """Is active, and names nothing."""

    def names(self, state: None, stage: Any) -> list[Any]:
        return []


def _parallel_effects(world: World) -> set[int]:
    """Return workflows where a stage that writes is not ordered against another that writes or reads the same."""
    w, b = world.workload, world.workload.branches
    assert b is not None
    above: list[set[int]] = []
    for s in range(w.n_stages):
        parents = w.parent_idx[w.parent_ptr[s] : w.parent_ptr[s + 1]].tolist()
        above.append(set().union(set(parents), *(above[p] for p in parents)))
    out = set()
    touches = [
        set(b.read_key[b.read_ptr[s] : b.read_ptr[s + 1]].tolist())
        | set(b.write_key[b.write_ptr[s] : b.write_ptr[s + 1]].tolist())
        for s in range(w.n_stages)
    ]
    for s in np.flatnonzero((np.diff(b.write_ptr) > 0) & b.canonical()).tolist():
        for t in np.flatnonzero((w.stage_workflow == w.stage_workflow[s]) & b.canonical()).tolist():
            if t != s and touches[s] & touches[t] and s not in above[t] and t not in above[s]:
                out.add(int(w.stage_workflow[s]))
    return out


def test_fills_are_launched_promoted_cancelled_joined_raced_and_revoked() -> None:
    seen: Counter[str] = Counter()
    for seed in WORLDS:
        _, tables = run(branch_world(seed))
        seen.update(tables["fills"]["fate"].to_pylist())
        seen.update(f"request {REQUEST_STATUS[s]}" for s in tables["fills"]["status"].to_pylist())
        seen.update(f"canonical {REQUEST_STATUS[s]}" for s in tables["requests"]["status"].to_pylist())
        seen.update("served" for a in tables["decisions"]["action"].to_pylist() if a == "served")
    for what in ("promoted", "unselected", "wrong argument", "late", "stale", "revoked", "served", "request aborted",
                 "canonical aborted"):  # fmt: skip
        assert seen[what], (what, seen)


def test_the_surface_of_slowdowns_rises_with_fills_and_with_their_context() -> None:
    world = branch_world(0)
    surface = probe(world.profile, EngineConfig(max_num_seqs=16), 20_000, Shape(200, 40))
    ratio = np.array(surface.ratio)
    assert (ratio[0] == 1).all()
    assert (np.diff(ratio, axis=0) > 0).all()
    assert (np.diff(ratio[1:], axis=1) > 0).all()
    assert ratio[-1, -1] > 1.05


def test_a_workload_without_branches_reuses_equal_prompts_only() -> None:
    served = 0
    for seed in range(30):
        world = replace(random_world(seed), policies=PolicySet(reuse=Everything()))
        stats, tables = run(world)
        served += stats.spliced
        decisions = tables["decisions"].to_pydict()
        stages = [s for s, a in zip(decisions["stage"], decisions["action"], strict=True) if a == "served"]
        w = world.workload
        for s in stages:
            assert w.stage_kind[s] == StageKind.LLM
            same = (w.prompt_segment == w.prompt_segment[s]) & (w.prompt_tokens == w.prompt_tokens[s])
            assert same.sum() > 1
    assert served
