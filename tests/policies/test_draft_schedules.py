"""Draft lengths of schedules: bounds, direction, and what they learn."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from policies._draft_schedules import adaedl, opt_tree, pearl
from policies.api import Drafter, RequestView
from policies.laws import toy_host
from policies.registry import load
from traces.errors import InputError


@given(st.integers(1, 2000), st.integers(1, 16))
def test_pearl_falls_from_the_widest_to_one(length: int, d_max: int) -> None:
    widths = [pearl.width(n, length, d_max) for n in range(length + 1)]
    assert widths[0] == d_max
    assert widths[-1] == 1
    assert all(a >= b for a, b in pairwise(widths))


@given(st.lists(st.floats(0, 1, exclude_max=True), min_size=1, max_size=12), st.floats(0.1, 5))
def test_adaptive_widths_lie_between_one_and_the_most(draws: list[float], mean: float) -> None:
    for width in (adaedl.width(draws, mean, 0.5), opt_tree.width(draws, mean)):
        assert 1 <= width <= len(draws)


def test_a_higher_threshold_or_a_flatter_draft_never_lengthens_a_draft() -> None:
    rng = [((i * 37) % 101) / 101 for i in range(8)]
    by_threshold = [adaedl.width(rng, 1.0, t / 10) for t in range(11)]
    assert by_threshold == sorted(by_threshold, reverse=True)
    for of in (lambda m: adaedl.width(rng, m, 0.5), lambda m: opt_tree.width(rng, m)):
        by_entropy = [of(m / 4) for m in range(1, 20)]
        assert by_entropy == sorted(by_entropy, reverse=True)


def test_the_threshold_rises_after_rejections_and_falls_after_near_misses_only() -> None:
    assert adaedl.learn(0.5, 0.5, 4, 0)[0] > 0.5
    assert adaedl.learn(0.5, 0.99, 10, 9)[0] < 0.5
    assert adaedl.learn(0.5, 1.0, 4, 4) == (0.5, 1.0)


@pytest.mark.parametrize(("bonus", "widths"), [(False, [7, 3, 0]), (True, [8, 4, 1])])
def test_the_steps_own_token_counts_unless_there_is_a_bonus(bonus: bool, widths: list[int]) -> None:
    policy = load("drafters", "scheduled", {"bonus": bonus})
    assert isinstance(policy, Drafter)
    state = policy.new_state(toy_host())
    policy.begin(state, RequestView(3, 3, 0, 0, 0, 10, output_length_tokens=100), np.zeros(0, np.uint32))
    got = []
    for emitted in (0, 50, 49):
        policy.commit(state, 3, np.zeros(emitted, dtype=np.uint32))
        got.append(len(policy.propose(state, 3, 64).tokens))
    assert got == widths


def test_impossible_options_are_refused() -> None:
    for options, message in (
        ({"rate": 2}, "rate=2"),
        ({"d_max": 0}, "d_max=0"),
        ({"entropy": 0}, "entropy=0"),
    ):
        with pytest.raises(InputError, match=message):
            load("drafters", "scheduled", options)
