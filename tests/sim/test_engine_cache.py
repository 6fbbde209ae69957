"""Prefix reuse: what is hit, when, and what leaves to make room."""

from __future__ import annotations

import pytest
from engine_cases import STEP_NS, Case, Result, run

from traces.tables import CACHE_EVENTS

FAR_NS = 1_000 * STEP_NS


def events(result: Result, kind: str) -> list[tuple[int, int]]:
    return [(b["stage"], b["blocks"]) for b in result.tables["blocks"] if CACHE_EVENTS[b["event"]] == kind]


@pytest.mark.parametrize("prefix_cache", ["radix", "block_hash"])
def test_at_most_all_but_one_prompt_token_is_hit(prefix_cache: str) -> None:
    case = Case()
    case.call(8, 1, units=[1, 2])
    case.call(8, 1, units=[1, 2], at_ns=FAR_NS)
    case.call(9, 1, units=[1, 2], at_ns=2 * FAR_NS)
    result = run(case, prefix_cache=prefix_cache)
    assert result.ns("gpu_hit_tokens") == [0, 4, 8]
    assert result.ns("prefilled_tokens") == [8, 4, 1]


def test_without_a_cache_nothing_is_hit() -> None:
    case = Case()
    case.call(8, 1, units=[1, 2])
    case.call(9, 1, units=[1, 2], at_ns=FAR_NS)
    result = run(case, prefix_cache="none")
    assert result.ns("gpu_hit_tokens") == [0, 0]
    assert not result.tables["blocks"]
    assert {s["kv_blocks_cached"] for s in result.tables["steps"]} == {0}


def test_only_full_blocks_are_hit() -> None:
    case = Case()
    case.call(10, 1, units=[1, 2, 3])
    case.call(20, 1, units=[1, 2, 3, 4, 5], at_ns=FAR_NS)
    assert run(case).ns("gpu_hit_tokens") == [0, 8]


def test_a_prefix_longer_than_a_chunk_is_found_whole() -> None:
    case = Case()
    case.call(40, 1, units=range(10))
    case.call(44, 1, units=range(11), at_ns=FAR_NS)
    result = run(case, max_num_batched_tokens=8, max_num_seqs=4)
    assert result.ns("gpu_hit_tokens") == [0, 40]
    assert result.steps[-1] == (1_000, 0, 4)


def test_a_generated_answer_is_hit_by_the_next_turn() -> None:
    case = Case()
    first = case.call(8, 9, units=[1, 2], sequence=[1, 2, 3, 4, 5])
    case.more(20, 1, parents=[first], units=[1, 2, 3, 4, 6])
    result = run(case)
    # Tokens 0 to 15 of the first have KV: its last token was never read.
    assert result.requests[1]["gpu_hit_tokens"] == 16
    assert run(case, prefix_cache="radix").requests[1]["gpu_hit_tokens"] == 16


def test_blocks_are_known_when_scheduled_or_when_computed() -> None:
    case = Case()
    case.call(12, 1, units=[1, 2, 3])
    case.call(12, 1, units=[1, 2, 9])
    # The second of a step hits what the first is about to write in vLLM; a radix tree has it after the step.
    assert run(case, prefix_cache="block_hash").ns("gpu_hit_tokens") == [0, 8]
    assert run(case, prefix_cache="radix").ns("gpu_hit_tokens") == [0, 0]


@pytest.mark.parametrize(("prefix_cache", "left"), [("block_hash", 8), ("radix", 0)])
def test_only_the_shortfall_leaves_or_a_whole_leaf(prefix_cache: str, left: int) -> None:
    case = Case()
    case.call(16, 1, units=[1, 2, 3, 4])
    case.call(24, 1, units=[11, 12, 13, 14, 15, 16], at_ns=FAR_NS)
    case.call(17, 1, units=[1, 2, 3, 4], at_ns=2 * FAR_NS)
    # Eight blocks: the second needs six, four are free.
    result = run(case, blocks=8, prefix_cache=prefix_cache)
    assert result.requests[2]["gpu_hit_tokens"] == left
    cached = [s["kv_blocks_cached"] for s in result.tables["steps"]]
    assert cached[1] == left // 4


def test_what_a_running_request_reads_does_not_leave() -> None:
    case = Case()
    case.call(16, 30, units=[1, 2, 3, 4])
    case.call(12, 1, units=[21, 22, 23], at_ns=2 * STEP_NS)
    case.call(17, 1, units=[1, 2, 3, 4], at_ns=FAR_NS)
    result = run(case, blocks=12)
    assert result.requests[2]["gpu_hit_tokens"] == 16
    assert {stage for stage, _ in events(result, "evict")} <= {1}


def test_the_least_recently_used_leaves_first() -> None:
    case = Case()
    case.call(8, 1, units=[1, 2])
    case.call(8, 1, units=[3, 4], at_ns=FAR_NS)
    case.call(9, 1, units=[1, 2], at_ns=2 * FAR_NS)  # used again
    case.call(16, 1, units=[5, 6, 7, 8], at_ns=3 * FAR_NS)
    case.call(9, 1, units=[1, 2], at_ns=4 * FAR_NS)
    result = run(case, blocks=6)
    assert events(result, "evict")[0] == (1, 2)
    assert result.requests[4]["gpu_hit_tokens"] == 8


def test_rows_of_the_cache_tell_hits_inserts_and_evictions() -> None:
    case = Case()
    case.call(8, 1, units=[1, 2])
    case.call(13, 1, units=[1, 2, 3], at_ns=FAR_NS)
    result = run(case)
    assert events(result, "insert") == [(0, 2), (1, 1)]
    assert events(result, "hit") == [(1, 2)]
    assert events(result, "evict") == []
