"""The map of where priced gates pay: cells are paired changes, and the rival is the best threshold of each cell."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from fake_runs import Effect, make

from experiments.plots import region, render
from traces.errors import InputError
from traces.runlog import read_run

GATES = {
    "a": ("priced", Effect(slower=0.8)),
    "b": ("priced(action0=open, action1=fixed, p_star=0.3)", Effect(slower=1.0)),
    "c": ("priced(action0=open, action1=fixed)", Effect(slower=0.9)),
    "d": ("idle_only", Effect(slower=0.81)),
    "e": ("never", Effect(slower=0.7)),
}


@pytest.fixture(scope="module")
def swept(tmp_path_factory: pytest.TempPathFactory) -> Any:
    effects = {name: effect for name, (_, effect) in GATES.items()}
    axes = {"load.utilisation": [0.8, 0.3]}
    plan, store = make(tmp_path_factory.mktemp("region"), effects, seeds=(0, 1, 2), axes=axes)
    arms = [
        replace(a, policies={"gates": GATES[a.label[0]][0], "candidates": "oracle(accuracy=0.5)"})
        for a in plan.arms
    ]
    plan = replace(plan, arms=tuple(arms))
    store.save_plan(plan)
    return plan, store


def test_the_rival_of_a_cell_is_its_fastest_threshold(swept: Any) -> None:
    plan, store = swept
    found = region.data(
        replace(plan, arms=tuple(a for a in plan.arms if a.policies["gates"] != "never")), store
    )
    assert found.loads == (0.3, 0.8)
    assert found.candidates == ("oracle(accuracy=0.5)",)
    assert found.threshold == {(0, 0): 0.5, (0, 1): 0.5}  # 0.5 is what a plan leaves out


def test_filling_nothing_is_the_threshold_that_nothing_passes(swept: Any) -> None:
    plan, store = swept
    fast = [a for a in plan.arms if a.policies["gates"] == "never"]
    assert fast
    found = region.data(replace(plan, arms=(*(a for a in plan.arms if a not in fast), *fast)), store)
    assert found.threshold == region.data(plan, store).threshold == {(0, 0): 1.0, (0, 1): 1.0}


def test_a_cell_is_the_paired_change_of_latency(swept: Any) -> None:
    plan, store = swept
    some = replace(plan, arms=tuple(a for a in plan.arms if a.policies["gates"] != "never"))
    found, whole = region.data(some, store).change, region.data(plan, store).change
    for column in (0, 1):
        against = {rival: (whole if rival == "never" else found)[rival][0, column] for rival in region.RIVALS}
        assert all(c is not None and c.n == 3 for c in against.values())
        fixed, idle, never = (against[r].mean for r in region.RIVALS)  # type: ignore[union-attr]
        assert fixed == pytest.approx(100 * (0.8 / 0.9 - 1), abs=0.7)  # gaps between requests are not slowed
        assert -2 < idle < 0 < never


def test_what_a_gate_pays_while_it_learns_is_left_out_by_arrival(swept: Any) -> None:
    plan, store = swept
    log = read_run(store.run_dir(plan.runs[plan.arms[0].label, 0]))
    arrival, finished = log.columns("workflows", "arrival_ns", "finished_ns")
    took = (finished - arrival)[arrival.argsort()] / 1e9
    assert region.latency_s(log, 0.0) == pytest.approx(took.mean())
    assert region.latency_s(log, 0.75) == pytest.approx(took[3 * len(took) // 4 :].mean())


def test_a_gate_pays_where_it_beats_every_rival_by_more_than_two_percent(swept: Any) -> None:
    plan, store = swept
    found = region.data(
        replace(plan, arms=tuple(a for a in plan.arms if a.policies["gates"] != "never")), store
    )
    assert not found.pays((0, 0))  # filling only when idle is within 2 %
    assert replace(found, change={**found.change, "idle": found.change["fixed"]}).pays((0, 0))


def test_the_map_is_drawn_and_refuses_a_plan_without_priced_gates(swept: Any, tmp_path: Path) -> None:
    plan, store = swept
    assert render(store.experiment_dir(plan), "region", tmp_path / "a.svg").stat().st_size > 2000
    with pytest.raises(ValueError, match="no priced gate"):
        region.data(replace(plan, arms=plan.arms[2:3]), store)
    other, shelf = make(tmp_path / "other", {"lru": Effect()})
    with pytest.raises(InputError, match="figure region"):
        render(shelf.experiment_dir(other), "region", tmp_path / "b.svg")
