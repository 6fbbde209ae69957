"""Laws of the fit: slopes are slopes, truth is found, few rows stay at the prior, the token curve never falls."""

from __future__ import annotations

import json
from dataclasses import replace
from functools import cache
from itertools import pairwise
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from calibration.__main__ import main
from calibration.fit import Prior, decided, falls, fit
from calibration.fit_profile import Target, fit_profile, prior_of
from calibration.fit_terms import LOGS, NAMES, Floats, price, split, terms, vector
from calibration.fit_verify import read_factor
from calibration.gpus import gpu
from calibration.models import model
from calibration.rows import StepRows, concatenate, from_frame, write_rows
from calibration.study_recovery import World, default_target, measured, planned, truth
from policies.costs import Profile, load_profile
from traces.errors import InputError

QUIET = World(noise=0.0, drift=0.0, outliers=0.0)


def kernel_prior(target: Target) -> Prior:
    prior = prior_of(target)
    plain = np.array([n.startswith(("engine", "client")) for n in NAMES])
    return Prior(np.where(plain, 0.0, prior.mean), prior.width)


def world_rows(target: Target, x: Floats, world: World, repetition: int = 0) -> StepRows:
    rows = planned()
    seconds = price(x, terms(rows, target.shard, target.gpu, target.precision))[0]
    return measured(rows, seconds, world, repetition)


@pytest.mark.parametrize("name", ["Qwen3-8B", "Qwen3-30B-A3B"])
def test_slopes_are_the_derivatives_of_the_price(name: str) -> None:
    target = Target(model(name).shard(2), gpu("H100"), "bf16")
    x = prior_of(target).mean
    rows = planned(1)
    t = terms(replace(rows, scope=np.full(len(rows), "client")), target.shard, target.gpu, target.precision)
    slopes = price(x, t)[1]
    for j in range(len(NAMES)):
        step = np.zeros(x.size)
        step[j] = 1e-5
        numeric = (price(x + step, t)[0] - price(x - step, t)[0]) / 2e-5
        assert slopes[:, j] == pytest.approx(numeric, rel=1e-4, abs=1e-12), NAMES[j]


def test_parameters_survive_the_trip_through_constants() -> None:
    x = prior_of(default_target()).mean
    constants, overhead, http_us = split(x, "test")
    assert vector(constants, overhead, http_us) == pytest.approx(x, abs=2e-3)


def test_prices_of_a_known_world_are_found_from_noisy_rows_with_outliers() -> None:
    target = default_target()
    prior = kernel_prior(target)
    blank = terms(planned(), target.shard, target.gpu, target.precision)
    for repetition in range(3):
        x = truth(prior, blank, repetition)
        rows = world_rows(target, x, World(), repetition)
        found = fit(terms(rows, target.shard, target.gpu, target.precision), prior)
        error = np.abs(price(found.x, blank)[0] / price(x, blank)[0] - 1)
        assert error.mean() < 0.012
        assert error.max() < 0.04
        assert 0.012 < found.noise < 0.035
        assert not falls(found.x, blank) or error.max() < 0.02


def test_few_rows_stay_at_the_prior_and_many_leave_it() -> None:
    target = default_target()
    prior = kernel_prior(target)
    x = prior.mean.copy()
    x[LOGS.index("kv")] += 0.3
    rows = world_rows(target, x, QUIET)
    some = rows.where(np.flatnonzero((rows.kind == "decode") & (rows.context_tokens == 256))[:2])
    kv = LOGS.index("kv")
    few = fit(terms(some, target.shard, target.gpu, target.precision), prior)
    many = fit(terms(rows, target.shard, target.gpu, target.precision), prior)
    assert abs(few.x[kv] - prior.mean[kv]) < 0.1
    assert many.x[kv] - prior.mean[kv] == pytest.approx(0.3, abs=0.02)
    assert decided(few) < 2.5 < decided(many)


def idle_rows(client_ns: int, engine_ns: int) -> StepRows:
    table = {"batch": 0, "new_tokens": 0, "context_tokens": 0, "prefix_tokens": 0, "kind": "idle"}
    frame = pd.DataFrame([table] * 8).assign(
        scope=["engine", "client"] * 4, time_ns=[engine_ns, engine_ns + client_ns] * 4
    )
    return from_frame(frame, "idle")


def test_engine_and_http_time_are_kept_apart_from_kernels() -> None:
    target = default_target()
    x = kernel_prior(target).mean
    kernel = world_rows(target, x, QUIET)
    # The same steps again with 700 us of engine and 20 us a sequence on top.
    extra = (700_000 + 20_000 * kernel.seqs).astype(np.int64)
    engine = replace(kernel, scope=np.full(len(kernel), "engine"), time_ns=kernel.time_ns + extra)
    profile = fit_profile(concatenate([kernel, engine, idle_rows(2_000_000, 700_000)]), target, {})
    alone = fit_profile(kernel, target, {})
    assert profile.overhead_ps == pytest.approx(700_000_000, rel=0.1)
    assert profile.overhead_per_seq_ps == pytest.approx(20_000_000, rel=0.1)
    assert profile.http_overhead_ps == pytest.approx(2_000_000_000, rel=0.05)
    assert alone.http_overhead_ps == 0
    for n in (1, 64, 512, 4096):
        assert profile.linear_ps_at(n) == pytest.approx(alone.linear_ps_at(n), rel=0.03)


@pytest.mark.parametrize(
    "true", [{"regime": "packed", "packed_rows": 32}, {"regime": "prefill", "growth_permille": 150}]
)
def test_the_regime_of_verification_attention_is_found(true: dict[str, object]) -> None:
    target = default_target()
    x = kernel_prior(target).mean
    cases = [("verify", b, q, c, 0) for q in (2, 4, 8, 16) for b in (8, 32, 128) for c in (1024, 8192)]
    columns = ["kind", "batch", "new_tokens", "context_tokens", "prefix_tokens"]
    asked = from_frame(pd.DataFrame(cases, columns=columns).assign(time_ns=1), "verify")
    verify = {"group": 4, **true}
    factor = read_factor(verify, asked.new_tokens)
    seconds = price(x, terms(asked, target.shard, target.gpu, target.precision, factor))[0]
    asked = measured(asked, seconds, World(noise=0.01, drift=0.0, outliers=0.0), 0)
    profile = fit_profile(concatenate([world_rows(target, x, QUIET), asked]), target, {})
    assert {k: profile.verify[k] for k in true} == true
    assert profile.error["by_kind"]["verify"]["mape_percent"] < 3
    regime = profile.verify["regime"]
    other = "prefill" if regime == "packed" else "packed"
    assert profile.verify["errors"][regime]["mape_percent"] < profile.verify["errors"][other]["mape_percent"]


@cache
def fitted(repetition: int, name: str, key: str, tp: int) -> Profile:
    target = Target(model(name).shard(tp), gpu(key), "bf16")
    prior = kernel_prior(target)
    # Not only rising truths: rows may show a fall (a faster kernel at a larger size), a profile never does.
    ids = np.arange(len(NAMES))
    x = prior.mean + prior.width * np.cos(3.0 * ids + repetition)
    x[len(LOGS) : len(LOGS) + 5] = np.maximum(x[len(LOGS) : len(LOGS) + 5], 0)
    x[LOGS.index("power")] = max(x[LOGS.index("power")], 0.0)
    return fit_profile(world_rows(target, x, World(), repetition), target, {})


CASES = [(0, "Qwen3-8B", "H200", 1), (1, "Qwen3-30B-A3B", "H100", 1), (2, "Llama-3.1-8B", "A6000", 2)]


@settings(max_examples=120, deadline=None)
@given(
    case=st.sampled_from(CASES),
    tokens=st.integers(1, 40_000),
    seqs=st.integers(1, 1024),
    context=st.integers(0, 10_000_000),
    pairs=st.integers(0, 10**10),
    grow=st.integers(1, 5000),
)
def test_fitted_price_never_falls_with_tokens_batch_context_or_pairs(
    case: tuple[int, str, str, int], tokens: int, seqs: int, context: int, pairs: int, grow: int
) -> None:
    step = fitted(*case).step_ps
    base = step(tokens, seqs, context, pairs)
    assert step(tokens + grow, seqs, context, pairs) >= base
    assert step(tokens, seqs + grow, context, pairs) >= base
    assert step(tokens, seqs, context + grow, pairs) > base
    assert step(tokens, seqs, context, pairs + grow) >= base


@pytest.mark.parametrize("case", CASES)
def test_fitted_token_curve_never_falls(case: tuple[int, str, str, int]) -> None:
    assert all(a <= b for a, b in pairwise(fitted(*case).linear_ps))


def test_the_command_writes_a_profile_that_reads_back_and_is_the_same_twice(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    target = default_target()
    rows = world_rows(target, kernel_prior(target).mean, World())
    write_rows(rows, tmp_path / "rows.parquet")
    made = []
    for name in ("a.json", "b.json"):
        argv = ["fit", str(tmp_path / "rows.parquet"), "--gpu", "h200", "--model", "Qwen3-8B", "--out"]
        assert main([*argv, str(tmp_path / name)]) == 0
        made.append((tmp_path / name).read_bytes())
    assert made[0] == made[1]
    profile = load_profile(tmp_path / "a.json")
    assert profile.name == "H200x1--Qwen3-8B--bf16--vllm"
    assert profile.identity["timing"] == "measured"
    assert set(profile.error["by_kind"]) == {"decode", "prefill", "mixed"}
    assert len(profile.posterior["linear"]) == 50
    assert json.loads(made[0])["bands"]["coverage_percent"] == 90
    assert "rows.parquet" in profile.provenance["rows"]
    assert "step time on rows that were not fitted" in " ".join(capsys.readouterr().out.split())


def test_too_few_rows_and_bad_targets_are_refused_and_write_nothing(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    target = default_target()
    rows = world_rows(target, kernel_prior(target).mean, World())
    write_rows(rows.where(np.arange(9)), tmp_path / "rows.csv")
    out = tmp_path / "p.json"
    argv = ["fit", str(tmp_path / "rows.csv"), "--model", "Qwen3-8B", "--out", str(out)]
    assert main([*argv, "--gpu", "H200"]) == 2
    assert capsys.readouterr().err == "error: 9 rows with work: a fit needs at least 10\n"
    assert main([*argv, "--gpu", "H2000"]) == 2
    assert "did you mean 'H200'" in capsys.readouterr().err
    assert main([*argv, "--gpu", "A100", "--precision", "fp8"]) == 2
    assert "no fp8 tensor cores" in capsys.readouterr().err
    assert not out.exists()
    with pytest.raises(InputError):
        fit_profile(rows.where(np.arange(3)), target, {})
