"""The captured widths of vLLM, and what a step is padded to."""

from __future__ import annotations

from dataclasses import replace

import pytest

from policies.api import BatchShape, Bucketer, GraphChoice
from policies.laws import toy_host
from policies.registry import load
from traces.errors import InputError


def pick(shape: BatchShape, **options: object) -> GraphChoice:
    bucketer = load("bucketers", "vllm_ladder", options)
    assert isinstance(bucketer, Bucketer)
    host = replace(toy_host(), max_num_seqs=512)
    return bucketer.pick(bucketer.new_state(host), bucketer.plan(host), shape)


def decode(seqs: int, query: int = 1) -> BatchShape:
    return BatchShape(seqs, query, seqs * query, 0, seqs * 100)


def test_the_ladder_is_twice_the_sequences_up_to_512() -> None:
    bucketer = load("bucketers", "vllm_ladder")
    assert isinstance(bucketer, Bucketer)
    assert bucketer.plan(replace(toy_host(), max_num_seqs=8)) == (1, 2, 4, 8, 16)
    wide = bucketer.plan(replace(toy_host(), max_num_seqs=1024))
    assert wide[:6] == (1, 2, 4, 8, 16, 24)
    assert wide[-3:] == (480, 496, 512)
    assert len(wide) == 3 + 31 + 17


@pytest.mark.parametrize(("seqs", "width"), [(1, 1), (3, 4), (5, 8), (250, 256), (257, 272), (512, 512)])
def test_a_step_is_padded_to_the_next_width(seqs: int, width: int) -> None:
    got = pick(decode(seqs))
    assert (got.key, got.executed, got.active, got.holds_until_tokens) == (width, width, width, width)


def test_a_step_wider_than_the_ladder_runs_eagerly_unpadded() -> None:
    assert pick(decode(513)) == GraphChoice(None, 513, 513)


def test_full_graphs_hold_whole_sequences() -> None:
    assert pick(decode(5, query=4)).executed == 24  # 20 tokens: widths 4, 8, 16, 24, ...
    assert pick(decode(3, query=5)).executed == 20  # 15 tokens: 16 rounded up to a multiple of 5
    assert pick(decode(3, query=5), mode="piecewise").executed == 16


def test_ragged_and_mixed_steps_have_piecewise_graphs_only() -> None:
    ragged, mixed = BatchShape(5, 0, 13, 0, 100), BatchShape(5, 1, 13, 1, 100)
    for shape in (ragged, mixed):
        assert pick(shape).executed == 16
        assert pick(shape, mode="full_decode_only").key is None
        assert pick(shape, mode="none").key is None


def test_a_full_graph_holds_no_more_sequences_than_the_engine() -> None:
    bucketer = load("bucketers", "vllm_ladder", {"uniform_tokens": 4})
    assert isinstance(bucketer, Bucketer)
    host = replace(toy_host(), max_num_seqs=10)
    captured = bucketer.plan(host)
    assert captured == (4, 8, 16), "rounded up to whole queries"
    state = bucketer.new_state(host)
    assert not bucketer.pick(state, captured, decode(4, query=4)).piecewise
    alone = load("bucketers", "vllm_ladder", {"max_tokens": 16})
    assert isinstance(alone, Bucketer)
    widths = alone.plan(host)
    assert not alone.pick(alone.new_state(host), widths, decode(8)).piecewise
    assert alone.pick(alone.new_state(host), widths, decode(9)).piecewise, "16 is more than 10 sequences"


def test_an_unknown_mode_is_refused_with_the_nearest() -> None:
    with pytest.raises(InputError, match=r"unknown bucketer.mode 'piecwise'; did you mean 'piecewise'"):
        load("bucketers", "vllm_ladder", {"mode": "piecwise"})
