"""Laws of a profile's draws and bands: whole numbers, rising curves, the same on every machine, honest ranks."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest

from calibration import catalog, conformal, posterior
from calibration.knots import KNOT_TOKENS, SCALE, factor, hat, interpolate
from traces import draws as keyed
from traces.errors import InputError

NAME = "H200x2--Qwen3-32B--bf16--vllm"


def test_every_draw_is_a_profile_whose_curve_never_falls() -> None:
    profile = catalog.open(NAME)
    assert posterior.draws(profile) == 50
    seen = set()
    for i in range(50):
        drawn = posterior.draw(profile, i)
        assert all(isinstance(v, int) for v in drawn.linear_ps)
        assert all(a <= b for a, b in pairwise(drawn.linear_ps))
        assert (drawn.identity, drawn.weight_bytes) == (profile.identity, profile.weight_bytes)
        seen.add(drawn.linear_ps)
    assert len(seen) == 50
    assert posterior.draw(profile, 57) == posterior.draw(profile, 7)


def test_draws_surround_the_profile_and_stay_near_it() -> None:
    profile = catalog.open(NAME)
    for tokens in (1, 64, 512, 4096):
        base = profile.linear_ps_at(tokens)
        ratios = sorted(posterior.draw(profile, i).linear_ps_at(tokens) / base for i in range(50))
        assert ratios[2] < 1 < ratios[-3], tokens
        assert 0.7 < ratios[0] < ratios[-1] < 1.5
    for name, (low, high) in posterior.spread(profile).items():
        assert low < high, name


def test_a_posterior_gives_back_the_profiles_it_was_made_of() -> None:
    base = catalog.open(NAME)
    slower = replace(
        base,
        linear_ps=tuple(v * 11 // 10 for v in base.linear_ps),
        kv_read_ps_per_token=base.kv_read_ps_per_token * 6 // 5,
        overhead_ps=5,
        per_seq_ps=7,
    )
    made = replace(base, posterior=posterior.posterior(base, [base, slower], "test"))
    assert replace(posterior.draw(made, 0), posterior=base.posterior) == base
    drawn = posterior.draw(made, 1)
    assert drawn.linear_ps == pytest.approx(slower.linear_ps, rel=2e-4)
    assert drawn.kv_read_ps_per_token == pytest.approx(slower.kv_read_ps_per_token, rel=2e-4)
    assert (drawn.overhead_ps, drawn.per_seq_ps) == (5, 7)


def test_a_profile_without_draws_says_so() -> None:
    with pytest.raises(InputError, match=r"field 'posterior': the profile holds no draws$"):
        posterior.draw(replace(catalog.open(NAME), posterior={}), 0)


def test_knots_are_interpolated_alike_by_fit_and_price() -> None:
    knots = (9000, 9500, 10100, 10400, 10300, 10000, 9900, 10050, 10200)
    for tokens in (1, 2, 31, 32, 100, 300, 2000, 16384, 50_000):
        by_fit = float(hat([tokens])[0] @ np.array(knots)) / SCALE
        assert factor(tokens, knots) == pytest.approx(by_fit, rel=1e-12)
    assert [interpolate(n, knots) for n in KNOT_TOKENS] == list(knots)
    assert hat(np.arange(1, 40_000, 117)).sum(axis=1) == pytest.approx(1.0)


def test_conformal_intervals_cover_what_they_promise() -> None:
    # Skewed ratios, so that no symmetric interval would do; exchangeability is all that is used.
    hits = []
    for r in range(300):
        ids = np.arange(81)
        u = keyed.uniform_array(1, "skewed", np.full_like(ids, r), ids)
        ratios = 0.9 + u**3
        low, high = conformal.quantiles(ratios[:80])
        hits.append(low <= ratios[80] * conformal.SCALE <= high)
    assert 0.86 <= float(np.mean(hits)) <= 0.94


def test_intervals_of_few_draws_hold_one_draw_more_as_often_as_promised() -> None:
    # The 51st draw from the same place, skewed, a thousand times: 90 % within 2 deviations of the share.
    ids = np.arange(51)
    u = np.array([keyed.uniform_array(2, "one more", np.full_like(ids, r), ids) for r in range(1000)]) ** 3
    low, high = posterior.interval(u[:, :50].T)
    assert low.shape == high.shape == (1000,)
    share = float(np.mean((low <= u[:, 50]) & (u[:, 50] <= high)))
    assert 0.881 <= share <= 0.919
    customary = np.quantile(u[:, :50], [0.05, 0.95], axis=1)
    assert float(np.mean((customary[0] <= u[:, 50]) & (u[:, 50] <= customary[1]))) < 0.881


def test_intervals_of_too_few_draws_are_their_extremes() -> None:
    low, high = posterior.interval([3.0, 1.0, 2.0])
    assert (float(low), float(high)) == (1.0, 3.0)
    assert [float(v) for v in posterior.interval(np.arange(18.0))] == [0.0, 17.0]


def test_bands_are_wider_out_of_range_and_unknown_kinds_take_the_widest() -> None:
    near, far = np.linspace(0.95, 1.05, 101), np.linspace(0.8, 1.3, 101)
    band = conformal.bands({"decode": near}, {"decode": far}, {"tokens": 100, "context_tokens": 1000}, "test")
    inside = conformal.interval_ps(band, "decode", 10**9, 100, 1000)
    beyond = conformal.interval_ps(band, "decode", 10**9, 101, 1000)
    assert inside is not None
    assert beyond is not None
    assert beyond[0] < inside[0] < 10**9 < inside[1] < beyond[1]
    assert conformal.interval_ps(band, "verify", 10**9, 100, 1000) == inside
    assert conformal.interval_ps({}, "decode", 10**9, 1, 1) is None
