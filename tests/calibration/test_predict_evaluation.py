"""The evaluation's own arithmetic, and the shape of its held-out cases."""

from __future__ import annotations

import numpy as np
import pytest

from calibration.evaluation import Case, errors, ranking, report, steady, with_linear
from calibration.evaluation_open import chat, stages


def case(part: str, x: float, *, scale: float = 1.0, contest: str = "c", fitted: bool = False) -> Case:
    measured = steady(10 + x, 2 + x, 11, 4)
    return Case(
        "g", contest, 1, part, measured, {"foreserve": measured * scale}, np.array([1.0, x]), 11, 4.0, fitted
    )


def test_steady_figures_obey_littles_law() -> None:
    ttft, tpot, e2e, rate = steady(20.0, 2.0, 11, 4)
    assert (ttft, tpot, e2e) == (20, 2, 40)
    assert rate * e2e / 1e3 == pytest.approx(4 * 11)


def test_a_linear_truth_is_found_from_the_other_parts() -> None:
    cases = with_linear([case(part, x) for part in "ab" for x in (1.0, 2.0, 5.0)])
    for c in cases:
        np.testing.assert_allclose(c.predicted["linear"], c.measured, rtol=1e-6)


def test_ranking_counts_what_the_wrong_choice_costs() -> None:
    rows = [case("a", x) for x in (1.0, 2.0, 5.0)]
    perfect = ranking(rows, "foreserve")
    assert perfect == {"kendall_tau": 1.0, "top1_regret_percent": 0.0, "contests": 1}
    best = max(r.measured[3] for r in rows)
    worst = min(r.measured[3] for r in rows)
    turned = [
        Case(r.group, "c", 1, "a", r.measured, {"foreserve": 1 / r.measured}, r.features, 11, 4.0)
        for r in rows
    ]
    reversed_ = ranking(turned, "foreserve")
    assert reversed_ is not None
    assert reversed_["kendall_tau"] == -1
    assert reversed_["top1_regret_percent"] == pytest.approx(100 * (1 - worst / best), abs=0.05)
    assert ranking(rows[:2], "foreserve") is None


def test_fitted_cases_are_never_counted_among_the_held_out() -> None:
    body = report([case("a", 1.0, scale=2.0, fitted=True), case("a", 2.0), case("b", 3.0)])
    assert body["g"]["held out"]["cases"] == 2
    assert body["g"]["held out"]["errors"]["foreserve"]["ttft_ms"]["mape_percent"] == 0
    assert body["g"]["fitted"]["errors"]["foreserve"]["ttft_ms"]["bias_percent"] == 100
    assert errors([case("a", 1.0, scale=1.1)])["foreserve"]["e2e_ms"]["bias_percent"] == pytest.approx(10)


def test_chat_runs_repeat_a_users_question_and_share_the_system_prompt() -> None:
    row = next(iter(stages().itertuples()))
    workload = chat(row)
    users = int(row.groups) * int(row.users)
    segments = workload.prompt_segment
    assert len(set(segments.tolist())) == users
    np.testing.assert_array_equal(segments[:-users], segments[users:])
    assert workload.workflow_arrival_ns is not None
    gaps = np.diff(workload.workflow_arrival_ns)
    assert np.ptp(gaps) <= 1
    assert 1e9 / gaps.mean() == pytest.approx(float(row.rate_per_s), rel=1e-6)
