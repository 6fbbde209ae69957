"""What a step does: decodes first, prefills in chunks, who is admitted, and when tokens appear."""

from __future__ import annotations

from dataclasses import dataclass, replace

import pytest
from engine_cases import OPEN, STEP_NS, Case, run

from policies.api import HostInfo, RequestView, Router
from policies.registry import PolicySet
from sim.config import FaultConfig
from sim.worlds import flat_profile


def test_one_request_takes_a_prefill_step_and_a_step_for_each_further_token() -> None:
    case = Case()
    case.call(10, 4)
    result = run(case)
    assert result.steps == [(0, 0, 10), (1, 1, 0), (2, 1, 0), (3, 1, 0)]
    row = result.requests[0]
    assert (row["admitted_ns"], row["first_token_ns"], row["finished_ns"]) == (0, STEP_NS, 4 * STEP_NS)
    assert [s["context_tokens"] for s in result.tables["steps"]] == [0, 11, 12, 13]


def test_decodes_come_first_and_prefills_share_what_the_budget_leaves() -> None:
    case = Case()
    case.call(6, 9)
    case.call(20, 2, at_ns=STEP_NS)
    result = run(case, max_num_batched_tokens=8, max_num_seqs=4)
    # From step 1 the first request decodes; seven tokens are left for the second's chunks.
    assert result.steps[:5] == [(0, 0, 6), (1, 1, 7), (2, 1, 7), (3, 1, 6), (4, 2, 0)]
    assert result.ns("first_token_ns") == [STEP_NS, 4 * STEP_NS]  # the end of the last chunk
    assert result.ns("admitted_ns") == [0, STEP_NS]


def test_a_prefill_in_progress_goes_before_an_admission() -> None:
    case = Case()
    case.call(12, 1)
    case.call(4, 1)
    result = run(case, max_num_batched_tokens=8, max_num_seqs=4)
    assert result.steps == [(0, 0, 8), (1, 0, 8)]
    assert result.ns("admitted_ns") == [0, STEP_NS]
    assert result.ns("finished_ns") == [2 * STEP_NS, 2 * STEP_NS]


def test_no_more_sequences_run_than_the_cap() -> None:
    case = Case()
    for _ in range(3):
        case.call(4, 3)
    result = run(case, max_num_seqs=2)
    assert result.ns("admitted_ns") == [0, 0, 3 * STEP_NS]
    assert [s["waiting"] for s in result.tables["steps"]] == [1, 1, 1, 0, 0, 0]


def test_the_queue_is_first_come_first_served() -> None:
    case = Case()
    for at in (2, 0, 1):
        case.call(4, 3, at_ns=at)
    result = run(case, max_num_seqs=1)
    order = sorted(result.requests, key=lambda stage: result.requests[stage]["admitted_ns"])
    assert order == [1, 2, 0]


@dataclass(frozen=True)
class ByStage(Router[None]):
    """Later stages of the trace are more urgent."""

    def new_state(self, host: HostInfo) -> None:
        return None

    def pick(self, state: None, request: RequestView, replicas: object) -> int:
        return 0

    def priority(self, state: None, request: RequestView) -> int:
        return -request.stage


def test_a_priority_queue_admits_the_most_urgent() -> None:
    case = Case()
    for _ in range(4):
        case.call(4, 3)
    policies = PolicySet(router=ByStage())
    result = run(case, max_num_seqs=1, queue="priority", policies=policies)
    assert sorted(result.requests, key=lambda s: result.requests[s]["admitted_ns"]) == [3, 2, 1, 0]
    # Without the queue the priorities mean nothing.
    result = run(case, max_num_seqs=1, policies=policies)
    assert sorted(result.requests, key=lambda s: result.requests[s]["admitted_ns"]) == [0, 1, 2, 3]


def test_an_arrival_joins_the_next_step_and_not_the_one_in_progress() -> None:
    case = Case()
    case.call(4, 9)
    case.call(4, 2, at_ns=STEP_NS + 1)
    case.call(4, 2, at_ns=3 * STEP_NS)  # exactly between two steps
    result = run(case)
    assert result.ns("admitted_ns") == [0, 2 * STEP_NS, 3 * STEP_NS]
    assert result.stats.fast_forward_ratio > 0


def test_simultaneous_arrivals_share_a_step() -> None:
    case = Case()
    for _ in range(5):
        case.call(4, 2, at_ns=700)
    result = run(case)
    assert result.steps == [(0.7, 0, 20), (1.7, 5, 0)]


def test_a_request_without_output_ends_with_its_prefill() -> None:
    case = Case()
    first = case.call(9, 0)
    case.more(4, 2, parents=[first])
    result = run(case)
    row = result.requests[0]
    assert (row["finished_ns"], row["first_token_ns"], row["output_tokens"]) == (STEP_NS, -1, 0)
    assert result.requests[1]["released_ns"] == STEP_NS
    assert result.stats.completed == 1


def test_the_horizon_cuts_the_run_and_what_is_open_is_incomplete() -> None:
    case = Case()
    case.call(4, 100)
    case.call(4, 2)
    case.call(4, 2, at_ns=10**9)
    config = replace(OPEN, load=replace(OPEN.load, horizon_s=10.5 * STEP_NS / 1e9))
    result = run(case, config=config)
    assert result.status() == ["incomplete", "finished"]
    row = result.requests[0]
    assert (row["output_tokens"], row["finished_ns"]) == (10, -1)
    assert len(result.steps) == 10
    assert (result.stats.completed, result.stats.incomplete) == (1, 2)
    assert [w["finished_ns"] for w in sorted(result.tables["workflows"], key=lambda w: w["workflow"])] == [
        -1,
        2_000,
    ]


def test_a_paused_replica_ends_its_step_and_the_gap_is_on_record() -> None:
    case = Case()
    case.call(4, 6)
    fault = FaultConfig(pause_at_s=2.5 * STEP_NS / 1e9, pause_for_s=10 * STEP_NS / 1e9)
    result = run(case, config=replace(OPEN, fault=fault))
    assert [start for start, _, _ in result.steps] == [0, 1, 2, 12.5, 13.5, 14.5]
    # A step that does not follow its predecessor continues nobody; the gap between the tokens is a decision row.
    assert [s["continuing_seqs"] for s in result.tables["steps"]] == [0, 1, 1, 0, 1, 1]
    gaps = [d for d in result.tables["decisions"] if d["action"] == "gap"]
    assert [(d["stage"], d["value"]) for d in gaps] == [(0, round(10.5 * STEP_NS))]


@pytest.mark.parametrize("fast_forward", [True, False])
def test_a_pause_lets_arrivals_wait(fast_forward: bool) -> None:
    case = Case()
    case.call(4, 2)
    case.call(4, 2, at_ns=3 * STEP_NS)
    fault = FaultConfig(pause_at_s=2.5 * STEP_NS / 1e9, pause_for_s=10 * STEP_NS / 1e9)
    result = run(case, config=replace(OPEN, fault=fault), fast_forward=fast_forward)
    assert result.ns("admitted_ns") == [0, round(12.5 * STEP_NS)]


def test_steps_cost_what_the_profile_says() -> None:
    profile = replace(
        flat_profile(0, kv_read_ps_per_token=7_000, per_seq_ps=300_000),
        overhead_ps=2_000_000, overhead_per_seq_ps=100_000,
        linear_tokens=(1, 100), linear_ps=(1_000_000, 10_900_000),
    )  # fmt: skip
    case = Case()
    case.call(10, 3)
    result = run(case, profile=profile)
    fixed = 2_000 + 400  # overhead, and one sequence
    decode = [fixed + 1_000 + 7 * context for context in (11, 12)]
    assert [s["duration_ns"] for s in result.tables["steps"]] == [fixed + 1_900, *decode]
