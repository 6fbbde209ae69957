"""Speculation changes only time: no unsafe splice, whatever races; and every guard is needed for that."""

from __future__ import annotations

from dataclasses import fields

import pytest
from branch_cases import workload, world
from branch_world import Chances, World
from hypothesis import given, settings
from hypothesis import strategies as st

from policies import branch_events as ev
from policies.api import HostInfo
from policies.branching import BranchingConfig, Controller
from policies.guards import Guards
from policies.laws import toy_host
from policies.registry import load


@pytest.mark.parametrize("demand", ["join", "race", "drop"])
@pytest.mark.parametrize("reuse", ["subgraph", "per_operator", "none"])
def test_no_unsafe_splice_in_any_mode(demand: str, reuse: str) -> None:
    stages = promoted = 0
    for seed in range(3):
        w = world(workload(seed), seed=seed, reuse=reuse, demand=demand, depth=2)
        w.c.check()
        assert w.unsafe == []
        stages += w.count["stages"]
        promoted += w.count["Promote"]
    assert stages > 900
    assert promoted > 50


@settings(max_examples=15, deadline=None, derandomize=True)
@given(
    st.integers(0, 2), st.integers(0, 10**6), st.sampled_from(["join", "race", "drop"]), st.integers(0, 3),
    st.sampled_from(["subgraph", "per_operator", "none"]), st.sampled_from([0, 20, 300]), st.sampled_from([0, 100]),
    st.sampled_from([1, 10, 40]), st.integers(1, 9), st.booleans(),
)  # fmt: skip
def test_no_unsafe_splice_under_failures_aborts_and_short_horizons(
    at: int, seed: int, demand: str, depth: int, reuse: str, fails: int, aborts: int, longest: int, slots: int,
    readmit: bool,
) -> None:  # fmt: skip
    w = world(
        workload(at), seed=seed, reuse=reuse, demand=demand, depth=depth, fills_max=slots, readmit=readmit,
        horizon_ns=longest * 10**7, chances=Chances(fails, aborts, 5, longest),
    )  # fmt: skip
    assert w.unsafe == []
    w.c.check()


@pytest.mark.parametrize(
    "gate", ["priced", "always", "idle_only", "dsp", "spagent", "paste", "speculative_actions"]
)
def test_every_system_is_safe(gate: str) -> None:
    candidate = "pattern" if gate == "paste" else "frequency"
    w = world(workload(0), gate=gate, candidate=candidate, depth=3)
    assert w.unsafe == []
    assert w.count["Launch"] > 0


@pytest.mark.parametrize("guard", [f.name for f in fields(Guards)])
def test_without_any_one_guard_a_splice_is_unsafe_within_ten_thousand_stages(guard: str) -> None:
    off, stages = Guards(**{guard: False}), 0
    for seed in range(30):
        w = world(workload(seed % 3), seed=seed, depth=2, guards=off)
        if w.first_unsafe is not None:
            assert stages + w.first_unsafe <= 10_000
            return
        stages += w.count["stages"]
    pytest.fail(f"no unsafe splice in {stages} stages without the guard {guard}")


def test_outputs_equal_those_without_speculation() -> None:
    # Without resources, outputs do not depend on time, so the whole runs can be compared.
    plain = world(workload(1, resources=0), gate="never", reuse="none", chances=Chances(0, 0))
    for demand in ("join", "race", "drop"):
        fast = world(workload(1, resources=0), demand=demand, depth=2, chances=Chances(100, 0))
        assert fast.values == plain.values
        assert fast.count["Promote"] > 0


def test_a_branch_that_ends_leaves_nothing_behind() -> None:
    w = world(workload(2), depth=2)
    opened = [e.entry for e in w.events if isinstance(e, ev.Opened)]
    settled = [c.entry for cs in w.commands for c in cs if isinstance(c, ev.Settle)]
    assert sorted(settled) == sorted(set(settled))
    assert set(settled) <= set(opened)
    assert not w.c.entries
    assert w.c.ledger.fills == 0
    # What is left are results of branches with several valid outcomes, within their horizon.
    assert all(f.pooled for f in w.c.fills.values())


def test_every_demand_gets_one_answer_and_every_join_ends() -> None:
    for seed in range(3):
        w = world(workload(seed), seed=seed, demand="join", depth=2, chances=Chances(100, 5))
        assert all(w.workflow[s] in w.over for s in w.held)
        for event, commands in zip(w.events, w.commands, strict=True):
            if isinstance(event, ev.Demanded):
                answers = [
                    c
                    for c in commands
                    if isinstance(c, ev.Serve | ev.Promote | ev.Join | ev.Race | ev.Miss)
                    and c.stage == event.view.stage
                ]
                assert len(answers) == 1, (event, commands)


def test_a_mutating_or_sampling_stage_is_never_filled() -> None:
    w = world(workload(0), depth=2)
    for event in w.events:
        if isinstance(event, ev.FillStarted):
            assert not w.mutating[event.view.stage]
            assert w.r.speculable[event.view.stage]


def test_recorded_events_replayed_give_the_same_commands() -> None:
    for gate, candidate in (("priced", "frequency"), ("dsp", "markov")):
        w = world(workload(1), gate=gate, candidate=candidate, depth=2)
        fresh = Controller(
            load("gates", gate), load("candidates", candidate), load("reuse", "subgraph"), toy_host(0),
            BranchingConfig(depth=2),
        )  # fmt: skip
        for event, commands in zip(w.events, w.commands, strict=True):
            assert fresh.handle(event) == commands


def test_late_news_of_a_cancelled_fill_changes_nothing() -> None:
    w = world(workload(0), depth=2)
    dead = [c.fill for cs in w.commands for c in cs if isinstance(c, ev.Cancel)]
    assert dead
    for fill in dead:
        assert w.c.handle(ev.FillStageDone(w.now, fill, 0, 1)) == []
        assert w.c.handle(ev.FillFailed(w.now, fill)) == []
    w.c.check()


def test_a_window_of_no_length_leaves_nothing_to_gain() -> None:
    class Sudden(World):
        """Decisions take no time."""

        def lasts(self, purpose: str, *ids: int) -> int:
            return 0 if purpose == "execution" else 50

    host: HostInfo = toy_host(0)
    policies = (load("gates", "fanout"), load("candidates", "oracle"), load("reuse", "none"))
    w = Sudden(workload(1, resources=0), *policies, host=host).run()  # type: ignore[arg-type]
    assert w.count["Promote"] == 0
    assert w.unsafe == []
