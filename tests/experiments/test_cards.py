"""Laws of every family's card: each target is judged, each study composes and is read by some row."""

from __future__ import annotations

import numpy as np
import pytest

from experiments.cards.family import family, names
from experiments.cards.polygraph.law import affine_law
from experiments.cards.polygraph.steps import Steps
from experiments.cards.polygraph.tables import counts
from experiments.cards.rows import REPRODUCED
from experiments.compose import compose
from experiments.targets import target, targets

STUDIES = [(f, s) for f in names() for s in family(f).studies]


@pytest.mark.parametrize("name", names())
def test_needs_name_targets_and_studies_of_the_family(name: str) -> None:
    found = family(name)
    assert found.name == name
    assert set(found.needs) <= set(targets(name))
    assert {s for needed in found.needs.values() for s in needed} <= set(found.studies)


@pytest.mark.parametrize(("name", "study"), STUDIES)
def test_every_study_composes_in_full_and_quick(name: str, study: str) -> None:
    for quick in (False, True):
        words = family(name).studies[study].command(quick=quick, seeds=None)
        assert compose(words).settings({}).seeds
        assert len([w for w in words if w.startswith("seeds=")]) <= 1


def test_the_papers_counts_of_graphs_are_met_exactly() -> None:
    assert counts().verdict == REPRODUCED


def test_the_law_goes_through_the_two_points_it_is_made_of_and_predicts_the_third() -> None:
    base, slope = affine_law()
    values = target("R43").values
    full = base + slope * 128
    for d, tolerance in (("1", 1e-9), ("8", 1e-9), ("4", 0.02)):
        ours = 1 - (base + slope * 16 * int(d)) / (1000 * values["max_pad_p99_ms"])
        assert ours == pytest.approx(values["reduction_pct"][d] / 100, abs=tolerance)
    assert full < 1000 * values["max_pad_p99_ms"]


def test_waste_is_counted_from_executed_and_from_useful_tokens() -> None:
    steps = Steps(np.ones(2), np.array([10, 30]), np.array([20, 30]), 0)
    assert steps.waste() == {
        "of executed tokens": pytest.approx(20.0), "over useful tokens": pytest.approx(25.0),
        "of executed, by step": pytest.approx(25.0), "over useful, by step": pytest.approx(50.0),
    }  # fmt: skip
