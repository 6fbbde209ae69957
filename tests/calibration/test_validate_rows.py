"""Validation: a profile against steps it priced itself, against steps off by a known share, and by load of a run."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from calibration import catalog
from calibration.__main__ import main
from calibration.rows import StepRows, write_rows
from calibration.runs import MeasuredRun
from calibration.validate import rows_report, step_errors, step_ps
from calibration.validate_run import in_flight
from policies.costs import Profile

# kind, batch, new tokens, context, prefix, scope
STEPS = [
    ("decode", 1, 1, 512, 0, "kernel"), ("decode", 64, 1, 2048, 0, "engine"), ("decode", 200, 1, 900, 0, "client"),
    ("prefill", 1, 700, 0, 0, "kernel"), ("prefill", 2, 256, 0, 4096, "engine"), ("mixed", 16, 512, 1000, 0, "kernel"),
    ("verify", 8, 4, 1500, 0, "kernel"), ("idle", 0, 0, 0, 0, "client"),
]  # fmt: skip


@pytest.fixture(scope="module")
def profile() -> Profile:
    found = catalog.open("H100x1--Llama-3.1-8B--bf16--vllm")
    return replace(found, http_overhead_ps=5_000_000_000, bands={}, error={"p95_percent": 10.0})


def priced(profile: Profile, factor: float = 1.0) -> StepRows:
    """Return STEPS as if measured: the profile's prices times `factor`, to the ns."""
    kind, batch, new, context, prefix, scope = (np.array(c) for c in zip(*STEPS, strict=True))
    zero = np.zeros(len(STEPS), dtype=np.int64)
    rows = StepRows(kind, batch, new, context, prefix, zero + 1, scope, np.array([""] * len(STEPS)), zero)
    times = [round(step_ps(profile, rows, i) * factor / 1000) for i in range(len(rows))]
    return replace(rows, time_ns=np.array(times, dtype=np.int64))


def test_a_profile_has_no_error_on_its_own_prices(profile: Profile) -> None:
    report = rows_report(profile, priced(profile))
    assert report["all"] == {
        "mape_percent": 0, "p95_percent": 0, "bias_percent": 0, "rows": 8, "coverage_percent": 100,
    }  # fmt: skip
    assert set(report["by_kind"]) == {f"{k} {s}" for k, *_, s in STEPS}


def test_bias_has_the_sign_of_the_prediction(profile: Profile) -> None:
    slow = rows_report(profile, priced(profile, 1.25))["all"]
    assert slow["bias_percent"] == pytest.approx(-20, abs=0.1)
    assert slow["mape_percent"] == pytest.approx(20, abs=0.1)
    assert slow["coverage_percent"] == 0
    assert rows_report(profile, priced(profile, 0.8))["all"]["bias_percent"] == pytest.approx(25, abs=0.1)


def test_bands_of_the_profile_decide_coverage(profile: Profile) -> None:
    bands = {
        "scale": 10_000, "limits": {"tokens": 100_000, "context_tokens": 100_000},
        "in_range": {"decode": [9_000, 11_000], "prefill": [13_000, 14_000]},
    }  # fmt: skip
    errors = step_errors(replace(profile, bands=bands), priced(profile, 1.05))
    assert errors.banded.all()
    assert errors.inside[:3].all()
    assert not errors.inside[3:5].any()


def test_scope_adds_what_the_measurement_holds(profile: Profile) -> None:
    rows = priced(profile)
    decode = [
        step_ps(profile, replace(rows, scope=np.array([s] * len(rows))), 1)
        for s in ("kernel", "engine", "client")
    ]
    assert decode[1] - decode[0] == profile.overhead_ps + 64 * profile.overhead_per_seq_ps
    assert decode[2] - decode[1] == profile.http_overhead_ps
    assert decode[1] == profile.step_ps(64, 64, 64 * 2048)


def test_requests_in_flight_count_themselves_and_the_unfinished() -> None:
    run = MeasuredRun(
        "r", np.ones(4, np.int64), np.ones(4, np.int64), np.ones(4), np.array([10.0, 1.0, 1.0, 1.0]),
        np.array([0, 2, 4, 20], dtype=np.int64) * 1_000_000,
    )  # fmt: skip
    counted = in_flight(run)
    assert counted is not None
    assert counted.tolist() == [1, 2, 2, 1]
    assert in_flight(replace(run, arrival_ns=None)) is None


def test_the_command_tells_steps_from_runs(
    profile: Profile, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write_rows(priced(profile), tmp_path / "steps.csv")
    name = "H100x1--Llama-3.1-8B--bf16--vllm"
    assert main(["validate", name, str(tmp_path / "steps.csv"), "--json"]) == 0
    assert "by_kind" in json.loads(capsys.readouterr().out)
    run = tmp_path / "run.csv"
    run.write_text(
        "arrival_s,prompt_tokens,output_tokens,ttft_ms,e2e_ms\n"
        + "".join(f"{i / 4},300,20,30,200\n" for i in range(30))
    )
    assert main(["validate", name, str(run), "--json"]) == 0
    report = json.loads(capsys.readouterr().out)
    assert report["requests"] == 30
    assert "throughput_tok_s" in report
    assert main(["validate", name, str(tmp_path / "absent.csv")]) == 2
