"""Laws of graph bucketing: which graph a decode step runs in, and what it pads."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from policies._rectangles import distinct_products, geometric_widths
from policies.api import Bucketer, HostInfo
from policies.laws import toy_host
from policies.registry import load
from policies.views import BatchShape, GraphChoice
from traces.errors import InputError

HOST = replace(toy_host(), max_num_seqs=16)


def bucketer(name: str, **options: Any) -> Bucketer[Any]:
    policy = load("bucketers", name, options)
    assert isinstance(policy, Bucketer)
    return policy


def rectangle(seqs: int, width: int, context_max: int = 500) -> BatchShape:
    return BatchShape(seqs, width, seqs * width, 0, seqs * context_max, width, context_max)


def pick(policy: Bucketer[Any], shape: BatchShape, host: HostInfo = HOST) -> GraphChoice:
    return policy.pick(policy.new_state(host), policy.plan(host), shape)


def test_the_papers_space_has_128_pairs_and_64_16_and_1_graphs():
    pairs = [(b, d) for b in range(1, 17) for d in range(1, 9)]
    assert len(pairs) == 128
    assert [len(bucketer(n).plan(HOST)) for n in ("all_shapes", "max_pad", "plan_buffer")] == [64, 16, 1]
    assert bucketer("on_demand").plan(HOST) == bucketer("eager").plan(HOST) == ()


@pytest.mark.parametrize(("d", "percent"), [(1, 700), (4, 100), (8, 0)])
def test_padding_to_the_maximum_wastes_d_max_over_d_less_one(d: int, percent: int):
    for seqs in range(1, 17):
        got = pick(bucketer("max_pad"), rectangle(seqs, d))
        assert 100 * (got.active - seqs * d) == percent * seqs * d


@given(st.integers(1, 16), st.integers(1, 8))
def test_exact_shapes_pad_nothing_and_plan_buffers_work_on_the_rectangle_alone(seqs: int, d: int):
    shape = rectangle(seqs, d)
    assert pick(bucketer("all_shapes"), shape) == GraphChoice(seqs * d, seqs * d, seqs * d)
    for buckets in (1, 2, 5):
        policy = bucketer("plan_buffer", buckets=buckets)
        got = pick(policy, shape)
        assert (got.active, got.plan_update, got.build) == (seqs * d, True, False)
        assert got.executed == min(n for n in policy.plan(HOST) if n >= seqs * d)


def test_a_ragged_plan_works_on_the_sum_of_drafts_and_a_rectangle_on_the_longest():
    shape = BatchShape(4, 0, 4 + 0 + 1 + 2 + 7, 0, 2000, 8)
    assert pick(bucketer("plan_buffer"), shape).active == 32
    assert pick(bucketer("plan_buffer", ragged=True), shape).active == 14


def test_more_buckets_never_cover_a_step_with_a_wider_grid():
    for m in range(1, 129):
        grids = [min(n for n in geometric_widths(128, k) if n >= m) for k in (1, 2, 4, 8)]
        assert all(g <= 128 for g in grids)
        assert grids[0] == 128
        assert grids[1] >= grids[2] >= grids[3] or m > geometric_widths(128, 8)[-2]


@given(st.integers(1, 4096), st.integers(1, 32))
def test_geometric_widths_end_at_the_maximum_and_ascend(tokens_max: int, buckets: int):
    widths = geometric_widths(tokens_max, buckets)
    assert widths[-1] == tokens_max
    assert list(widths) == sorted(set(widths))
    assert len(widths) <= buckets


def test_distinct_products_are_those_of_the_multiplication_table():
    assert distinct_products(3, 3) == (1, 2, 3, 4, 6, 9)


@pytest.mark.parametrize(("bucket", "builds"), [(1, 3), (256, 2), (0, 1)])
def test_on_demand_builds_once_for_each_key(bucket: int, builds: int):
    policy = bucketer("on_demand", context_bucket_tokens=bucket)
    state = policy.new_state(HOST)
    shapes = [rectangle(4, 2, context) for context in (250, 251, 250, 257, 257, 251)]
    assert sum(policy.pick(state, (), s).build for s in shapes) == builds
    assert all(policy.pick(state, (), s).executed == 8 for s in shapes)


@pytest.mark.parametrize("name", ["all_shapes", "max_pad", "plan_buffer", "on_demand"])
def test_prefills_and_queries_wider_than_captured_run_eagerly(name: str):
    for shape in (BatchShape(4, 0, 40, 1, 900, 1), rectangle(4, 9)):
        got = pick(bucketer(name), shape)
        assert (got.key, got.executed) == (None, shape.tokens)


def test_lazy_capture_builds_each_width_once_and_ends_with_the_same_graphs():
    eager, lazy = bucketer("vllm_ladder"), bucketer("vllm_ladder", lazy=True)
    state = lazy.new_state(HOST)
    assert lazy.plan(HOST) == ()
    first = [lazy.pick(state, (), rectangle(n, 1)) for n in (3, 4, 3, 9)]
    assert [g.build for g in first] == [True, False, False, True]
    for n in range(1, 17):
        assert lazy.pick(state, (), rectangle(n, 1)).executed == pick(eager, rectangle(n, 1)).executed


def test_a_step_runs_eagerly_where_the_graph_is_more_than_twice_as_wide():
    policy = bucketer("vllm_ladder", eager_above=2)
    for n in range(1, 17):
        padded = pick(bucketer("vllm_ladder"), rectangle(n, 1)).executed
        assert pick(policy, rectangle(n, 1)).key == (None if padded > 2 * n else padded)
    # 3 of 8 at the ladder's first gap
    assert pick(bucketer("vllm_ladder", eager_above=1), rectangle(3, 1)).key is None


@pytest.mark.parametrize(
    ("name", "options", "message"),
    [
        ("max_pad", {"d_max": 0}, "d_max=0: expected from 1"),
        ("plan_buffer", {"buckets": 0}, "buckets=0: expected from 1"),
        ("on_demand", {"context_bucket_tokens": -1}, "context_bucket_tokens=-1: expected at least 0"),
        ("vllm_ladder", {"eager_above": 0}, "eager_above=0: expected at least 1"),
    ],
)
def test_impossible_options_are_refused(name: str, options: dict[str, int], message: str):
    with pytest.raises(InputError, match=message):
        load("bucketers", name, options)
