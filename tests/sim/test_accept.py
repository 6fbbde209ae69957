"""The acceptance process has the probabilities it states, whatever its autocorrelation; replay compares tokens."""

from __future__ import annotations

import numpy as np
import pytest
from drafting import truth

from policies.views import Draft
from sim.accept import Acceptance
from sim.config import AcceptConfig
from sim.worlds import random_world, with_token_ids
from traces.errors import InputError

N = 20_000


def draft(tokens: np.ndarray) -> Draft:
    return Draft(tokens.astype(np.uint32), np.ones(len(tokens), dtype=np.float32))


def bare() -> object:
    return random_world(1, faults=False).workload


@pytest.mark.parametrize("rate", [0.3, 0.6, 0.85])
@pytest.mark.parametrize("k", [1, 3, 7])
def test_tokens_a_step_follow_leviathans_formula(rate: float, k: int) -> None:
    process = Acceptance(bare(), AcceptConfig(rate=rate), seed=3)  # type: ignore[arg-type]
    tokens = draft(np.zeros(k))
    # Steps far apart share no position, so that they are independent.
    mean = np.mean([1 + process.prefix(0, 100 * i, tokens, k) for i in range(N // 4)])
    assert mean == pytest.approx((1 - rate ** (k + 1)) / (1 - rate), rel=0.03)


@pytest.mark.parametrize("sticky", [0.0, 0.5, 0.8])
def test_autocorrelation_is_what_it_says_and_leaves_the_rate(sticky: float) -> None:
    process = Acceptance(bare(), AcceptConfig(rate=0.4, autocorrelation=sticky), seed=5)  # type: ignore[arg-type]
    tokens = draft(np.zeros(1))
    got = np.array([process.prefix(2, i, tokens, 1) for i in range(N)])
    assert got.mean() == pytest.approx(0.4, abs=0.03)
    assert np.corrcoef(got[1:], got[:-1])[0, 1] == pytest.approx(sticky, abs=0.04)


def test_each_place_in_the_draft_has_its_own_probability() -> None:
    stated = (0.9, 0.5, 0.2)
    process = Acceptance(bare(), AcceptConfig(), seed=1, stated=stated)  # type: ignore[arg-type]
    tokens = draft(np.zeros(4))
    got = np.array([process.prefix(0, 100 * i, tokens, 4) for i in range(N // 4)])
    for place, expected in enumerate((0.9, 0.5, 0.2, 0.2)):
        reached = got >= place
        assert np.mean(got[reached] > place) == pytest.approx(expected, abs=0.05)


def test_two_arms_that_draft_the_same_position_meet_the_same_luck() -> None:
    process = Acceptance(bare(), AcceptConfig(rate=0.5, autocorrelation=0.3), seed=1)  # type: ignore[arg-type]
    for position in range(200):
        long = process.prefix(4, position, draft(np.zeros(6)), 6)
        for k in range(1, 6):
            assert process.prefix(4, position, draft(np.ones(k)), k) == min(k, long)


def test_replay_accepts_the_longest_equal_prefix() -> None:
    world = random_world(3, faults=False)
    workload = with_token_ids(world.workload)
    replay = Acceptance(workload, AcceptConfig(rate=1.0), seed=0)
    assert replay.replayed
    for stage, ids in truth(workload).items():
        for position in range(len(ids)):
            rest = ids[position:]
            for wrong in range(len(rest) + 1):
                tokens = np.array([t + (i == wrong) for i, t in enumerate(rest)] + [1, 1])
                assert replay.prefix(stage, position, draft(tokens), len(tokens)) == wrong
                assert replay.prefix(stage, position, draft(tokens), 1) == min(wrong, 1)


def test_impossible_probabilities_are_refused() -> None:
    with pytest.raises(InputError, match=r"accept.positions=\[0.5, 1.5\]: expected numbers from 0 to 1"):
        AcceptConfig(positions=(0.5, 1.5))
