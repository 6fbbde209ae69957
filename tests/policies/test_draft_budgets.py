"""Budgets against their equations, written once more, and against what any budget of their kind must keep."""

from __future__ import annotations

import math
from dataclasses import replace
from itertools import product
from typing import Any

import numpy as np
import pytest

from policies._budget_room import knee_tokens
from policies.api import BatchView, Budget, Draft, Proposals
from policies.budgets.adaspec import AdaSpec
from policies.budgets.batch_table import BatchTable
from policies.budgets.fixed_k import FixedK
from policies.budgets.redundancy import Redundancy
from policies.budgets.tetris import Tetris
from policies.budgets.turbospec import TurboSpec
from policies.budgets.uniform import Uniform
from policies.laws import toy_host
from policies.registry import load
from traces import draws
from traces.errors import InputError


def proposals(seed: int, seqs: int, longest: int = 12) -> Proposals:
    drafts = []
    for i in range(seqs):
        bits = draws.bits(seed, "draft", i)
        matches = bits % 9
        length = (bits >> 8) % (longest + 1) if matches else 0
        agreeing = 1 + (bits >> 16) % matches if matches else 0
        confidence = draws.uniform_array(seed, "confidence", i, np.arange(length)).cumprod()
        drafts.append(
            Draft(
                np.zeros(length, np.uint32),
                confidence.astype(np.float32),
                min(1 + (bits >> 24) % 6, length),
                matches,
                agreeing,
            )
        )
    return Proposals(
        np.arange(seqs, dtype=np.int32),
        np.array([len(d.tokens) for d in drafts], dtype=np.int32),
        drafts,
        draws.uniform_array(seed, "rate", np.arange(seqs)).astype(np.float32),
    )


def view(seqs: int, context: int = 500, prefill: int = 0) -> BatchView:
    return BatchView(0, seqs, seqs * context, prefill)


def given(budget: Budget[Any], p: Proposals) -> list[int]:
    got: list[int] = budget.allocate(budget.new_state(toy_host()), p, view(len(p.length))).tolist()
    return got


@pytest.mark.parametrize(
    "budget", [Uniform(), AdaSpec(), Tetris(), Redundancy(mode="capped")], ids=lambda b: b.label
)
def test_a_budget_that_knows_the_room_stays_within_it(budget: Budget[Any]) -> None:
    some = False
    for seed, seqs in enumerate((1, 2, 16, 100, 200, 255, 256, 257, 300)):
        total = sum(given(budget, proposals(seed, seqs)))
        assert total <= max(256 - seqs, 0)
        some |= total > 0
    assert some


@pytest.mark.parametrize("p", ["eq1", "alg2"])
@pytest.mark.parametrize("mode", ["literal", "per_request"])
def test_redundancy_is_equations_1_to_3(mode: str, p: str) -> None:
    used_share = False
    for seed, seqs in product(range(6), (1, 3, 12, 60)):
        given_ = proposals(seed, seqs)
        alpha = (64, 700)[seed % 2]
        scores = []
        for d in given_.drafts:
            exponent = (1 if p == "eq1" else 0) - d.matches
            saturation = 0.2 + 0.8 * (1 - math.exp(exponent))
            scores.append(d.agreeing / d.matches * saturation if d.matches else 0.0)
        each = alpha // seqs * (seqs if mode == "per_request" else 1)
        got = given(Redundancy(mode=mode, p=p, alpha=alpha), given_)  # type: ignore[arg-type]
        for d, score, length in zip(given_.drafts, scores, got, strict=True):
            share = each * score / sum(scores) if sum(scores) else 0.0
            allowed = {
                min(max(d.consensus_tokens, math.floor(x)), len(d.tokens)) if d.matches else 0
                for x in (share - 1e-3, share + 1e-3)
            }
            assert length in allowed
            used_share |= length > d.consensus_tokens
    assert used_share


def test_one_match_is_believed_as_much_as_g_min_in_equation_1_and_more_in_algorithm_2() -> None:
    assert Redundancy(p="eq1", g_min=0.3).new_state(toy_host())[1] == 300_000
    assert Redundancy(p="alg2", g_min=0.3).new_state(toy_host())[1] == round(
        1e6 * (0.3 + 0.7 * (1 - 1 / math.e))
    )


@pytest.mark.parametrize("mode", ["literal", "per_request", "capped"])
def test_more_agreement_never_means_fewer_tokens(mode: str) -> None:
    grew = False
    for seed in range(20):
        p = proposals(seed, 24)
        budget = Redundancy(mode=mode, alpha=4096 if mode == "literal" else 512)  # type: ignore[arg-type]
        before = given(budget, p)
        i = seed % 24
        d = p.drafts[i]
        if d.agreeing == d.matches:
            continue
        more = replace(p, drafts=[*p.drafts[:i], replace(d, agreeing=d.matches), *p.drafts[i + 1 :]])
        after = given(budget, more)
        assert after[i] >= before[i]
        grew |= after[i] > before[i]
    assert grew


def test_the_least_redundant_give_way_where_the_room_is_short() -> None:
    p = proposals(3, 250)
    budget = Redundancy(mode="capped", alpha=10_000)
    got = given(budget, p)
    wanted = [d.consensus_tokens for d in p.drafts]
    table = budget.new_state(toy_host())
    score = [d.agreeing * table[d.matches] // d.matches if d.matches else 0 for d in p.drafts]
    lost = [s for s, g, w in zip(score, got, wanted, strict=True) if g < w]
    kept = [s for s, g, w in zip(score, got, wanted, strict=True) if g == w > 0]
    assert sum(got) == 6
    assert lost
    assert min(kept) >= max(lost)
    assert given(budget, proposals(3, 256)) == [0] * 256


def test_what_followed_once_is_no_consensus_where_support_is_asked_for() -> None:
    p = proposals(5, 30)
    plain, asked = given(Redundancy(alpha=0), p), given(Redundancy(alpha=0, support=2), p)
    for d, before, after in zip(p.drafts, plain, asked, strict=True):
        assert before == d.consensus_tokens
        assert after == (d.consensus_tokens if d.agreeing >= 2 else 0)
    assert sum(asked) < sum(plain)


def test_redundancy_without_a_match_or_a_score_gives_nothing() -> None:
    p = proposals(1, 8)
    silent = replace(p, drafts=[replace(d, matches=0, agreeing=0) for d in p.drafts])
    assert given(Redundancy(), silent) == [0] * 8
    single = replace(p, drafts=[replace(d, matches=1, agreeing=1) for d in p.drafts])
    assert given(Redundancy(g_min=0.0), single) == [0] * 8  # equation 3 divides by zero


def test_tetris_takes_the_tokens_with_the_most_expected_acceptance() -> None:
    for seed in range(8):
        p = proposals(seed, 3, longest=4)
        sums = [[0.0, *np.cumsum(d.confidence.astype(float)).tolist()] for d in p.drafts]
        for room in range(8):
            best = max(
                sum(s[n] for s, n in zip(sums, ns, strict=True))
                for ns in product(*(range(len(s)) for s in sums))
                if sum(ns) <= room
            )
            got = given(Tetris(ai=3 + room) if room else Tetris(ai=1), p)
            assert sum(got) == min(room, int(p.length.sum()))
            assert sum(s[n] for s, n in zip(sums, got, strict=True)) == pytest.approx(best)


@pytest.mark.parametrize("rate", [0.0, 0.5, 0.9])
def test_turbospec_takes_the_length_with_the_best_goodput(rate: float) -> None:
    budget = TurboSpec(memory=0.0)
    host = toy_host()
    chosen = []
    for seqs in (1, 8, 40, 120):
        state = budget.new_state(host)
        drafted = np.full(100, 8, dtype=np.int32)
        accepted = np.zeros(100, dtype=np.int32)
        accepted[: round(100 * rate)] = 8  # trials: eight an accepted draft, one a rejected
        budget.observe(state, drafted, drafted, accepted)
        a = int(accepted.sum()) / (int(accepted.sum()) + int((accepted < 8).sum()))
        goodput = []
        for k in range(9):
            expected = seqs * (1 - a ** (k + 1)) / (1 - a)
            goodput.append(expected / host.profile.step_ps(seqs * (1 + k), seqs, seqs * 500))
        chosen.append(budget.limit(state, view(seqs)))
        assert goodput[chosen[-1]] == pytest.approx(max(goodput), rel=1e-12)
        p = replace(proposals(0, seqs), length=np.full(seqs, 8, dtype=np.int32))
        assert budget.allocate(state, p, view(seqs)).tolist() == [chosen[-1]] * seqs
    assert chosen == sorted(chosen, reverse=True)
    if rate == 0:
        assert chosen == [0, 0, 0, 0]


def test_turbospec_goes_on_learning_where_drafting_does_not_pay() -> None:
    budget = TurboSpec(probe=4)
    state = budget.new_state(toy_host())
    ones, zeros = np.ones(4, dtype=np.int32), np.zeros(4, dtype=np.int32)
    for _ in range(60):
        budget.observe(state, ones, ones, zeros)
    limits = []
    for _ in range(8):
        k = budget.limit(state, view(4))
        limits.append(k)
        budget.observe(state, ones, ones * k, zeros)
    assert limits == [0, 0, 0, 1, 0, 0, 0, 1]


def test_the_table_holds_its_last_number_between_and_after_its_ranges() -> None:
    state = BatchTable("1-2:5/5-6:2").new_state(toy_host())
    assert state[1:9] == (5, 5, 5, 5, 2, 2, 2, 2)
    assert state[-1] == 2
    assert len(state) == toy_host().max_num_seqs + 1


@pytest.mark.parametrize(
    ("table", "words"),
    [
        ("", "not first-last:k"),
        ("2-4:1", "starts at 1"),
        ("1-4:1/4-5:2", "overlaps"),
        ("1-3:1/9-5:2", "ends before"),
    ],
)
def test_a_bad_table_is_one_clear_line(table: str, words: str) -> None:
    with pytest.raises(InputError, match=words):
        load("budgets", "batch_table", {"table": table})


def test_acceptance_shares_and_equal_shares_follow_their_definitions() -> None:
    for seqs in (1, 7, 100):
        p = proposals(seqs, seqs)
        rate = p.acceptance.astype(float)
        shares = np.floor((256 - seqs) * np.rint(rate * 1e6) / np.rint(rate * 1e6).sum())
        assert given(AdaSpec(longest=300), p) == np.minimum(p.length, shares).astype(int).tolist()
        assert given(Uniform(longest=300), p) == [min(n, (256 - seqs) // seqs) for n in p.length.tolist()]
        assert given(FixedK(3), p) == [min(n, 3) for n in p.length.tolist()]


def test_the_knee_is_where_the_growing_cost_meets_the_constant_one() -> None:
    flat = replace(toy_host().profile, linear_tokens=(1, 200, 1200), linear_ps=(1000, 1000, 6000))
    assert knee_tokens(flat) == 200
    assert knee_tokens(replace(flat, linear_tokens=(1,), linear_ps=(5,))) == 1
    host = replace(toy_host(), profile=flat)
    assert Uniform(ai=0).new_state(host) == 200
