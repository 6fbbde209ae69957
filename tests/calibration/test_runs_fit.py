"""Observe, replay, calibrate: a run made by a known profile is explained, and its constants are found again."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from calibration import catalog
from calibration.__main__ import main
from calibration.predict_serving import Serving
from calibration.runs import MeasuredRun
from calibration.runs_fit import adjusted, calibrate
from calibration.runs_replay import compare, replay
from policies.costs import Profile, load_profile
from sim.config import EngineConfig
from traces.arrivals import poisson
from traces.draws import uniform_array
from traces.errors import InputError

ENGINE = EngineConfig(max_num_seqs=64, max_num_batched_tokens=2048)
TRUTH = (1.12, 900.0, 25.0, 14.0)


@pytest.fixture(scope="module")
def given() -> Profile:
    return catalog.open("H100x1--Llama-3.1-8B--bf16--vllm")


def observed(profile: Profile, how: Serving, n: int = 160, noise: float = 0.02) -> MeasuredRun:
    """Return what a client would measure of `profile`, each latency off by up to `noise`."""
    ids = np.arange(n)
    run = MeasuredRun(
        "observed",
        (100 + 900 * uniform_array(1, "prompt", ids)).astype(np.int64),
        (20 + 200 * uniform_array(1, "output", ids)).astype(np.int64),
        np.ones(n),
        np.ones(n),
        poisson(n, 8.0, 1),
    )
    seen, _ = replay(run, profile, ENGINE, how)
    factor = 1 + noise * (2 * uniform_array(1, "noise", ids) - 1)
    return replace(run, ttft_ms=seen.ttft_ms * factor, e2e_ms=seen.e2e_ms * factor)


def test_replaying_a_run_of_the_profile_itself_has_no_error(given: Profile) -> None:
    run = observed(given, Serving(), noise=0.0)
    seen, rate = replay(run, given, ENGINE, Serving())
    for errors in compare(run, seen).values():
        assert errors["mape_percent"] == errors["bias_percent"] == 0
    assert rate == pytest.approx(run.throughput_tok_s(), rel=0.01)


def test_a_run_is_explained_from_its_first_half(given: Profile) -> None:
    run = observed(adjusted(given, *TRUTH), Serving())
    found = calibrate(run, given, ENGINE, scheduling=("sync",))
    # Time of a step and kernels move together in one run at one load: their sum is what it shows.
    assert 1.0 < found.kernels < 1.3
    assert found.profile.http_overhead_ps / 1e9 == pytest.approx(TRUTH[3], abs=4.0)
    rest = ~found.fitted
    before, after = compare(run, found.before, rest), compare(run, found.after, rest)
    for name in ("tpot_ms", "e2e_ms"):
        assert after[name]["mape_percent"] < 2.5 < before[name]["mape_percent"]
    assert after["ttft_ms"]["mape_percent"] < before["ttft_ms"]["mape_percent"] / 2


def test_the_habit_that_made_the_run_is_chosen(given: Profile) -> None:
    how = Serving(first_token_steps=1)
    run = observed(replace(given, overhead_per_seq_ps=0, http_overhead_ps=5_000_000_000), how)
    found = calibrate(run, given, ENGINE)
    assert found.scheduling == "async"
    assert compare(run, found.after, ~found.fitted)["ttft_ms"]["mape_percent"] < 8


def test_a_run_too_short_to_split_is_refused(given: Profile) -> None:
    run = observed(given, Serving(), n=30)
    with pytest.raises(InputError, match="at least 20"):
        calibrate(run, given, ENGINE)


def test_a_run_that_the_engine_refuses_is_said_so(given: Profile) -> None:
    run = observed(given, Serving(), n=40)
    with pytest.raises(InputError, match="refused"):
        replay(run, given, replace(ENGINE, max_model_len=100), Serving())


def test_from_run_writes_a_profile_that_says_where_it_is_from(
    given: Profile, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = observed(adjusted(given, *TRUTH), Serving(), n=60)
    assert run.arrival_ns is not None
    log, out = tmp_path / "run.csv", tmp_path / "calibrated.json"
    rows = zip(
        run.arrival_ns / 1e9, run.prompt_tokens, run.output_tokens, run.ttft_ms, run.e2e_ms, strict=True
    )
    log.write_text(
        "arrival_s,prompt_tokens,output_tokens,ttft_ms,e2e_ms\n"
        + "".join(",".join(map(str, row)) + "\n" for row in rows)
    )
    words = [
        "from-run",
        str(log),
        "--profile",
        given.name,
        "--out",
        str(out),
        "--scheduling",
        "sync",
        "--json",
    ]
    assert main([*words, "--engine", "max_num_seqs=64", "max_num_batched_tokens=2048"]) == 0
    report = json.loads(capsys.readouterr().out)
    assert report["held_out"]["after"]["e2e_ms"]["mape_percent"] < 4
    written = load_profile(out)
    assert written.provenance["calibrated_on"]["run"] == "run"
    assert written.identity["timing"] == "measured"
    assert written.http_overhead_ps > 0


def test_a_wrong_log_writes_nothing_and_exits_2(
    given: Profile, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    log, out = tmp_path / "run.csv", tmp_path / "calibrated.json"
    log.write_text("arrival_s,prompt_tokens\n0,1\n")
    assert main(["from-run", str(log), "--profile", given.name, "--out", str(out)]) == 2
    assert not out.exists()
    assert capsys.readouterr().err.count("\n") == 1
