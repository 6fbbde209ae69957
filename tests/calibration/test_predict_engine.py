"""A client's figures: prices of lone requests, load, asynchronous scheduling, collectives and KV width."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest

from calibration import catalog
from calibration.predict import predict, predict_closed_loop
from calibration.predict_cli import engine_options
from calibration.predict_client import ClosedLoop
from calibration.predict_serving import CUSTOM_REDUCE_BYTES, Serving, served, serving
from policies.costs import Profile
from sim.config import EngineConfig, LoadConfig
from traces.errors import InputError
from traces.flat import flat_workload

ENGINE = EngineConfig(prefix_cache="none")
MS = 1_000_000_000


@pytest.fixture(scope="module")
def small() -> Profile:
    return catalog.open("H100x1--Llama-3.1-8B--bf16--vllm")


@pytest.fixture(scope="module")
def wide() -> Profile:
    return catalog.open("H200x4--Llama-3.1-70B--fp8--vllm")


def test_a_lone_prompt_costs_its_own_step(small: Profile) -> None:
    seen = predict_closed_loop(replace(small, http_overhead_ps=3 * MS), ClosedLoop(600, 1, 1, 1, 0), ENGINE)
    assert seen.ttft_ms.mean == pytest.approx(small.step_ps(600, 1, 0, 180_000) / MS + 3, rel=1e-6)
    assert seen.tpot_ms.mean is None
    assert seen.e2e_ms.mean == seen.ttft_ms.mean


def test_more_requests_in_flight_never_serve_fewer_tokens_or_each_faster(small: Profile) -> None:
    seen = [predict_closed_loop(small, ClosedLoop(256, 32, c), ENGINE) for c in (1, 4, 16, 64)]
    for a, b in pairwise(seen):
        assert b.throughput_tok_s > a.throughput_tok_s
        assert (b.tpot_ms.mean or 0) > (a.tpot_ms.mean or 0)


def test_all_latencies_and_counts_are_consistent(small: Profile) -> None:
    seen = predict_closed_loop(small, ClosedLoop(256, 32, 8), ENGINE, itl=True)
    assert seen.requests == seen.completed == 80
    assert seen.itl_ms is not None
    for f in (seen.ttft_ms, seen.tpot_ms, seen.itl_ms, seen.e2e_ms):
        assert f.p50 is not None
        assert f.p90 is not None
        assert f.p99 is not None
        assert 0 < f.p50 <= f.p90 <= f.p99
    assert seen.throughput_tok_s == pytest.approx(80 * 32 / seen.duration_s, rel=1e-9)
    body = seen.to_json()
    assert body["ttft_ms"]["mean"] == pytest.approx(seen.ttft_ms.mean, rel=1e-5)


def test_asynchronous_scheduling_delays_first_tokens_only_where_the_engine_is_busy(small: Profile) -> None:
    # The second request arrives while the first decodes, the third long after both.
    arrival = np.array([0, 100_000_000, 60_000_000_000], dtype=np.int64)
    two = flat_workload("w", arrival, np.full(3, 200, np.int32), np.full(3, 100, np.int32), {})
    load = LoadConfig(loop="open")
    sync = predict(small, two, ENGINE, load, how=Serving())
    late = predict(small, two, ENGINE, load, how=Serving(first_token_steps=1))
    gap = 3 * ((late.ttft_ms.mean or 0) - (sync.ttft_ms.mean or 0))
    step = small.step_ps(1, 1, 250) / MS
    assert step * 0.9 < gap < step * 1.6
    assert late.tpot_ms == sync.tpot_ms


def test_habits_keep_prices_whole_and_ascending(wide: Profile) -> None:
    for name in ("profile", "sync", "async"):
        priced, _ = served(wide, serving(name))
        assert all(isinstance(ps, int) for ps in priced.linear_ps)
        assert all(b >= a for a, b in pairwise(priced.linear_ps))
    assert served(wide, serving("profile"))[0] == wide


def test_faster_collectives_change_large_messages_alone(wide: Profile) -> None:
    fast, _ = served(wide, Serving(reduce_gb_per_s=400))
    hidden = 8192
    for tokens, before, after in zip(wide.linear_tokens, wide.linear_ps, fast.linear_ps, strict=True):
        if 2 * tokens * hidden <= CUSTOM_REDUCE_BYTES:
            assert abs(after - before) <= before * 1e-9
        else:
            assert after < before


def test_fp8_weights_read_faster_shorten_decode_and_not_prefill(wide: Profile) -> None:
    fast, _ = served(wide, Serving(fp8_permille=900))
    assert fast.linear_ps_at(1) < 0.95 * wide.linear_ps_at(1)
    assert fast.linear_ps_at(8192) > 0.999 * wide.linear_ps_at(8192)
    bf16 = catalog.open("H200x4--Llama-3.1-70B--bf16--vllm")
    assert served(bf16, Serving(fp8_permille=900))[0] == bf16


def test_eight_bit_kv_doubles_the_pool_of_fp8_checkpoints(wide: Profile) -> None:
    narrow, notes = served(wide, Serving(kv8=True))
    assert 2 * narrow.kv_bytes_per_token == wide.kv_bytes_per_token
    assert any("8 bits" in n for n in notes)


def test_output_lengths_average_to_what_was_asked() -> None:
    for spread in (0, 100, 500):
        lengths = ClosedLoop(64, 1000, 8, 10, spread).workload(seed=3).output_tokens
        assert int(lengths.sum()) == 80 * 1000
        assert lengths.min() >= 1000 - spread
        assert lengths.max() <= 1000 + spread
    assert len(set(ClosedLoop(64, 1000, 8, 10, 0).workload().output_tokens.tolist())) == 1


def test_the_same_seed_gives_the_same_prediction(small: Profile) -> None:
    runs = [predict_closed_loop(small, ClosedLoop(128, 16, 8), ENGINE, seed=5).to_json() for _ in range(2)]
    assert runs[0] == runs[1]


def test_engine_options_are_typed_and_named() -> None:
    assert engine_options(["max_num_seqs=8", "engine.fast_forward=false", "gpu-memory-utilization=0.5"]) == {
        "max_num_seqs": 8, "fast_forward": False, "gpu_memory_utilization": 0.5,
    }  # fmt: skip
    assert engine_options(["num_gpu_blocks=none"]) == {"num_gpu_blocks": None}
    for wrong in ("max_num_sequences=8", "max_num_seqs=eight", "fast_forward=maybe", "max_num_seqs"):
        with pytest.raises(InputError):
            engine_options([wrong])


@pytest.mark.parametrize("field", ["isl", "osl", "concurrency", "rounds"])
def test_a_client_of_nothing_is_refused(field: str) -> None:
    with pytest.raises(InputError, match=field):
        ClosedLoop(**{"isl": 8, "osl": 8, "concurrency": 1, "rounds": 1, field: 0})


def test_requests_too_long_for_the_model_are_an_error_with_the_reason(small: Profile) -> None:
    with pytest.raises(InputError, match="max_model_len"):
        predict_closed_loop(small, ClosedLoop(200_000, 8, 1, 1, 0), ENGINE)
