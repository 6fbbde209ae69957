from __future__ import annotations

import json

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from traces import lengths, synthetic
from traces.arrivals import poisson
from traces.builder import WorkloadBuilder
from traces.describe import describe, near_duplicates, spread
from traces.describe_text import render
from traces.reuse import prefix_reuse
from traces.schema import StageKind, Workload

UNIT = 4
calls = st.tuples(st.lists(st.integers(0, 2), max_size=5), st.lists(st.integers(0, 2), max_size=3))
flows = st.lists(
    st.tuples(st.integers(0, 3), st.lists(calls, min_size=1, max_size=4)), min_size=1, max_size=5
)


def build(workflows: list[tuple[int, list[tuple[list[int], list[int]]]]]) -> Workload:
    """Make workflows of calls (prompt units, units that the output adds) at small integer arrival times."""
    b = WorkloadBuilder("h", UNIT)
    for i, (arrival, members) in enumerate(workflows):
        b.workflow(str(i), arrival)
        for prompt, more in members:
            b.llm(
                UNIT * len(prompt) + 1,  # one private token at the end
                UNIT * len(more) + 1,
                prompt_units=np.array(prompt, np.uint64),
                sequence_units=np.array(prompt + more, np.uint64),
            )
    return b.build()


@given(flows)
@settings(max_examples=150, deadline=None)
def test_reuse_equals_a_count_over_stored_sequences(
    workflows: list[tuple[int, list[tuple[list[int], list[int]]]]],
) -> None:
    reuse = prefix_reuse(build(workflows))
    stored: list[tuple[int, list[int]]] = []
    hits, own_hits = [], []
    for w in sorted(range(len(workflows)), key=lambda i: workflows[i][0]):
        for prompt, more in workflows[w][1]:

            def longest(candidates: list[list[int]], prompt: list[int] = prompt) -> int:
                common = [next((k for k, (a, b) in enumerate(zip(c, prompt, strict=False)) if a != b), min(len(c), len(prompt))) for c in candidates]  # fmt: skip  # noqa: E501
                return UNIT * max(common, default=0)

            hits.append(longest([s for _, s in stored]))
            own_hits.append(longest([s for owner, s in stored if owner == w]))
            stored.append((w, prompt + more))
    assert reuse.hit_tokens.tolist() == hits
    assert reuse.own_hit_tokens.tolist() == own_hits


def test_percentiles_are_values_that_occur() -> None:
    assert spread(np.array([], np.int64)) is None
    figures = spread(np.array([1, 2, 3, 100]))
    assert figures == {"sum": 106.0, "mean": 26.5, "p50": 2.0, "p90": 100.0, "p99": 100.0, "max": 100.0}


def test_near_duplicate_sessions_are_found() -> None:
    b = WorkloadBuilder("d")
    for sizes in ([(5, 1), (6, 2)], [(5, 1), (6, 2)], [(5, 1), (6, 3)], [(5, 1)], [(5, 1)]):
        b.workflow("w")
        for prompt, output in sizes:
            b.llm(prompt, output)
    w = b.build()
    assert near_duplicates(w) == {"groups": 1, "workflows": 2, "largest": 2}
    assert any("near-duplicate sessions: 2 workflows" in x for x in describe(w)["warnings"])


def test_counts_rates_and_stage_kinds_are_reported() -> None:
    b = WorkloadBuilder("c")
    for i, arrival in enumerate((0, 1_000_000_000, 4_000_000_000)):
        b.workflow(str(i), arrival)
        call = b.llm(10 * (i + 1), i, agent="a")
        b.delay(StageKind.TOOL, 2_000_000, parents=[call], agent="b")
    d = describe(b.build({"not_imported": {"broken": 3}}))
    assert d["stages"] == {"llm": 3, "tool": 3, "wait": 0}
    assert d["requests_per_agent"] == {"a": 3, "b": 0}
    assert d["prompt_tokens"]["p50"] == 20
    assert d["tool_ms"]["max"] == 2
    assert d["wait_ms"] is None
    assert d["arrivals"] == {"first_s": 0, "last_s": 4, "rate_per_s": 0.5, "interarrival_cv": 0.5}
    assert "1 requests generate no token (output of 0)" in d["warnings"]
    assert "not imported: 3 broken" in render(d)


def test_shared_prefixes_shorter_than_a_block_are_warned_of() -> None:
    b = WorkloadBuilder("s", 1)
    for i in range(3):
        b.workflow(str(i))
        b.llm(40, 1, prompt_units=np.array([*range(7), *range(100 * i + 100, 100 * i + 133)], np.uint64))
    w = b.build()
    assert any("2 requests share a prefix shorter than a block of 16" in x for x in describe(w)["warnings"])
    assert not any("shorter than a block" in x for x in describe(w, engine_block_tokens=4)["warnings"])


def test_absolute_and_unordered_arrivals_are_warned_of() -> None:
    b = WorkloadBuilder("a")
    for i, arrival in enumerate((1_700_000_000 * 10**9 + 5, 1_700_000_000 * 10**9)):
        b.workflow(str(i), arrival)
        b.llm(1, 1)
    warnings = " ".join(describe(b.build())["warnings"])
    assert "not in time order (1 steps back)" in warnings
    assert "times look absolute" in warnings


def test_a_description_is_plain_json_and_text() -> None:
    w = synthetic.sessions(
        "s",
        poisson(9, 1.0, 0),
        turns=lengths.Fixed(3),
        user=lengths.Fixed(60),
        output=lengths.Fixed(8),
        think_ms=lengths.Fixed(5),
        system_tokens=64,
    )
    d = describe(w)
    assert json.loads(json.dumps(d)) == d
    reuse = d["prefix_reuse"]
    parts = reuse["of_that_within_workflow"] + reuse["of_that_only_across_workflows"]
    assert abs(parts - reuse["infinite_cache_block_hit_rate"]) < 2e-6
    assert "9 workflows, 27 requests" in render(d)
