"""Drafters that are a stated process accept what Leviathan et al. 2023, equation 1, says."""

from __future__ import annotations

import math

import numpy as np
import pytest

from policies.drafters.eagle3 import Eagle3
from policies.drafters.mtp import Mtp
from policies.laws import toy_host
from policies.registry import load
from sim.accept import Acceptance
from sim.config import AcceptConfig
from sim.worlds import random_world
from traces.errors import InputError


@pytest.mark.parametrize(("a", "k"), [(0.5, 1), (0.7, 3), (0.9, 8), (0.0, 4), (1.0, 4)])
def test_tokens_a_step_are_those_of_a_fixed_acceptance_probability(a: float, k: int) -> None:
    drafter = Eagle3(k=k, rates=str(a))
    acceptance = Acceptance(random_world(0).workload, AcceptConfig(), 5, drafter.acceptance())
    n = 4000
    # Drafts further apart than they are long share no draw.
    steps = [1 + acceptance.prefix(stage, 0, drafter.propose(None, 0, k), k) for stage in range(n)]
    expected = k + 1 if a == 1 else (1 - a ** (k + 1)) / (1 - a)
    spread = float(np.std(steps))
    assert abs(float(np.mean(steps)) - expected) <= 4 * spread / math.sqrt(n)


def test_a_draft_is_as_confident_as_its_process() -> None:
    draft = Eagle3(k=4, rates="0.9/0.5").propose(None, 0, 3)
    assert draft.confidence.tolist() == pytest.approx([0.9, 0.45, 0.225])
    assert len(Eagle3(k=4).propose(None, 0, 0).tokens) == 0


def test_a_pass_of_the_draft_model_costs_its_share_of_a_step_of_the_batch() -> None:
    profile = toy_host().profile
    drafter = Mtp(k=3, step_permille=100, fixed_permille=50)
    step_ps = profile.step_ps(8, 8, 4000)
    assert drafter.cost_ps(profile, 8, 24, 4000) == step_ps * 350 // 1000
    assert drafter.cost_ps(profile, 8, 0, 4000) == 0


@pytest.mark.parametrize("rates", ["", "1.2", "0.5/x"])
def test_bad_rates_are_one_clear_line(rates: str) -> None:
    with pytest.raises(InputError, match="rates="):
        load("drafters", "eagle3", {"rates": rates})
