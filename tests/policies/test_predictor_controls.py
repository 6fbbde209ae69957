"""Controls: a shuffled forecast is another workflow's, and keeps nothing of the own prefix."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from policies.api import HostInfo, WorkflowView
from policies.laws import toy_host
from policies.predictors.markov import Markov
from policies.predictors.shuffled import Shuffled
from traces.errors import InputError

HOST: HostInfo = toy_host()


def views() -> list[WorkflowView]:
    """Return six workflows, each with an agent order of its own."""
    return [WorkflowView(w, tuple((w + k * (1 + w % 2)) % 3 for k in range(3 + w)), 0) for w in range(6)]


def state_of(policy: Any) -> Any:
    state = policy.new_state(HOST)
    for view in views():
        for t in range(1, len(view.agents) + 1):
            policy.observe(state, WorkflowView(view.workflow, view.agents[:t], 0))
    return state


def test_a_shuffled_forecast_is_what_the_inner_predictor_says_of_another_workflow() -> None:
    inner, policy = Markov(), Shuffled("markov")
    known, state = state_of(inner), state_of(policy)
    whose = set()
    for view in views():
        got = policy.forecast(state, view)
        owners = [o.workflow for o in views() if np.array_equal(inner.forecast(known, o), got)]
        assert owners
        assert state.other(view).workflow != view.workflow
        whose.add(state.other(view).workflow)
    assert len(whose) > 1


def test_a_workflow_that_is_alone_keeps_its_forecast() -> None:
    policy = Shuffled("markov")
    state = state_of(policy)
    for view in views()[1:]:
        policy.workflow_finished(state, view)
    alone = views()[0]
    assert state.other(alone) is alone


def test_exchanged_agents_keep_the_mass_of_each_step_and_end() -> None:
    plain, policy = Shuffled("markov"), Shuffled("markov", agents=True)
    a, b = state_of(plain), state_of(policy)
    moved = 0
    for view in views():
        p, q = plain.forecast(a, view), policy.forecast(b, view)
        assert np.array_equal(np.sort(p[:, :-1], axis=1), np.sort(q[:, :-1], axis=1))
        assert np.array_equal(p[:, -1], q[:, -1])
        moved += not np.array_equal(p, q)
    assert moved > 2


@pytest.mark.parametrize(
    ("inner", "words"),
    [
        ("oracle", "an oracle"),
        ("shuffled", "shuffled over shuffled"),
        ("markov(order", "expected a predictor's name"),
    ],
)
def test_what_cannot_be_shuffled_is_refused(inner: str, words: str) -> None:
    with pytest.raises(InputError, match=words):
        Shuffled(inner)
