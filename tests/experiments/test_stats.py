from __future__ import annotations

import math

import numpy as np
import pytest
import scipy.stats

from experiments.stats import holm, mean_interval, paired_difference, paired_percent
from traces.draws import uniform_array


def _normals(purpose: str, rows: int, columns: int) -> np.ndarray:
    u = uniform_array(7, purpose, np.arange(rows)[:, None], np.arange(columns)[None, :])
    return scipy.stats.norm.ppf(np.clip(u, 1e-12, 1 - 1e-12))


def test_mean_interval_equals_the_hand_worked_one() -> None:
    # 4, 6, 8, 10: mean 7, s = sqrt(20/3), t(0.975, 3) = 3.182446
    interval = mean_interval([4.0, 6.0, 8.0, 10.0])
    assert interval is not None
    half = 3.182446 * math.sqrt(20 / 3) / 2
    assert interval.low == pytest.approx(7 - half, rel=1e-6)
    assert interval.high == pytest.approx(7 + half, rel=1e-6)


@pytest.mark.parametrize("n", [2, 3, 5, 12])
def test_paired_difference_equals_scipy(n: int) -> None:
    base, other = 5 + _normals("base", 1, n)[0], 5.3 + _normals("other", 1, n)[0]
    got = paired_difference(dict(enumerate(base)), dict(enumerate(other)))
    want = scipy.stats.ttest_rel(other, base)
    low, high = want.confidence_interval(0.95)
    assert got is not None
    assert (got.low, got.high, got.p) == pytest.approx((low, high, want.pvalue), rel=1e-9)


def test_pairing_removes_the_luck_that_arms_share() -> None:
    luck = 100 * _normals("luck", 1, 8)[0]
    noise = _normals("noise", 1, 8)[0]
    base, other = dict(enumerate(luck)), dict(enumerate(luck + 5 + noise))
    paired = paired_difference(base, other)
    assert paired is not None
    assert paired.excludes_zero
    assert not scipy.stats.ttest_ind(list(other.values()), list(base.values())).pvalue < 0.05


def test_only_seeds_both_arms_have_are_paired() -> None:
    got = paired_difference({0: 1.0, 1: 2.0, 9: 100.0}, {0: 2.0, 1: 3.0, 5: -40.0})
    assert got is not None
    assert (got.mean, got.n) == (1.0, 2)
    assert paired_difference({0: 1.0}, {1: 1.0}) is None


def test_a_value_that_is_not_finite_leaves_its_pair_out() -> None:
    got = paired_difference({0: 1.0, 1: math.nan, 2: 3.0}, {0: 2.0, 1: 3.0, 2: 4.0})
    assert got is not None
    assert got.n == 2


def test_one_seed_has_no_interval() -> None:
    for got in (
        mean_interval([3.0]),
        paired_difference({4: 1.0}, {4: 3.0}),
        paired_percent({4: 1.0}, {4: 3.0}),
    ):
        assert got is not None
        assert (got.low, got.high, got.p, got.largest, got.excludes_zero) == (None, None, None, None, False)


def test_percent_change_is_symmetric_under_exchange_of_arms() -> None:
    a, b = {0: 100.0, 1: 120.0, 2: 90.0}, {0: 80.0, 1: 100.0, 2: 85.0}
    forth, back = paired_percent(a, b), paired_percent(b, a)
    assert forth is not None
    assert back is not None
    assert (1 + forth.mean / 100) * (1 + back.mean / 100) == pytest.approx(1)
    assert (1 + (forth.low or 0) / 100) * (1 + (back.high or 0) / 100) == pytest.approx(1)


def test_percent_change_refuses_a_zero_instead_of_dropping_the_pair() -> None:
    assert paired_percent({0: 0.0, 1: 1.0}, {0: 1.0, 1: 1.0}) is None


def test_identical_arms_have_a_zero_width_interval_at_zero() -> None:
    got = paired_difference({0: 1.5, 1: 2.5, 2: 9.0}, {0: 1.5, 1: 2.5, 2: 9.0})
    assert got is not None
    assert (got.mean, got.low, got.high, got.p) == (0.0, 0.0, 0.0, 1.0)


@pytest.mark.parametrize("n", [2, 5])
def test_intervals_cover_the_truth_as_often_as_they_say(n: int) -> None:
    trials = 2000
    draws = _normals(f"coverage-{n}", trials, n) * 3 + 10
    hits = 0
    for row in draws:
        interval = mean_interval(row.tolist())
        assert interval is not None
        hits += bool((interval.low or 0) <= 10 <= (interval.high or 0))
    # 4 standard errors of a binomial share at 0.95
    assert abs(hits / trials - 0.95) < 4 * math.sqrt(0.95 * 0.05 / trials)


def test_an_interval_of_a_positive_mean_never_reaches_below_zero() -> None:
    wide = mean_interval([1.0, 2.0, 9.0])
    assert wide is not None
    assert wide.low is not None
    assert wide.low < 0
    cut = wide.within(0.0)
    assert (cut.low, cut.high, cut.mean, cut.p, cut.n) == (0.0, wide.high, wide.mean, wide.p, wide.n)
    share = mean_interval([0.5, 1.0])
    assert share is not None
    assert (share.within(0.0, 1.0).low, share.within(0.0, 1.0).high) == (0.0, 1.0)
    alone = mean_interval([3.0])
    assert alone is not None
    assert alone.within(0.0) == alone


@pytest.mark.parametrize("n", [2, 5])
def test_a_cut_interval_covers_exactly_as_often(n: int) -> None:
    # Lognormal latencies, as noisy as their mean; exp of a normal has mean exp(1/2).
    truth = math.exp(0.5)
    covered = [0, 0]
    for row in np.exp(_normals(f"cut-{n}", 400, n)):
        whole = mean_interval(row.tolist())
        assert whole is not None
        for k, interval in enumerate((whole, whole.within(0.0))):
            assert interval.low is not None
            assert interval.high is not None
            covered[k] += interval.low <= truth <= interval.high
    assert covered[0] == covered[1] > 0


def test_holm_equals_the_hand_worked_steps() -> None:
    # sorted 0.005·4, 0.01·3, 0.03·2, 0.04·1, then made monotone
    assert holm([0.01, 0.04, 0.03, 0.005]) == pytest.approx([0.03, 0.06, 0.06, 0.02])
    assert holm([0.6, 0.9]) == [1.0, 1.0]
    assert holm([]) == []


def test_holm_does_not_count_what_has_no_p_value() -> None:
    assert holm([None, 0.02, None]) == [None, 0.02, None]
