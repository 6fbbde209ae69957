"""Laws of the predictors that need no training extra: counts, neighbours, noise, uniform and oracle."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from policies.api import Predictor, WorkflowView
from policies.laws import check, toy_host
from policies.registry import load
from traces import draws
from traces.errors import InputError

HOST = toy_host()


def chain(seed: int, workflow: int) -> tuple[int, ...]:
    """A draw of a second-order process over three agents: what follows depends on the last two."""
    run = [workflow % 3]
    while len(run) < 9:
        luck = draws.uniform(seed, "chain", workflow, len(run))
        if len(run) > 2 and luck < 0.25:
            break
        before = run[-2] if len(run) > 1 else 0
        run.append((run[-1] + before + (luck > 0.9)) % 3)
    return tuple(run)


def learnt(policy: Predictor[Any], runs: list[tuple[int, ...]]) -> Any:
    state = policy.new_state(HOST)
    for w, run in enumerate(runs):
        for t in range(1, len(run) + 1):
            policy.observe(state, WorkflowView(w, run[:t], t))
        policy.workflow_finished(state, WorkflowView(w, run, len(run)))
    return state


def made(name: str, **options: object) -> Predictor[Any]:
    return load("predictors", name, options)  # type: ignore[return-value]


def brute(runs: list[tuple[int, ...]], context: tuple[int, ...], k: int) -> NDArray[np.float64]:
    """Outcomes k steps after `context`, among the workflows that get so far, counted the slow way."""
    out = np.zeros(4)
    for run in runs:
        whole = (-2, -2, -2, *run, 3)
        for t in range(3, len(run) + 3):
            if whole[t + 1 - len(context) : t + 1] == context and t + k < len(whole):
                out[whole[t + k]] += 1
    return out


def test_markov_approaches_the_frequencies_of_its_context() -> None:
    runs = [chain(1, w) for w in range(600)]
    policy = made("markov", order=2)
    state = learnt(policy, runs)
    for context in ((0, 1), (1, 1), (2, 0)):
        got = policy.forecast(state, WorkflowView(0, context, 0))
        for k in range(3):
            count = brute(runs, context, k + 1)
            assert count.sum() > 100
            assert np.abs(got[k] - count / count.sum()).max() < 0.03


def test_a_step_is_conditional_on_getting_that_far() -> None:
    policy = made("markov", order=1)
    state = learnt(policy, [(0,)] * 90 + [(0, 1, 2)] * 10)
    p = policy.forecast(state, WorkflowView(0, (0,), 0))
    assert p[0, 3] == pytest.approx(0.9, abs=0.02)
    assert p[1, 2] > 0.9  # of the ten that get to a second step
    assert p[2, 3] > 0.85  # of the same ten, whose third step is the end


def test_longer_contexts_decide_where_they_were_seen_and_back_off_where_not() -> None:
    runs = [(0, 1, 2)] * 20 + [(2, 1, 0)] * 20
    policy = made("markov", order=2)
    state = learnt(policy, runs)
    assert policy.forecast(state, WorkflowView(0, (0, 1), 0))[0].argmax() == 2
    assert policy.forecast(state, WorkflowView(0, (2, 1), 0))[0].argmax() == 0
    unseen = policy.forecast(state, WorkflowView(0, (1, 1), 0))[0]
    shorter = made("markov", order=1).forecast(
        learnt(made("markov", order=1), runs), WorkflowView(0, (1,), 0)
    )[0]
    np.testing.assert_array_equal(unseen, shorter)


def test_a_longer_memory_tells_what_a_shorter_cannot() -> None:
    learn, test = [chain(1, w) for w in range(300)], [chain(1, w) for w in range(300, 400)]

    def right(name: str, **options: object) -> float:
        policy = made(name, online=False, **options)
        online = made(name, **options)
        state = learnt(online, learn)
        marks = [
            int(policy.forecast(state, WorkflowView(0, run[:t], 0))[0].argmax() == (*run, 3)[t])
            for run in test
            for t in range(1, len(run) + 1)
        ]
        return sum(marks) / len(marks)

    first = right("markov", order=1)
    assert right("markov", order=2) > first + 0.1
    assert right("knn") > first + 0.1


def test_a_frozen_predictor_learns_nothing() -> None:
    for name in ("markov", "knn"):
        policy = made(name, online=False)
        state = learnt(policy, [(0, 1, 2)] * 5)
        np.testing.assert_allclose(policy.forecast(state, WorkflowView(0, (0,), 0)), 0.25)


def test_equally_near_prefixes_vote_together_in_any_order() -> None:
    runs = [chain(2, w) for w in range(60)]
    policy = made("knn", neighbours=3, window=4)
    a, b = learnt(policy, runs), learnt(policy, runs[::-1])
    for run in runs[:20]:
        view = WorkflowView(0, run, 0)
        np.testing.assert_array_equal(policy.forecast(a, view), policy.forecast(b, view))


def test_neighbours_never_exceed_their_limit() -> None:
    policy = made("knn", prefixes_max=7)
    state = learnt(policy, [chain(3, w) for w in range(60)])
    assert len(state) == 7


@pytest.mark.parametrize("end", [False, True])
def test_noise_is_the_mixture_of_the_equation(end: bool) -> None:
    runs = [chain(4, w) for w in range(50)]
    inner, noisy = made("markov", order=2), made("noise", inner="markov(order=2)", level=0.3, end=end)
    plain, mixed = learnt(inner, runs), learnt(noisy, runs)
    view = WorkflowView(0, (0, 1), 0)
    p, q = inner.forecast(plain, view), noisy.forecast(mixed, view)
    if end:
        np.testing.assert_allclose(q, 0.7 * p + 0.3 / 4, atol=1e-6)
    else:
        np.testing.assert_allclose(q[:, 3], p[:, 3], atol=1e-6)
        np.testing.assert_allclose(q[:, :3], 0.7 * p[:, :3] + 0.3 * (1 - p[:, 3:]) / 3, atol=1e-6)


@pytest.mark.parametrize("inner", ["markov", "knn(window=3)", "oracle", "uniform"])
@pytest.mark.parametrize("level", [0.0, 1.0])
def test_noise_over_any_predictor_keeps_the_laws(inner: str, level: float) -> None:
    policy = made("noise", inner=inner, level=level)
    assert policy.needs == made(inner.partition("(")[0]).needs
    check(policy, range(1))


def test_full_noise_tells_workflows_apart_by_their_end_alone() -> None:
    policy = made("noise", inner="markov", level=1.0)
    p = policy.forecast(learnt(policy, [chain(5, w) for w in range(50)]), WorkflowView(0, (0,), 0))
    np.testing.assert_allclose(p[:, :3], np.broadcast_to(p[:, :1], (3, 3)), atol=1e-7)


def test_the_uniform_forecast_leaves_out_the_end_unless_asked() -> None:
    view = WorkflowView(0, (0,), 0)
    policy = made("uniform", horizon=2)
    np.testing.assert_allclose(policy.forecast(policy.new_state(HOST), view), [[1 / 3] * 3 + [0]] * 2)
    policy = made("uniform", horizon=1, end=True)
    np.testing.assert_allclose(policy.forecast(policy.new_state(HOST), view), [[0.25] * 4])
    nobody = replace(HOST, agents=())
    policy = made("uniform", horizon=1)
    np.testing.assert_allclose(policy.forecast(policy.new_state(nobody), view), [[1.0]])


def test_an_agent_without_a_name_is_context_and_no_outcome() -> None:
    for name in ("markov", "knn"):
        policy = made(name)
        state = learnt(policy, [(0, -1, 2)] * 9)
        assert policy.forecast(state, WorkflowView(0, (0, -1), 0))[0].argmax() == 2
        assert policy.forecast(state, WorkflowView(0, (0,), 0))[1].argmax() == 2


@pytest.mark.parametrize(
    ("name", "options", "words"),
    [
        ("markov", {"order": 4}, "order=4, allowed: 1 to 3"),
        ("markov", {"horizon": 0}, "horizon=0"),
        ("knn", {"neighbours": 0}, "neighbours=0, allowed: 1 to 1000"),
        ("uniform", {"horizon": 0}, "horizon=0"),
        ("oracle", {"horizon": 0}, "horizon=0"),
        ("noise", {"level": 1.1}, "level=1.1, allowed: 0 to 1"),
        ("noise", {"inner": "markow"}, "unknown predictor 'markow'; did you mean 'markov'"),
        ("noise", {"inner": "noise"}, "name another predictor"),
        ("noise", {"inner": "markov(ordr=2)"}, "did you mean 'order'"),
        ("noise", {"inner": "markov(order=2"}, "expected a predictor's name"),
    ],
)
def test_a_bad_option_is_refused(name: str, options: dict[str, object], words: str) -> None:
    with pytest.raises(InputError, match=words.replace("(", r"\(")):
        made(name, **options)


def test_the_oracle_is_refused_without_one() -> None:
    with pytest.raises(InputError, match="this host has no oracle"):
        made("oracle").new_state(HOST)
