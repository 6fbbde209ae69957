"""The laws of the finding: biases do what they say, and flips are those beyond the interval, nothing else."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from calibration import catalog
from calibration.__main__ import main
from calibration.bias import TERMS, biased
from calibration.sensitivity import CASES, FACTORS, FAR, Case, Key, interval, judge, keys, overall
from calibration.sensitivity_cli import describe
from calibration.sensitivity_runs import run_all
from calibration.uncertainty import PPM
from traces.errors import InputError

PROFILE = "H200x1--Qwen3-8B--bf16--vllm"
TWO = Case("two", "weka", PROFILE, "evictors", ("a", "b"), 4, 2)
SEEDS = range(4)


def test_each_bias_moves_its_own_step_and_leaves_the_others() -> None:
    p = catalog.open(PROFILE)
    twice = {term: biased(p, term, 2 * PPM) for term in TERMS}
    one_token = p.linear_ps_at(1)
    assert twice["decode"].linear_ps_at(1) == 2 * one_token
    assert twice["decode"].linear_ps_at(4096) == p.linear_ps_at(4096) + one_token
    assert twice["prefill"].linear_ps_at(1) == one_token
    assert twice["prefill"].linear_ps_at(4096) == 2 * p.linear_ps_at(4096) - one_token
    assert twice["prefill"].attention_as_per_pair == 2 * p.attention_as_per_pair
    assert twice["kv_read"].step_ps(1, 1, 1000) - p.step_ps(1, 1, 1000) == 1000 * p.kv_read_ps_per_token
    assert twice["overhead"].overhead_ps == 2 * p.overhead_ps
    assert twice["overhead"].linear_ps == twice["kv_read"].linear_ps == p.linear_ps


@given(term=st.sampled_from(TERMS), ppm=st.integers(PPM // 4, 4 * PPM))
def test_a_biased_token_curve_never_falls(term: str, ppm: int) -> None:
    curve = biased(catalog.open(PROFILE), term, ppm).linear_ps
    assert list(curve) == sorted(curve)


def test_an_unknown_term_is_named() -> None:
    with pytest.raises(InputError, match="did you mean 'decode'"):
        biased(catalog.open(PROFILE), "decod", PPM)


def _latency(gain: dict[tuple[str, int], float], noise: float = 0.0) -> dict[Key, float]:
    """Arm a takes 100 s; arm b 2 % more, less the gain of a (term, factor), give or take noise by seed."""
    out = {}
    for key in keys(TWO, SEEDS):
        _, arm, term, factor, seed = key
        b = 102.0 * (1 - gain.get((term, factor), 0.0)) * (1 + noise * (seed - 1.5))
        out[key] = 100.0 if arm == "a" else b
    return out


def test_only_a_win_beyond_the_interval_is_a_flip() -> None:
    gain = {("kv_read", FACTORS[-1]): 0.05, ("kv_read", FACTORS[-2]): 0.04, ("decode", FACTORS[0]): 0.0199}
    sure = judge(TWO, _latency(gain), SEEDS)
    assert sure["chosen"] == "a"
    assert sure["sure"]
    kv = sure["terms"]["kv_read"]
    assert (kv["below"], kv["above"]) == (None, "1.41")
    assert [f["factor"] for f in kv["flips"]] == ["1.41", "2"]
    regret = 100 / (102 * 0.95) - 1
    assert kv["flips"][-1]["regret_percent"] == pytest.approx(100 * regret)
    expected = (regret + (100 / (102 * 0.96) - 1)) / len(FACTORS)
    assert kv["mean_regret_percent"] == pytest.approx(100 * expected)
    assert sure["terms"]["decode"]["below"] == "0.5"
    assert sure["terms"]["overhead"]["flips"] == []
    assert sure["measure_first"] == "kv_read"
    noisy = judge(TWO, _latency(gain, noise=0.05), SEEDS)
    assert noisy["terms"]["kv_read"]["flips"] == []
    assert not noisy["sure"]


def test_the_smallest_error_over_all_cases_is_reported_with_its_case() -> None:
    far = judge(TWO, _latency({("decode", FACTORS[0]): 0.1}), SEEDS)
    near = judge(TWO, _latency({("prefill", FACTORS[3]): 0.03}), SEEDS)
    found = overall([far, near])
    assert found["smallest"]["term"] == "prefill"
    assert found["smallest"]["factor"] == "1.19"
    assert found["measure_first"] == "decode"
    text = describe({"cases": [far, near], "overall": found})
    assert "prefill off by x1.19" in text
    assert "Measure first: decode" in text
    none = judge(TWO, _latency({}), SEEDS)
    assert overall([none])["smallest"] is None
    tie = judge(TWO, _latency({("overhead", f): 0.2 for f in FACTORS}, noise=0.05), SEEDS)
    assert not tie["sure"]
    assert overall([tie])["measure_first"] is None
    assert overall([tie, near])["smallest"]["term"] == "prefill"
    assert "Every choice is a tie" in describe({"cases": [tie], "overall": overall([tie])})
    assert "No error of one term that was tried" in describe({"cases": [none], "overall": overall([none])})


def test_a_far_error_may_flip_and_counts_for_no_regret() -> None:
    latency = _latency({("overhead", FACTORS[-1]): 0.01})
    beyond = {key: (102.0 if key[1] == "a" else 99.0 + 9 * (key[3] < PPM)) for key in keys(TWO, SEEDS, FAR)}
    found = judge(TWO, latency | beyond, SEEDS, FAR)
    assert (found["terms"]["decode"]["below"], found["terms"]["decode"]["above"]) == (None, "4")
    assert found["terms"]["decode"]["mean_regret_percent"] == 0
    assert found["terms"]["overhead"]["margin_swing_percent"] == pytest.approx(-100 * math.log(0.99))
    # Nothing is lost within the grid, so the term that moves the margin most comes first.
    assert found["measure_first"] == "overhead"
    assert not {k for k in beyond if k[2] == ""}


def test_the_interval_is_students() -> None:
    mean, low, high = interval([1.0, 2.0, 3.0])
    wide = interval([1.0, 2.0, 3.0], comparisons=40)
    assert wide[2] - wide[0] > 4 * (high - mean)
    assert (mean, low, high) == (2.0, pytest.approx(-0.484, abs=1e-3), pytest.approx(4.484, abs=1e-3))


def test_cases_name_what_exists() -> None:
    from policies import registry
    from traces import workloads

    for case in CASES.values():
        assert case.workload in workloads.names()
        assert set(case.arms) <= set(registry.names(case.family))
        assert catalog.open(case.profile).name == case.profile
        # A choice that no live engine can make is no choice.
        assert all("oracle" not in registry.load(case.family, arm).needs for arm in case.arms)


def test_a_biased_run_is_simulated_as_stated_and_repeats() -> None:
    case = CASES["lmcache-evictors"]
    wanted: list[Key] = [
        (case.name, "lru", "", PPM, 0), (case.name, "lru", "decode", 2 * PPM, 0), (case.name, "lru", "decode", PPM, 0),
    ]  # fmt: skip
    found = run_all(wanted, 1)
    assert found[wanted[1]] > found[wanted[0]] > 0
    assert found[wanted[2]] == found[wanted[0]]
    assert math.isfinite(found[wanted[1]])


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--cases", "weka-evictor"], "did you mean 'weka-evictors'"),
        (["--seeds", "1"], "--seeds 1"),
        (["--jobs", "0"], "--jobs 0"),
    ],
)
def test_a_wrong_word_is_one_line(words: list[str], said: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["sensitivity", *words]) == 2
    err = capsys.readouterr().err
    assert said in err
    assert len(err.splitlines()) == 1
