"""The card of DynBranch: its exact row, loads as shares, and what its files promise each other."""

from __future__ import annotations

from dataclasses import replace

import pytest

from experiments.build import build
from experiments.cards.dynbranch import blind, main, sweeps
from experiments.cards.dynbranch.family import FAMILY, NEEDS
from experiments.cards.dynbranch.studies import STUDIES
from experiments.floor_load import rate_per_s, utilisation
from experiments.inputs import WorkloadRef, prepared
from experiments.targets import targets
from sim.config import LoadConfig, SimConfig
from sim.worlds import flat_profile
from traces.errors import InputError

PROFILE = flat_profile(20_000_000_000, linear_tokens=(1, 64), linear_ps=(20 * 10**9, 21 * 10**9))


def test_every_target_has_a_judge_and_every_study_a_reader() -> None:
    assert set(NEEDS) == set(targets("dynbranch")) == {**blind.ROWS, **main.ROWS, **sweeps.ROWS}.keys()
    assert {s for names in NEEDS.values() for s in names} == set(STUDIES)
    assert FAMILY.name == "dynbranch"


@pytest.mark.parametrize(
    ("boundary", "stages"), [("whole_response", 0), ("prefix_region", 2), ("subgraph", 4)]
)
def test_the_simulator_serves_what_each_boundary_names(boundary: str, stages: int) -> None:
    assert blind.served(boundary) == stages


def test_a_load_asked_for_as_a_share_keeps_the_floor_that_busy() -> None:
    ref = WorkloadRef("dynbranch_react")
    config = SimConfig(load=LoadConfig(loop="open", rate_per_s=1.0, workflows=60))
    workload = prepared(ref, config.load, 0)
    rates = [rate_per_s(ref, PROFILE, config, 20_000, share) for share in (0.3, 0.8)]
    assert rates[0] < rates[1]
    for rate, share in zip(rates, (0.3, 0.8), strict=True):
        assert utilisation(workload, PROFILE, config, 20_000, rate) == pytest.approx(share, abs=0.03)


def test_a_share_stands_in_the_place_of_a_rate() -> None:
    with pytest.raises(InputError, match="in the place of"):
        replace(LoadConfig(loop="open", rate_per_s=1.0), utilisation=0.5)


def test_fanout_sets_what_it_needs_by_itself() -> None:
    plan, jobs, chosen = build(["+sweep=fanout", "seeds=1", "load.utilisation=null", "load.rate_per_s=0.1"])
    assert len(plan.arms) == len(jobs) == 16
    assert chosen.workload == "dynbranch_subagent"
    assert {a.policies["gates"] for a in plan.arms} == {"fanout", *(f"fanout(k={k})" for k in (0, 1, 3))}
