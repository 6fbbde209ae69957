"""Candidate drafters: what each ranks by, and that none learns the answer from the menu's order."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from policies.laws import toy_host
from policies.registry import load
from policies.views import BranchView
from traces import draws

SCORES = {"retrieval": (0.1, 0.7, -1.0, 0.2), "entity": (0.9, float("nan"), 0.3, 0.1)}


def branch(i: int = 0, history: tuple[int, ...] = (), menu: tuple[int, ...] = (0, 1, 2, 3)) -> BranchView:
    return BranchView(i, i, 1, 0, 0, history, menu, menu, SCORES if menu else {})


def ranking(name: str, view: BranchView, limit: int = 4, state: Any = None, **options: Any) -> list[int]:
    policy: Any = load("candidates", name, options)
    return [c.outcome for c in policy.propose(state or policy.new_state(toy_host()), view, limit)]


def taught(name: str, seen: list[tuple[tuple[int, ...], int]], **options: Any) -> tuple[Any, Any]:
    policy: Any = load("candidates", name, options)
    state = policy.new_state(toy_host())
    for i, (history, outcome) in enumerate(seen):
        policy.observe(state, branch(i, history), outcome, outcome)
    return policy, state


def test_scores_are_ranked_and_what_a_ranker_cannot_name_is_not_proposed() -> None:
    assert ranking("retrieval", branch()) == [1, 3, 0]
    assert ranking("entity", branch()) == [0, 2, 3]
    assert ranking("entity", branch(), limit=2) == [0, 2]
    assert ranking("retrieval", branch(), kind="nobody") == []


def test_frequency_follows_its_context_and_falls_back_on_the_coordinate() -> None:
    seen = [((7,), 2)] * 5 + [((8,), 1)] * 3 + [((9,), 0)]
    policy, state = taught("frequency", seen)
    assert [c.outcome for c in policy.propose(state, branch(99, (8,)), 1)] == [1]
    assert [c.outcome for c in policy.propose(state, branch(99, (5,)), 3)] == [2, 1, 0]
    assert policy.propose(state, branch(99, (7,), menu=()), 1)[0].outcome == 2  # an open space: what was seen


def test_frequency_takes_the_arguments_seen_most_with_the_outcome() -> None:
    policy: Any = load("candidates", "frequency", {"context": 0})
    state = policy.new_state(toy_host())
    for arguments in (5, 6, 6):
        policy.observe(state, branch(menu=()), 1, arguments)
    assert [(c.outcome, c.arguments) for c in policy.propose(state, branch(menu=()), 1)] == [(1, 6)]


def test_markov_uses_the_longest_context_it_has_seen() -> None:
    policy, state = taught("markov", [((1, 2), 3), ((5, 2), 0), ((5, 2), 0), ((4,), 1)])
    assert policy.propose(state, branch(9, (1, 2)), 1)[0].outcome == 3
    assert policy.propose(state, branch(9, (8, 2)), 1)[0].outcome == 0
    assert len(policy.propose(policy.new_state(toy_host()), branch(9), 9)) == 4


def test_a_pattern_needs_support_and_says_how_reliable_it_is() -> None:
    policy, state = taught("pattern", [((1,), 3)] * 4, support=5)
    assert policy.propose(state, branch(9, (1,)), 4) == []
    policy, state = taught("pattern", [((1,), 3)] * 6 + [((1,), 0)] * 2, support=5)
    best, *_ = policy.propose(state, branch(9, (1,)), 4)
    assert (best.outcome, best.score) == (3, 0.75)


class Knows:
    def choice(self, view: BranchView) -> tuple[int, int]:
        return view.stage % 4, view.stage % 4


@pytest.mark.parametrize(("accuracy", "coverage"), [(1.0, 1.0), (0.6, 0.9), (0.0, 0.5)])
def test_the_oracle_is_as_accurate_as_dialled(accuracy: float, coverage: float) -> None:
    policy: Any = load("candidates", "oracle", {"accuracy": accuracy, "coverage": coverage})
    state = policy.new_state(replace(toy_host(), branch_oracle=Knows()))
    first = covered = 0
    n = 3000
    for i in range(n):
        got = [c.outcome for c in policy.propose(state, branch(i), 3)]
        first += got[:1] == [i % 4]
        # What it leaves out it may still name by chance among the distractors: never the truth.
        covered += i % 4 in got
    assert first / n == pytest.approx(accuracy, abs=0.04)
    assert covered / n == pytest.approx(coverage, abs=0.04)


def test_the_oracle_s_arguments_are_as_accurate_as_dialled() -> None:
    policy: Any = load("candidates", "oracle", {"arguments": 0.7})
    state = policy.new_state(replace(toy_host(), branch_oracle=Knows()))
    right = sum(policy.propose(state, branch(i), 1)[0].arguments == i % 4 for i in range(2000))
    assert right / 2000 == pytest.approx(0.7, abs=0.05)


def test_random_candidates_are_right_by_chance_alone() -> None:
    policy: Any = load("candidates", "random")
    state = policy.new_state(toy_host())
    first = [policy.propose(state, branch(i), 1)[0].outcome for i in range(4000)]
    for truth in range(4):
        assert first.count(truth) / 4000 == pytest.approx(0.25, abs=0.035)


@pytest.mark.parametrize("name", ["frequency", "markov", "random", "retrieval", "entity", "draft_lm"])
def test_the_order_of_the_menu_says_nothing(name: str) -> None:
    # Menus of traces may list the chosen option first: another order must give the same ranking.
    for i in range(50):
        order = sorted(range(4), key=lambda k, i=i: draws.bits(i, "shuffle", k))  # type: ignore[misc]
        view = branch(i)
        tied = replace(view, scores=dict.fromkeys(SCORES, (0.5,) * 4))
        shuffled = replace(
            tied,
            menu=tuple(view.menu[k] for k in order),
            menu_arguments=tuple(view.menu_arguments[k] for k in order),
        )
        assert ranking(name, tied) == ranking(name, shuffled)


def test_a_draft_lm_votes_by_its_distribution_and_sharpens() -> None:
    policy: Any = load("candidates", "draft_lm", {"samples": 64})
    state = policy.new_state(toy_host())
    votes = dict.fromkeys(range(4), 0.0)
    for i in range(100):
        for c in policy.propose(state, branch(i), 4):
            votes[c.outcome] += c.score / 100
    assert votes[1] == pytest.approx(0.7, abs=0.03)
    assert votes[2] == 0
    sharp: Any = load("candidates", "draft_lm", {"samples": 64, "sharpness": 4.0})
    assert sharp.propose(state, branch(), 1)[0].score > 0.95


def test_a_draft_lm_costs_what_its_own_profile_says(tmp_path: Path) -> None:
    assert load("candidates", "draft_lm").cost_ns(None, branch(), 4) is None  # type: ignore[attr-defined]
    file = tmp_path / "drafter.json"
    file.write_text(toy_host().profile.to_json())
    costs = []
    for samples in (1, 8):
        policy: Any = load("candidates", "draft_lm", {"profile": str(file), "samples": samples})
        costs.append(policy.cost_ns(policy.new_state(toy_host()), branch(), 4))
        assert policy.files() == (file,)
    assert 0 < costs[0] < costs[1] < 8 * costs[0]
