from __future__ import annotations

import hashlib
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from traces import arrivals, lengths, portable, synthetic
from traces.errors import InputError
from traces.reuse import prefix_reuse
from traces.schema import StageKind, Workload

Int64 = NDArray[np.int64]


@given(st.floats(1e-300, 1e300))
def test_portable_log_is_the_logarithm(x: float) -> None:
    assert portable.log(np.array([x]))[0] == pytest.approx(math.log(x), rel=1e-15, abs=1e-16)


@given(st.floats(-690, 690))
def test_portable_exp_is_the_exponential(x: float) -> None:
    assert portable.exp(np.array([x]))[0] == pytest.approx(math.exp(x), rel=1e-15)


@given(st.floats(-1e6, 1e6))
def test_portable_sine_is_the_sine(x: float) -> None:
    assert portable.sin_turns(np.array([x]))[0] == pytest.approx(math.sin(2 * math.pi * (x % 1)), abs=1e-9)


def test_normal_variates_have_normal_moments() -> None:
    z = portable.normal(1, "z", np.arange(100_000))
    # standard errors: mean 0.0032, square 0.0045, fourth power 0.031
    assert abs(z.mean()) < 0.013
    assert abs((z * z).mean() - 1) < 0.018
    assert abs((z**4).mean() - 3) < 0.13


@pytest.mark.parametrize("shape", [0.1, 0.7, 1.0, 6.0])
def test_gamma_variates_have_gamma_moments(shape: float) -> None:
    n = 50_000
    g = portable.gamma(shape, 2, "g", np.arange(n))
    assert abs(g.mean() - shape) < 4 * math.sqrt(shape / n)
    spread = math.sqrt((3 * shape * (shape + 2) - shape**2) / n)  # of the sample variance
    assert abs(g.var() - shape) < 4 * spread


@pytest.mark.parametrize(("rate", "cv"), [(4.0, 1.0), (0.5, 3.0), (20.0, 0.25)])
def test_gamma_arrivals_have_their_rate_and_variation(rate: float, cv: float) -> None:
    n = 40_000
    times = arrivals.gamma(n, rate, cv, 5)
    gaps = np.diff(times) / 1e9
    assert abs(gaps.mean() * rate - 1) < 4 * cv / math.sqrt(n)
    assert gaps.std() / gaps.mean() == pytest.approx(cv, rel=0.05)


def test_poisson_gaps_are_exponential() -> None:
    gaps = np.sort(np.diff(arrivals.poisson(20_000, 4.0, 0)) / 1e9)
    empirical = np.arange(1, len(gaps) + 1) / len(gaps)
    assert np.max(np.abs(empirical - (1 - np.exp(-4.0 * gaps)))) < 1.95 / math.sqrt(len(gaps))  # KS at 0.1 %


def test_diurnal_arrivals_follow_the_wave() -> None:
    period_s, amplitude = 200.0, 0.9
    times = arrivals.diurnal(40_000, 4.0, amplitude, period_s, 1) / 1e9
    whole = times[times < period_s * (times[-1] // period_s)]
    phase = whole / period_s % 1
    up, down = np.count_nonzero(phase < 0.5), np.count_nonzero(phase >= 0.5)
    # the mean of sin over half a period is 2/pi
    expected = (1 + amplitude * 2 / math.pi) / (1 - amplitude * 2 / math.pi)
    assert up / down == pytest.approx(expected, rel=0.05)
    assert len(whole) / (period_s * (times[-1] // period_s)) == pytest.approx(4.0, rel=0.03)
    assert np.all(np.diff(times) >= 0)


def test_a_longer_workload_begins_like_a_shorter_one() -> None:
    for make in (
        lambda n: arrivals.poisson(n, 4.0, 9),
        lambda n: arrivals.gamma(n, 4.0, 3.0, 9),
        lambda n: arrivals.diurnal(n, 4.0, 0.5, 60.0, 9),
        lambda n: lengths.Lognormal(512, 1.0).draw(9, "prompt tokens", np.arange(n)),
    ):
        assert np.array_equal(make(300)[:100], make(100))
        assert len(make(300)) == 300


def test_seeds_differ_and_repeat() -> None:
    a, b = (synthetic.requests("a", arrivals.poisson(50, 1, s), LOG, LOG, s).digest() for s in (0, 1))
    assert a != b
    assert synthetic.requests("a", arrivals.poisson(50, 1, 0), LOG, LOG, 0).digest() == a


LOG = lengths.Lognormal(512, 1.0, 16, 4096)


def test_lognormal_lengths_have_their_median_and_bounds() -> None:
    drawn = LOG.draw(0, "x", np.arange(20_000))
    assert np.median(drawn) == pytest.approx(512, rel=0.04)
    assert (drawn.min(), drawn.max()) == (16, 4096)
    inside = np.log(drawn[(drawn > 16) & (drawn < 4096)])
    assert np.percentile(inside, 25) == pytest.approx(math.log(512) - 0.674, abs=0.06)


def test_empirical_prompts_and_outputs_stay_paired() -> None:
    prompt, output = np.arange(1, 40), np.arange(1, 40) * 100
    w = synthetic.requests(
        "e", arrivals.poisson(500, 1, 0), lengths.Empirical(prompt), lengths.Empirical(output), 0
    )
    assert np.array_equal(w.output_tokens, w.prompt_tokens * 100)
    assert len(np.unique(w.prompt_tokens)) > 30


def sessions(**changes: object) -> Workload:
    options: dict[str, object] = {
        "turns": lengths.Fixed(3),
        "user": lengths.Fixed(40),
        "output": lengths.Fixed(24),
        "think_ms": lengths.Fixed(500),
        "system_tokens": 100,
    }
    return synthetic.sessions("s", arrivals.poisson(20, 1, 0), **(options | changes))  # type: ignore[arg-type]


def test_history_grows_and_only_the_system_prompt_is_shared() -> None:
    w = sessions()
    llm = w.stage_kind == StageKind.LLM
    assert w.prompt_tokens[llm].tolist() == [140, 204, 268] * 20
    reuse = prefix_reuse(w)
    # full blocks of 16: 96 of the 100 system tokens; then the blocks of prompt and output before
    assert reuse.hit_tokens.reshape(20, 3)[0].tolist() == [0, 160, 224]
    assert np.all(reuse.hit_tokens.reshape(20, 3)[1:] == [96, 160, 224])
    assert np.all(reuse.own_hit_tokens.reshape(20, 3) == [0, 160, 224])
    assert np.all(w.stage_duration_ns[~llm] == 500_000_000)


def test_sessions_of_different_system_prompts_share_nothing() -> None:
    w = sessions(system_prompts=4)
    assert len(w.agents) == 4
    reuse = prefix_reuse(w)
    first = reuse.hit_tokens.reshape(20, 3)[:, 0]
    assert np.count_nonzero(first == 0) == 4
    assert np.count_nonzero(first == 96) == 16


def test_turns_vary_by_session() -> None:
    w = sessions(turns=lengths.Lognormal(4, 0.8, 1, 12), think_ms=lengths.Fixed(0))
    counts = np.bincount(w.stage_workflow)
    assert counts.min() >= 1
    assert len(np.unique(counts)) > 3
    assert w.n_requests == w.n_stages  # a wait of 0 is no stage


@pytest.mark.parametrize(
    ("spec", "error"),
    [
        ("lognorml:5:1", "unknown distribution 'lognorml'; did you mean 'lognormal'"),
        ("fixed:x", "expected numbers"),
        ("fixed:1:2", "expected the form"),
        ("fixed:0", "expected whole numbers from 1"),
        ("fixed:1.5", "expected whole numbers"),
        ("lognormal:5", "expected the form"),
        ("lognormal:-5:1", "expected a median above 0"),
        ("lognormal:nan:1", "expected a median above 0"),
        ("lognormal:5:1:9:2", "lower bound is above"),
    ],
)
def test_a_malformed_distribution_is_one_line(spec: str, error: str) -> None:
    with pytest.raises(InputError, match=error):
        lengths.parse(spec, "--prompt", 1)


@pytest.mark.parametrize("rate", [0.0, -1.0, float("nan"), float("inf")])
def test_impossible_rates_are_refused(rate: float) -> None:
    with pytest.raises(InputError, match="rate_per_s"):
        arrivals.poisson(10, rate, 0)


def test_generated_numbers_are_the_same_on_every_machine() -> None:
    # Pinned on one machine: another CPU, numpy or libm that turns a last bit into another integer shows here.
    ids = np.arange(20_000)
    columns = (
        arrivals.poisson(20_000, 4.0, 7),
        arrivals.gamma(20_000, 4.0, 3.0, 7),
        arrivals.diurnal(20_000, 4.0, 0.8, 600.0, 7),
        LOG.draw(7, "prompt tokens", ids),
    )
    digest = hashlib.blake2b(b"".join(c.astype("<i8").tobytes() for c in columns), digest_size=8).hexdigest()
    assert digest == "b91da5134f425d47"


def test_outputs_with_ids_repeat_as_much_as_asked() -> None:
    shares = []
    for repeats in (0.0, 0.5, 1.0):
        w = synthetic.sessions(
            "s",
            arrivals.poisson(4, 1.0, 3),
            turns=lengths.Fixed(4),
            user=lengths.Fixed(50),
            output=lengths.Fixed(300),
            think_ms=lengths.Fixed(0),
            system_tokens=0,
            repeats=repeats,
        )
        assert w.errors() == []
        assert w.output_ids is not None
        assert w.output_ptr is not None
        assert np.diff(w.output_ptr).tolist() == w.output_tokens.tolist()
        per_session = w.output_ids.reshape(4, -1)
        shares.append(1 - np.mean([len(np.unique(row)) for row in per_session]) / per_session.shape[1])
    assert shares[0] < 0.02
    assert 0.35 < shares[1] < 0.65
    assert shares[2] > 0.9
    with pytest.raises(InputError, match="repeats=2"):
        synthetic.sessions(
            "s", arrivals.poisson(1, 1.0, 3), turns=lengths.Fixed(1), user=lengths.Fixed(5), output=lengths.Fixed(5),
            think_ms=lengths.Fixed(0), system_tokens=0, repeats=2.0,
        )  # fmt: skip
