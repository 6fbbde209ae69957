"""Drafting changes only time: what is generated stays, drafted = accepted + rejected, rejected tails leave no KV."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import pytest
from drafting import Knowing, Most, Told, truth
from engine_cases import OPEN, Case, run

from policies.api import Bucketer, HostInfo
from policies.registry import PolicySet, load
from policies.views import BatchShape, GraphChoice
from sim.config import AcceptConfig, VerifyConfig
from sim.worlds import World, flat_profile, random_world, with_token_ids

EVICTED = 2  # index in traces.tables.CACHE_EVENTS


def drafting(
    seed: int, *, rate: float = 0.7, length: int = 4, ids: bool = False, **drafter: Any
) -> tuple[World, World, list[Told]]:
    """Return a random world without and with a drafter, and what its drafters will be told, a replica each."""
    world = random_world(seed, faults=False)
    if ids:
        world = replace(world, workload=with_token_ids(world.workload))
    told: list[Told] = []
    known = truth(world.workload) if ids else {}
    policies = replace(
        world.policies,
        drafter=Knowing(known, length, told=told, **drafter),
        budget=Most(length),
    )
    config = replace(world.config, accept=AcceptConfig(rate=rate))
    return world, replace(world, policies=policies, config=config), told


@pytest.mark.parametrize("seed", range(40))
def test_drafts_leave_every_request_with_the_output_it_had(seed: int) -> None:
    plain, drafted, _ = drafting(seed)
    outputs = [
        sorted(
            zip(t["requests"]["stage"].to_pylist(), t["requests"]["output_tokens"].to_pylist(), strict=True)
        )
        for t in (plain.run(check=True)[1], drafted.run(check=True)[1])
    ]
    assert outputs[0] == outputs[1]


def test_any_drafter_leaves_the_token_streams_as_recorded_under_preemption_and_eviction() -> None:
    seen = {"preempted": 0, "evicted": 0, "accepted": 0, "rejected": 0}
    for seed in range(80):
        _, drafted, states = drafting(
            seed, ids=True, length=1 + seed % 6, right=seed % 4, ragged=seed % 2 == 0
        )
        _, tables = drafted.run(check=True)
        expected = truth(drafted.workload)
        told = {s: tokens for state in states for s, tokens in state.tokens.items()}
        for r in tables["requests"].to_pylist():
            finished = r["status"] == 0
            if finished and r["output_tokens"] > 1:
                assert told[r["stage"]] == expected[r["stage"]], f"seed {seed}, stage {r['stage']}"
                seen["preempted"] += r["preemptions"] > 0 and r["drafted_tokens"] > 0
            seen["accepted"] += r["accepted_tokens"]
            seen["rejected"] += r["drafted_tokens"] - r["accepted_tokens"]
        blocks = tables["blocks"]["event"].to_pylist()
        seen["evicted"] += blocks.count(EVICTED)
    assert min(seen.values()) > 20, seen


@pytest.mark.parametrize("seed", range(12))
def test_drafters_are_told_prompts_blocks_and_each_request_once(seed: int) -> None:
    _, drafted, states = drafting(seed, ids=True, right=9)
    _, tables = drafted.run()
    w = drafted.workload
    assert w.transcript is not None
    assert w.output_ptr is not None
    finished = [r["stage"] for r in tables["requests"].to_pylist() if r["status"] == 0]
    begun = [s for state in states for s in state.begun]
    assert len(set(begun)) == len(begun)
    assert sorted(s for state in states for s in state.finished) == sorted(
        s for s in finished if w.output_tokens[s] > 1
    )
    for state in states:
        for s, prompt in state.prompts.items():
            assert len(prompt) == w.prompt_tokens[s]
            assert state.views[s].query == w.stage_workflow[s]
        for s, blocks in state.blocks.items():
            start = int(w.output_ptr[s])
            assert blocks == w.transcript.output_block[start : start + len(blocks)].tolist()


@pytest.mark.parametrize("seed", range(20))
def test_step_rows_and_request_rows_agree_on_drafted_and_accepted_tokens(seed: int) -> None:
    _, drafted, _ = drafting(seed, rate=0.6, ragged=seed % 2 == 0)
    _, tables = drafted.run(check=True)
    for column in ("drafted_tokens", "accepted_tokens"):
        assert sum(tables["steps"][column].to_pylist()) == sum(tables["requests"][column].to_pylist())
    assert all(r["accepted_tokens"] <= r["drafted_tokens"] for r in tables["requests"].to_pylist())


def test_sure_acceptance_takes_fewer_steps_and_none_takes_as_many() -> None:
    fewer = 0
    for seed in range(12):
        plain, sure, _ = drafting(seed, rate=1.0)
        _, never, _ = drafting(seed, rate=0.0)
        steps, sure_steps, never_steps = (w.run()[0].steps for w in (plain, sure, never))
        assert sure_steps <= steps
        fewer += sure_steps < steps
        assert plain.run()[1]["requests"].num_rows == never.run()[1]["requests"].num_rows
        assert never_steps > 0
    assert fewer >= 6


def lone(
    outputs: tuple[int, ...], *, rate: float = 0.0, attention: str = "profile", **given: Any
) -> tuple[Any, list[Told]]:
    """Run requests of 9 prompt tokens that arrive together, on a profile whose every price is a different digit."""
    case = Case()
    for output in outputs:
        case.call(9, output)
    told: list[Told] = []
    drafter = Knowing(length=given.pop("length", 3), told=told, cost=given.pop("cost", 0), **given)
    profile = flat_profile(
        1_000_000,
        linear_tokens=(1, 100),
        linear_ps=(1_000_000, 100_000_000),
        kv_read_ps_per_token=1_000,
        verify={"regime": "packed", "group": 4, "packed_rows": 8, "growth_permille": 500},
    )
    config = replace(OPEN, accept=AcceptConfig(rate=rate), verify=VerifyConfig(attention=attention))
    result = run(
        case, config=config, profile=profile, policies=PolicySet(drafter=drafter, budget=Most(9)), blocks=100
    )
    return result, told


def test_a_step_is_priced_at_its_verification_width_in_either_regime() -> None:
    # One sequence with 9 prompt tokens and one output token: 10 KV tokens, and 3 drafted: 4 queries over 13.
    for attention, read in (("packed", 13 * 2), ("prefill", 13 * (1000 + 500 * 3) // 1000)):
        result, _ = lone((5,), attention=attention)
        step = result.tables["steps"][1]
        assert step["drafted_tokens"] == 3
        assert step["duration_ns"] * 1000 == 4 * 1_000_000 + read * 1_000


def test_both_regimes_are_in_every_result() -> None:
    stats = [lone((5, 4), attention=a)[0].stats for a in ("packed", "prefill")]
    for name in ("verify_packed_ns", "verify_prefill_ns", "drafting_steps"):
        assert getattr(stats[0], name) == getattr(stats[1], name) > 0
    assert stats[0].verify_prefill_ns != stats[0].verify_packed_ns


def test_drafting_is_charged_and_reported() -> None:
    free, paid = (lone((6,), cost=c)[0] for c in (0, 50_000))
    longer = sum(s["duration_ns"] for s in paid.tables["steps"]) - sum(
        s["duration_ns"] for s in free.tables["steps"]
    )
    assert longer == paid.stats.draft_ns == 50 * sum(s["drafted_tokens"] for s in paid.tables["steps"]) > 0


def test_a_rejected_tail_holds_kv_during_its_step_and_none_after() -> None:
    plain = run(_one(30), blocks=100)
    drafted, _ = lone((30,), length=6)
    held = [s["kv_blocks_active"] for s in plain.tables["steps"]]
    with_draft = [s["kv_blocks_active"] for s in drafted.tables["steps"]]
    assert len(held) == len(with_draft)
    for step, (a, b) in enumerate(zip(held[1:], with_draft[1:], strict=True)):
        kv = 9 + 1 + step
        assert b - a == -(-(kv + 6) // 4) - -(-kv // 4), step


def _one(output: int) -> Case:
    case = Case()
    case.call(9, output)
    return case


def test_a_draft_that_finds_no_block_is_dropped_and_preempts_nobody() -> None:
    case = _one(8)
    told: list[Told] = []
    policies = PolicySet(drafter=Knowing(length=3, told=told), budget=Most(9))
    result = run(case, policies=policies, blocks=4)  # 9 + 8 - 1 tokens just fit
    assert result.requests[0]["preemptions"] == 0
    drafted = [s["drafted_tokens"] for s in result.tables["steps"]]
    assert drafted[1] == 3
    assert drafted[-1] == 0


def test_tokens_drafted_past_the_end_are_verified_in_vain() -> None:
    result, _ = lone((2,), length=5, rate=1.0)
    assert result.requests[0]["drafted_tokens"] == 5
    assert result.requests[0]["accepted_tokens"] == 0
    assert result.requests[0]["output_tokens"] == 2


def test_a_drafter_on_hidden_states_recomputes_the_last_cached_block() -> None:
    hits = {}
    for process in ((), (0.5,)):
        case = Case()
        case.call(12, 2, units=[1, 2, 3], at_ns=0)
        case.call(14, 2, units=[1, 2, 3], at_ns=100_000)
        drafter = Knowing(process=process, told=[])
        result = run(case, policies=PolicySet(drafter=drafter, budget=Most(2)))
        hits[process] = result.requests[1]["gpu_hit_tokens"]
    assert hits == {(): 12, (0.5,): 8}


def test_scheduling_ahead_hides_the_time_a_sequence_unless_the_drafter_waits_on_the_cpu() -> None:
    profile = flat_profile(1_000_000, overhead_per_seq_ps=7_000)
    spans = {}
    for ahead in (False, True):
        for length in (0, 3):
            policies = PolicySet()
            if length:
                policies = PolicySet(drafter=Knowing(length=length, told=[]), budget=Most(length))
            result = run(_one(4), profile=profile, policies=policies, async_scheduling=ahead)
            spans[ahead, length] = [s["duration_ns"] for s in result.tables["steps"]]
    assert spans[False, 0] == spans[False, 3] == spans[True, 3] == [1007] * 4
    assert spans[True, 0] == [1000] * 4


def test_the_time_of_a_step_depends_on_the_drafts_of_its_own_requests_only() -> None:
    uniform, _ = lone((5, 5), length=2)
    ragged, told = lone((5, 5), length=2, ragged=True)
    assert told[0].proposed < 2 * sum(s["decode_seqs"] for s in uniform.tables["steps"])
    for s in ragged.tables["steps"]:
        tokens = s["decode_seqs"] + s["drafted_tokens"] + s["prefill_tokens"]
        linear = 1_000_000 * tokens
        assert s["duration_ns"] * 1000 >= linear
        assert s["duration_ns"] * 1000 - linear < 200_000
    assert np.unique([s["drafted_tokens"] for s in ragged.tables["steps"]]).size > 1


def test_a_drafter_that_knows_the_output_has_every_draft_accepted() -> None:
    accepted = 0
    for seed in range(6):
        world, _, _ = drafting(seed, ids=True)
        policies = replace(world.policies, drafter=load("drafters", "oracle"), budget=Most(3))
        _, tables = replace(world, policies=policies).run(check=True)
        for r in tables["requests"].to_pylist():
            # What lies past a request's end nobody accepts.
            assert r["drafted_tokens"] - r["accepted_tokens"] <= 3
            accepted += r["accepted_tokens"]
    assert accepted > 100


@dataclass(frozen=True)
class Watching(Bucketer[None]):
    """Runs everything eagerly and keeps the shapes it was asked about."""

    seen: list[BatchShape] = field(default_factory=list, hash=False, compare=False)

    def new_state(self, host: HostInfo) -> None:
        return None

    def plan(self, host: HostInfo) -> tuple[int, ...]:
        return ()

    def pick(self, state: None, captured: Sequence[int], shape: BatchShape) -> GraphChoice:
        self.seen.append(shape)
        return GraphChoice(None, shape.tokens, shape.tokens)


def test_graphs_are_asked_for_uniform_drafts_by_their_width_and_for_ragged_ones_by_none() -> None:
    for ragged in (False, True):
        watching = Watching()
        case = Case()
        for output in (9, 9, 9):
            case.call(9, output)
        drafter = Knowing(length=3, ragged=ragged, told=[])
        policies = PolicySet(drafter=drafter, budget=Most(3), bucketer=watching)
        result = run(case, policies=policies)
        shapes = [s for s in watching.seen if s.prefill_seqs == 0]
        steps = [s for s in result.tables["steps"] if not s["prefill_seqs"]]
        assert [s.tokens for s in shapes] == [s["decode_seqs"] + s["drafted_tokens"] for s in steps]
        if ragged:
            assert {s.query_tokens for s in shapes if s.decode_seqs == 3} == {0}
        else:
            assert {s.query_tokens for s in shapes} == {4}
