"""The runs kept out of the fit: the same requests for everyone, and a true profile predicts them."""

from __future__ import annotations

import importlib.util
import json
import subprocess
import sys
from pathlib import Path

import pandas as pd
import pytest

from calibration import catalog, plan
from calibration.measure import measure
from calibration.measure_fake import FakeBackend
from calibration.measure_http import round_trips_ns
from calibration.measure_run import closed_loop, kernel_ps, predict_runs
from calibration.plan import Point, RunPoint
from calibration.uncertainty import scaled
from traces.errors import InputError

PROFILE = "H200x1--Qwen3-8B--bf16--vllm"
ROOT = Path(__file__).parents[2]
RUN = RunPoint("t", concurrency=6, prompt_tokens=400, output_tokens=40, chunk_tokens=256, duration_s=2.0)


def test_the_loop_conserves_tokens_and_time() -> None:
    truth = catalog.open(PROFILE)
    result = closed_loop(RUN, lambda p: kernel_ps(truth, p) // 1000)
    assert result.duration_ns == sum(s["time_ns"] for s in result.steps)
    finished = pd.DataFrame(result.requests)
    assert len(finished) > 12
    chunks = sum(s["new_tokens"] for s in result.steps if s["kind"] in ("prefill", "mixed"))
    made = sum(s["decoding"] for s in result.steps)
    # Everything finished was computed, and nothing was computed but that and what is still in the loop.
    assert finished.prompt_tokens.sum() <= chunks <= finished.prompt_tokens.sum() + 6 * 500
    assert (finished.output_tokens - 1).sum() <= made <= (finished.output_tokens - 1).sum() + 6 * 50
    assert all(
        s["decoding"] <= s["batch"] <= RUN.concurrency + 7 for s in result.steps if s["kind"] != "prefill"
    )
    assert (
        max(s["decoding"] + s["new_tokens"] for s in result.steps if s["kind"] == "mixed") <= RUN.chunk_tokens
    )


def test_requests_do_not_depend_on_the_backend() -> None:
    slow = closed_loop(RUN, lambda p: 20_000_000)
    fast = closed_loop(RUN, lambda p: 1_000_000)
    lengths = [
        {r["request"]: (r["prompt_tokens"], r["output_tokens"]) for r in x.requests} for x in (slow, fast)
    ]
    assert len(lengths[0]) > 1
    assert lengths[0].items() <= lengths[1].items()


def test_a_true_profile_predicts_its_runs_and_a_wrong_one_is_found_out(tmp_path: Path) -> None:
    truth = catalog.open(PROFILE)
    measure(FakeBackend(truth), tmp_path, plan="quick", pieces="G", run_s=8.0, say=lambda _: None)
    good = predict_runs(truth, tmp_path)
    assert set(good) == {"short", "long"}
    wrong = predict_runs(scaled(truth, {"linear": 1_100_000}), tmp_path)
    for name in good:
        assert all(abs(e) < 4 for e in good[name]["error_percent"].values())
        # Outliers make measured means longer than the profile's: a small bias is right.
        assert -3 < good[name]["steps"]["bias_percent"] < 0.5
        assert wrong[name]["error_percent"]["tpot_ms"] > good[name]["error_percent"]["tpot_ms"] + 4
    requests = pd.read_csv(tmp_path / "run-short.requests.csv")
    assert list(requests.columns) == [
        "request", "arrival_s", "prompt_tokens", "output_tokens", "ttft_ms", "e2e_ms",
    ]  # fmt: skip


def test_runs_stay_out_of_the_rows_that_are_fitted(tmp_path: Path) -> None:
    measure(
        FakeBackend(catalog.open(PROFILE)), tmp_path, plan="quick", pieces="BG", run_s=1.0, say=lambda _: None
    )
    rows = pd.read_parquet(tmp_path / "rows.parquet")
    assert len(rows) == len(plan.points("quick", "B"))
    assert not rows.source.str.contains("run").any()


def test_a_folder_without_runs_is_one_line(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="holds no run"):
        predict_runs(catalog.open(PROFILE), tmp_path)


def test_http_round_trips_take_time_and_less_than_a_delayed_acknowledgement() -> None:
    times = sorted(round_trips_ns(9))
    assert len(times) == 9
    assert 10_000 < times[4] < 30_000_000


@pytest.mark.skipif(importlib.util.find_spec("torch") is not None, reason="torch is installed")
def test_without_torch_the_message_names_the_extra(tmp_path: Path) -> None:
    words = ["measure", "--out", str(tmp_path / "new"), "--backend", "torch", "--device", "cpu"]
    done = subprocess.run(
        [sys.executable, "-m", "calibration", *words], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert done.returncode == 2
    assert "foreserve[kernels]" in done.stderr


@pytest.mark.skipif(importlib.util.find_spec("torch") is None, reason="needs torch")
def test_torch_steps_run_on_a_cpu_and_every_point_is_measured_or_refused(tmp_path: Path) -> None:
    from calibration.torch_step import TINY, TorchBackend

    backend = TorchBackend(TINY, "cpu")
    assert min(backend.measure(Point("A", "prefill", 1, 16), 5)["step"]) > 0
    outcome = measure(backend, tmp_path, plan="quick", pieces="BD", repetitions=3, say=lambda _: None)
    points = plan.points("quick", "BD")
    assert (outcome.left, outcome.refused) == (0, {})
    assert outcome.measured >= len(points)  # drift over the limit measures some again
    # What overlaps host and device, and the engine's idle constant, are no rows of steps.
    rows = pd.read_parquet(tmp_path / "rows.parquet")
    assert len(rows) == sum(p.mode != "async" and p.kind != "idle" for p in points)
    machine = json.loads((tmp_path / "machine.json").read_text())
    assert machine["device"] == "cpu"
