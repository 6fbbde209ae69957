"""The gates of branching: envelopes, price, the two actions, what they learn, and their competitors."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from branch_cases import workload, world
from hypothesis import given, settings
from hypothesis import strategies as st

from policies._branch_envelope import Envelope, Pressure
from policies._branch_ledger import Ledger
from policies._branch_price import Price, from_profile
from policies._branch_rates import Mean, upper_quantile
from policies.gates.dsp import DSP
from policies.gates.paste import Paste
from policies.gates.priced import MS, Priced, PricedState
from policies.laws import toy_host
from policies.views import (
    BranchOutcome,
    BranchView,
    Candidate,
    FillOption,
    FillOutcome,
    LoadView,
    RunningFill,
    Slowdown,
)
from traces.errors import InputError

KINDS = ("max", "max_mean", "peak_decay", "ewma", "instant")


def load_at(now_ms: int, fills: int = 0, kv: int = 0, busy: float = 0.5, seqs: int = 8) -> LoadView:
    return LoadView(now_ms * MS, fills, kv, 100_000, busy, 8, seqs)


def option(rank: int, kv: int = 1000, key: int = 0, exec_ns: int = 10**9) -> FillOption:
    return FillOption(Candidate(rank, rank, 0.5, rank), key, 1, kv, kv, exec_ns)


def outcome(
    branch: BranchView,
    options: list[FillOption],
    chosen: int,
    load: LoadView,
    *,
    saved_ns: int = 10**9,
    setup_ns: int = 0,
) -> BranchOutcome:
    fills = tuple(
        FillOutcome(
            o, "promoted" if o.candidate.outcome == chosen else "unselected", o.candidate.outcome == chosen,
            int(o.candidate.outcome == chosen), 1, 10**9, 10**9, 0 if o.candidate.outcome == chosen else 10**9,
            saved_ns if o.candidate.outcome == chosen else 0, 0, load,
        )
        for o in options
    )  # fmt: skip
    saved = sum(f.saved_ns for f in fills)
    candidates = tuple(o.candidate for o in options)
    return BranchOutcome(
        branch, chosen, True, candidates, fills, setup_ns, saved, 0, 0, 2 * 10**9, load, chosen
    )


STEEP = Slowdown((0, 1, 2, 4), (0, 100_000), ((1.0, 1.0), (1.1, 1.1), (1.6, 1.6), (4.0, 4.0)))
FLAT = Slowdown((0, 1), (0,), ((1.0,), (1.0,)))


# --- envelope ---


@settings(max_examples=60, deadline=None, derandomize=True)
@given(
    st.lists(st.tuples(st.integers(0, 60), st.integers(0, 8)), min_size=1, max_size=30),
    st.sampled_from(KINDS),
)
def test_rising_load_takes_effect_at_once(steps: list[tuple[int, int]], kind: str) -> None:
    envelope, now = Envelope(kind, 100 * MS), 0
    for wait, fills in steps:
        now += wait * MS
        reading = Pressure(fills, 10 * fills, fills / 8, fills)
        envelope.add(now, reading)
        assert all(v >= r for v, r in zip(envelope.value(now, reading), reading, strict=True))


@settings(max_examples=60, deadline=None, derandomize=True)
@given(st.lists(st.tuples(st.integers(2, 60), st.integers(0, 8)), min_size=1, max_size=30))
def test_the_maximum_is_that_of_the_window(steps: list[tuple[int, int]]) -> None:
    envelope, now, seen = Envelope("max", 100 * MS), 0, []
    for wait, fills in steps:
        now += wait * MS
        seen.append((now, fills))
        reading = Pressure(fills, 0, 0, 0)
        envelope.add(now, reading)
        assert envelope.value(now, reading).fills == max(f for t, f in seen if t >= now - 100 * MS)


def test_after_a_step_down_each_envelope_relaxes_as_it_says() -> None:
    def after(kind: str, ms: int) -> float:
        envelope = Envelope(kind, 100 * MS)
        for t in range(0, 201, 5):
            envelope.add(t * MS, Pressure(8, 0, 0, 0))
        for t in range(205, 201 + ms, 5):
            envelope.add(t * MS, Pressure(0, 0, 0, 0))
        return envelope.value((200 + ms) * MS, Pressure(0, 0, 0, 0)).fills

    assert after("instant", 5) == 0
    assert (after("max", 95), after("max", 110)) == (8, 0)
    assert after("max_mean", 50) == pytest.approx(4, abs=0.5)
    assert after("max_mean", 110) == 0
    assert after("peak_decay", 50) == pytest.approx(4, abs=0.1)
    assert after("peak_decay", 101) == 0
    assert (after("ewma", 5), after("ewma", 10)) == (4, 2)


def test_probes_closer_than_a_sixty_fourth_of_the_window_do_not_grow_the_history() -> None:
    for kind in ("max", "max_mean"):
        envelope = Envelope(kind, 64 * MS)
        for t in range(20_000):
            envelope.add(t * MS // 100, Pressure(-t, 0, 0, 0))
        assert envelope.samples < 70 * 4


# --- price ---


def test_the_price_rises_with_load_and_pressure_and_is_nothing_where_nobody_is_slowed() -> None:
    price = Price(toy_host(), 1.0)
    idle, busy = Pressure(0, 0, 0.0, 0), Pressure(0, 0, 0.5, 8)
    assert price.cost_ns(idle, option(0), 1e9) == 0
    assert price.cost_ns(busy, option(0, kv=0), 1e9) == 0
    low = price.cost_ns(busy, option(0), 1e9)
    assert 0 < low < price.cost_ns(busy._replace(seqs=16), option(0), 1e9)
    assert low < price.cost_ns(busy, option(0, kv=3000), 1e9)
    assert Price(toy_host(), 4.0).cost_ns(busy, option(0), 1e9) == pytest.approx(4 * low)
    flat = Price(replace(toy_host(), slowdown=FLAT), 1.0)
    assert flat.cost_ns(busy, option(0), 1e9) == 0


def test_an_engine_that_just_fell_idle_is_priced_as_one_request_and_not_as_a_full_one() -> None:
    price = Price(replace(toy_host(), max_num_seqs=256), 1.0)
    left = Pressure(0, 0, 1.0, 0)  # the user waits: the engine worked until now, and holds nothing of anybody
    assert price.cost_ns(left, option(0), 1e9) == price.cost_ns(Pressure(0, 0, 1.0, 1), option(0), 1e9) > 0
    assert price.cost_ns(left, option(0), 1e9) < price.cost_ns(Pressure(0, 0, 1.0, 4), option(0), 1e9)


def test_what_is_not_prefilled_again_is_not_paid_for() -> None:
    price, busy = Price(toy_host(), 1.0), Pressure(0, 0, 0.5, 8)
    cold, warm = option(0, kv=1000), replace(option(0, kv=1000), cached_tokens=900)
    assert price.cost_ns(busy, warm, 1e9) == price.cost_ns(busy, option(0, kv=100), 1e9)
    assert 0 < price.cost_ns(busy, warm, 1e9) < price.cost_ns(busy, cold, 1e9)


def test_a_surface_of_kernel_costs_rises_in_fills_and_context() -> None:
    surface = from_profile(toy_host().profile)
    ratio = np.array(surface.ratio)
    assert np.all(ratio[0] == 1)
    assert np.all(np.diff(ratio, axis=0) > 0)
    assert np.all(np.diff(ratio[1:], axis=1) > 0)


def test_a_surface_meets_its_knots_and_is_straight_between() -> None:
    for i, fills in enumerate(STEEP.fills):
        assert STEEP.at(fills, 0) == STEEP.ratio[i][0]
    assert STEEP.at(1.5, 0) == pytest.approx(1.35)
    assert STEEP.at(6, 0) == pytest.approx(6.4)
    tilted = Slowdown((0, 2), (0, 1000), ((1.0, 1.0), (2.0, 4.0)))
    assert tilted.at(2, 1000) == pytest.approx(3.0)  # 500 tokens each
    assert tilted.at(1, 1000) == pytest.approx(2.5)


def test_a_fill_on_one_of_several_replicas_slows_only_those_beside_it() -> None:
    busy = Pressure(0, 0, 0.5, 16)
    one = Price(toy_host(), 1.0).cost_ns(busy, option(0), 1e9)
    two = Price(replace(toy_host(), replicas=2), 1.0).cost_ns(busy, option(0), 1e9)
    assert two == pytest.approx(one / 2)


# --- Action 1 ---


@pytest.mark.parametrize("seed", range(3))
def test_eq_5_and_eq_6_make_the_same_decisions(seed: int) -> None:
    runs = [
        world(
            workload(seed), seed=seed, gate="priced", candidate="frequency", depth=2,
            gate_options={"action1": form, "prior_ms": 20, "audit": 0.1},
        )
        for form in ("priced", "threshold")
    ]  # fmt: skip
    assert runs[0].commands == runs[1].commands
    assert 0 < runs[0].count["Launch"] < sum(len(o.candidates) for o in runs[0].outcomes)


def _settled(gate: Priced, slowdown: Slowdown, rounds: int, hits: int) -> PricedState:
    """A gate that saw `rounds` branches of two fills; of ten, `hits` chose the first candidate, the rest neither."""
    state = gate.new_state(replace(toy_host(), slowdown=slowdown))
    for i in range(rounds):
        branch = BranchView(i, i, 1, 0, i * 10**7)
        load = load_at(10 * i)
        gate.open(state, branch, load)
        gate.settle(state, outcome(branch, [option(0), option(1)], 0 if i % 10 < hits else 5, load))
    return state


def test_the_same_candidate_passes_under_headroom_and_fails_under_contention() -> None:
    gate = Priced(audit=0)
    state = _settled(gate, STEEP, 200, 5)
    branch = BranchView(999, 999, 1, 0, 10**12)
    assert gate.admit(state, branch, [option(0)], load_at(10**6, seqs=1)).rows == (0,)
    assert gate.admit(state, branch, [option(0)], load_at(10**6, fills=3, seqs=64)).rows == ()


def test_each_admission_raises_the_price_of_the_next() -> None:
    gate = Priced(audit=0)
    state = _settled(gate, STEEP, 200, 5)
    branch = BranchView(999, 999, 1, 0, 10**12)
    alone = [gate.admit(state, branch, [option(0)], load_at(10**6, seqs=6)).rows for _ in range(4)]
    together = gate.admit(state, branch, [option(0) for _ in range(4)], load_at(10**6, seqs=6)).rows
    assert alone == [(0,)] * 4
    assert 1 <= len(together) < 4


def test_paying_always_admits_no_more_than_paying_on_losing() -> None:
    branch = BranchView(999, 999, 1, 0, 10**12)
    pays = Priced(audit=0, action1="pay_always")
    state = _settled(pays, STEEP, 200, 5)
    differ = 0
    for seqs in range(1, 60):
        load = load_at(10**6, fills=1, seqs=seqs)
        always, losing = (
            set(g.admit(state, branch, [option(0), option(1)], load).rows) for g in (pays, Priced(audit=0))
        )
        assert always <= losing
        differ += always != losing
    assert differ > 0


def test_a_wrong_price_shifts_the_load_at_which_fills_stop() -> None:
    branch = BranchView(999, 999, 1, 0, 10**12)
    stops = []
    for error in (0.25, 1.0, 4.0):
        gate = Priced(audit=0, price_error=error)
        state = _settled(gate, STEEP, 200, 5)
        stops.append(
            next(
                n
                for n in range(1, 2000)
                if not gate.admit(state, branch, [option(0)], load_at(10**6, seqs=n)).rows
            )
        )
    assert stops[0] > 3 * stops[1] > 6 * stops[2]


@pytest.mark.parametrize("offered", [0.5, 4.0, 12.0, 16.0])
def test_feedback_is_how_much_a_small_delay_swells_the_number_in_progress(offered: float) -> None:
    """N = offered * s(N), with s(N) = 1 + N/20: the price's factor is d ln N / d ln s at that N, found by solving."""
    rise = 1 / 20
    line = Slowdown((0, 1, 2), (0, 8192), tuple((1 + rise * f,) * 2 for f in range(3)))

    def in_progress(share: float) -> float:
        n = 1.0
        for _ in range(100_000):
            n = offered * (1 + rise * n) * share
        return n

    n, small = in_progress(1.0), 1e-6
    swells = (in_progress(1 + small) / n - 1) / small
    host = replace(toy_host(), slowdown=line)
    load = Pressure(0, 0, 0.0, n)
    plain = Price(host, 1.0).cost_ns(load, option(0), 1e9)
    assert Price(host, 1.0, feedback=True).cost_ns(load, option(0), 1e9) / plain == pytest.approx(
        swells, rel=1e-3
    )


def test_feedback_admits_no_fill_that_the_plain_price_refuses() -> None:
    branch = BranchView(999, 999, 1, 0, 10**12)
    state = _settled(Priced(audit=0), STEEP, 200, 5)
    careful = _settled(Priced(audit=0, feedback=True), STEEP, 200, 5)
    differ = 0
    for seqs in range(60):
        load = load_at(10**6, seqs=seqs)
        plain = set(Priced(audit=0).admit(state, branch, [option(0), option(1)], load).rows)
        fewer = set(Priced(audit=0, feedback=True).admit(careful, branch, [option(0), option(1)], load).rows)
        assert fewer <= plain
        differ += fewer != plain
    assert differ > 0


def test_a_fixed_threshold_knows_no_load() -> None:
    gate = Priced(audit=0, action1="fixed", p_star=0.3)
    state = _settled(gate, STEEP, 200, 5)
    branch = BranchView(999, 999, 1, 0, 10**12)
    rows = {
        gate.admit(state, branch, [option(0), option(1)], load_at(10**6, seqs=n)).rows for n in (0, 8, 500)
    }
    assert rows == {(0,)}
    shut = Priced(audit=0, action1="fixed", p_star=0.999)
    assert shut.admit(state, branch, [option(0)], load_at(10**6)).rows == ()


def test_no_fill_is_admitted_when_the_longest_window_seen_is_over() -> None:
    gate = Priced(audit=0)
    state = _settled(gate, FLAT, 50, 9)  # windows of 2 s
    branch = BranchView(999, 999, 1, 0, 10**12)
    early, late = load_at(10**6 + 1000), load_at(10**6 + 2001)
    assert gate.admit(state, branch, [option(0)], early).rows == (0,)
    assert gate.admit(state, branch, [option(0)], late).rows == ()


def test_the_quantile_is_optimistic_and_shrinks_with_evidence() -> None:
    assert upper_quantile(0, 0, 100) == pytest.approx(0.99)
    wide, narrow = upper_quantile(5, 5, 100), upper_quantile(500, 500, 100)
    assert 0.5 < narrow < wide < 1


# --- Action 0 ---


def _stream(gate: Priced, state: PricedState, start: int, count: int, worth: int, setup: int) -> int:
    """Feed branch entries that save `worth` if opened; return how many were opened."""
    opened = 0
    for i in range(start, start + count):
        branch, load = BranchView(i, i, 1, 0, i * 10**7), load_at(10 * i, busy=0.1, seqs=1)
        if gate.open(state, branch, load):
            opened += 1
            gate.settle(state, outcome(branch, [option(0)], 0, load, saved_ns=worth, setup_ns=setup))
    return opened


def test_a_losing_branch_closes_and_audits_alone_go_on() -> None:
    gate = Priced(audit=0.05)
    state = gate.new_state(replace(toy_host(), slowdown=FLAT))
    _stream(gate, state, 0, 100, 0, 5 * 10**8)
    audits = _stream(gate, state, 100, 4000, 0, 5 * 10**8)
    assert 140 < audits < 260  # 200 expected, 4.4 standard deviations


def test_a_closed_branch_opens_again_when_it_starts_to_pay() -> None:
    gate = Priced(audit=0.05)
    state = gate.new_state(replace(toy_host(), slowdown=FLAT))
    _stream(gate, state, 0, 200, 0, 5 * 10**8)
    _stream(gate, state, 200, 4000, 2 * 10**9, 10**8)
    assert _stream(gate, state, 4200, 500, 2 * 10**9, 10**8) == 500


def test_without_audits_a_closed_branch_stays_closed() -> None:
    gate = Priced(audit=0)
    state = gate.new_state(replace(toy_host(), slowdown=FLAT))
    _stream(gate, state, 0, 100, 0, 5 * 10**8)
    assert _stream(gate, state, 100, 1000, 2 * 10**9, 0) == 0


def test_returns_are_learned_apart_at_low_and_high_load() -> None:
    gate = Priced(audit=0, envelope="instant")
    state = gate.new_state(replace(toy_host(), slowdown=FLAT))
    for i in range(200):
        busy = 0.1 if i % 2 else 0.9
        branch, load = BranchView(i, i, 1, 0, i * 10**7), load_at(10 * i, busy=busy)
        if gate.open(state, branch, load):
            worth, setup = (10**9, 0) if i % 2 else (0, 10**9)
            gate.settle(state, outcome(branch, [option(0)], 0, load, saved_ns=worth, setup_ns=setup))
    probe = BranchView(999, 999, 1, 0, 0)
    assert gate.open(state, probe, load_at(10**5, busy=0.1))
    assert not gate.open(state, probe, load_at(10**5, busy=0.9))


def test_the_aggregate_return_is_eq_4() -> None:
    gate = Priced()
    state = gate.new_state(replace(toy_host(), slowdown=STEEP))
    load = load_at(0, fills=1, seqs=8)
    settled = outcome(
        BranchView(0, 0, 1, 0, 0), [option(0), option(1)], 0, load, saved_ns=10**9, setup_ns=10**8
    )
    expired = replace(settled.fills[1], stalled_ns=3 * 10**7)
    settled = replace(settled, fills=(settled.fills[0], expired))
    each = 10**9 * 8 * (1.6 - 1.1) / 1.1
    assert gate.aggregate_return_ns(state, settled) == 10**9 - 10**8 - 3 * 10**7 - round(2 * each)


def test_an_overdue_opening_counts_as_nothing_until_it_settles() -> None:
    gate = Priced(audit=0, censor_ms=100)
    state = gate.new_state(replace(toy_host(), slowdown=FLAT))
    branch, load = BranchView(0, 0, 1, 0, 0), load_at(0, busy=0.1)
    gate.open(state, branch, load)
    gate.open(state, BranchView(1, 1, 1, 0, 0), load_at(500, busy=0.1))
    (seen,) = state.returns.values()
    assert (seen.count, seen.total) == (1, 0)
    gate.settle(state, outcome(branch, [option(0)], 0, load, saved_ns=7 * 10**8))
    assert (seen.count, seen.total) == (1, 7 * 10**8)


def test_a_mean_can_be_amended() -> None:
    plain, amended = Mean(), Mean()
    for x in (3, 9, 4):
        plain.add(x)
        amended.add(0)
        amended.amend(0, x)
    assert plain.optimistic(1.0, 1) == amended.optimistic(1.0, 1)
    assert plain.optimistic(2.0, 1) > plain.optimistic(1.0, 1) > plain.mean()


# --- ledger, competitors, options ---


def test_a_reservation_is_all_or_nothing() -> None:
    ledger = Ledger(2, 100)
    assert ledger.reserve(0, 60)
    assert not ledger.reserve(1, 60)
    assert (ledger.fills, ledger.kv_tokens) == (1, 60)
    assert ledger.reserve(2, 40)
    assert not ledger.reserve(3, 0)
    ledger.release(0)
    ledger.release(0)
    ledger.check()
    assert (ledger.fills, ledger.kv_tokens) == (1, 40)


def test_dsp_goes_as_deep_as_its_plan_holds() -> None:
    gate = DSP()
    depths: dict[float, int] = {}
    for accuracy in (1.0, 0.5, 0.0):
        state = gate.new_state(toy_host())
        for i in range(2000):
            branch, load = BranchView(i // 4, i, 1, 0, 0), load_at(0)
            gate.open(state, branch, load)
            right = (i * 7 % 10) / 10 < accuracy
            gate.settle(state, outcome(branch, [option(0)], 0 if right else 5, load))
        depths[accuracy] = gate.depth(state, BranchView(0, 0, 1, 0, 0)) or 0
    assert depths[1.0] == gate.k_max
    assert depths[1.0] > depths[0.5] >= depths[0.0] == 1


def test_an_expectile_above_one_half_goes_deeper() -> None:
    found = []
    for tau in (0.5, 0.9):
        gate, state = DSP(tau=tau), DSP().new_state(toy_host())
        for i in range(3000):
            branch, load = BranchView(i // 4, i, 1, 0, 0), load_at(0)
            gate.open(state, branch, load)
            gate.settle(state, outcome(branch, [option(0)], 0 if i * 7 % 10 < 6 else 5, load))
        found.append(gate.depth(state, BranchView(0, 0, 1, 0, 0)) or 0)
    assert found[1] > found[0]


def test_paste_stops_what_is_unconfirmed_when_the_slack_is_gone() -> None:
    gate = Paste()
    fills = [RunningFill(BranchView(0, 0, 1, 0, 0), Candidate(i, i, 0.9), 0, 10, i == 1) for i in range(3)]
    assert list(gate.revoke(None, fills, load_at(0, busy=0.2))) == []
    assert list(gate.revoke(None, fills, load_at(0, busy=0.8))) == [0, 2]


def test_paste_fills_what_is_confident_only() -> None:
    gate = Paste(confidence=0.5)
    options = [replace(option(i), candidate=Candidate(i, i, 0.6 - 0.2 * i)) for i in range(3)]
    assert gate.admit(None, BranchView(0, 0, 1, 0, 0), options, load_at(0, busy=0.2)).rows == (0,)


@pytest.mark.parametrize(
    ("gate", "options"),
    [
        (Priced, {"audit": 1.5}), (Priced, {"p_star": -1}), (Priced, {"price_error": float("nan")}),
        (Priced, {"prior_ms": 0}), (DSP, {"tau": 1.0}), (Paste, {"confidence": 2}),
    ],
)  # fmt: skip
def test_an_option_outside_its_range_is_refused_with_its_name(gate: Any, options: dict[str, Any]) -> None:
    (name,) = options
    with pytest.raises(InputError, match=name):
        gate(**options)
