"""The card of DynBranch: its exact row, loads as shares, and what its files promise each other."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from experiments.build import build
from experiments.cards.dynbranch import blind, main, sweeps
from experiments.cards.dynbranch.family import FAMILY, NEEDS
from experiments.cards.dynbranch.studies import STUDIES
from experiments.floor_load import capacity_per_s, rate_per_s
from experiments.inputs import WorkloadRef, prepared
from experiments.targets import targets
from policies.registry import PolicySet
from sim.config import EngineConfig, LoadConfig, SimConfig
from sim.log import MemorySink
from sim.run import simulate
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


SEATS = EngineConfig(max_num_seqs=8, max_num_batched_tokens=2048)
REF = WorkloadRef("dynbranch_react")


def _latencies_s(rate: float) -> np.ndarray:
    """Return latencies of the floor in s by arrival, of 120 workflows on one replica of eight seats."""
    load = LoadConfig(loop="open", rate_per_s=rate, workflows=120)
    with MemorySink() as sink:
        config = SimConfig(SEATS, load=load)
        simulate(prepared(REF, load, 0), PROFILE, PolicySet(), config, sink, kv_blocks=20_000)
    flow = sink.tables()["workflows"]
    arrival, finished = (flow[c].to_numpy() for c in ("arrival_ns", "finished_ns"))
    return ((finished - arrival) / 1e9)[arrival.argsort()]


def test_the_floor_keeps_up_with_any_share_of_what_it_serves_and_with_no_more() -> None:
    config = SimConfig(SEATS, load=LoadConfig(loop="open", rate_per_s=1.0))
    served = capacity_per_s(REF, PROFILE, config, 20_000)
    below, above = (_latencies_s(share * served) for share in (0.6, 3.0))
    assert below[80:].mean() < 1.5 * below[:40].mean()
    assert above[80:].mean() > 3 * below[80:].mean()


def test_a_share_is_the_same_load_for_any_number_of_replicas_and_any_way_of_arriving() -> None:
    config = SimConfig(SEATS, load=LoadConfig(loop="open", rate_per_s=1.0))
    one = rate_per_s(REF, PROFILE, config, 20_000, 0.3)
    assert rate_per_s(REF, PROFILE, replace(config, replicas=3), 20_000, 0.3) == pytest.approx(
        3 * one, rel=0.01
    )
    assert rate_per_s(REF, PROFILE, config, 20_000, 0.6) == pytest.approx(2 * one, rel=0.01)
    later = replace(config, load=replace(config.load, rate_per_s=7.0, workflows=50))
    assert rate_per_s(REF, PROFILE, later, 20_000, 0.3) == one


def test_nothing_served_has_no_share() -> None:
    config = SimConfig(replace(SEATS, max_model_len=1), load=LoadConfig(loop="open", rate_per_s=1.0))
    with pytest.raises(InputError, match="nothing to take a share of"):
        rate_per_s(REF, PROFILE, config, 20_000, 0.3)


def test_a_share_stands_in_the_place_of_a_rate() -> None:
    with pytest.raises(InputError, match="in the place of"):
        replace(LoadConfig(loop="open", rate_per_s=1.0), utilisation=0.5)


def test_fanout_sets_what_it_needs_by_itself() -> None:
    plan, jobs, chosen = build(["+sweep=fanout", "seeds=1", "load.utilisation=null", "load.rate_per_s=0.1"])
    assert len(plan.arms) == len(jobs) == 16
    assert chosen.workload == "dynbranch_subagent"
    assert {a.policies["gates"] for a in plan.arms} == {"fanout", *(f"fanout(k={k})" for k in (0, 1, 3))}
