"""Laws of verification: two regimes, widths that agree with public curves, a knee that is an output."""

from __future__ import annotations

from dataclasses import replace

import pytest

from calibration import catalog
from calibration.models import model
from calibration.moe import experts_read
from calibration.study_verification import study, text
from calibration.verification import both_regimes, knee, knee_of_points, verify_prior
from policies.costs import parse_profile
from traces.errors import InputError

NAME = "H200x1--Qwen3-32B--bf16--vllm"


def test_packed_attention_reads_kv_once_a_tile_and_the_prefill_kernel_grows_with_queries() -> None:
    profiles = both_regimes(catalog.open(NAME))
    packed, prefill = profiles["packed"], profiles["prefill"]
    assert packed.verify["group"] == 8  # 64 query heads over 8 KV heads: 8 queries fill a tile of 64 rows
    assert [packed.verify_read_tokens(q, 4096) // 4096 for q in (1, 2, 8, 9, 16)] == [1, 1, 1, 2, 2]
    assert prefill.verify_read_tokens(1, 4096) == 4096
    assert prefill.verify_read_tokens(16, 4096) / 4096 == pytest.approx(4.5, rel=0.01)
    reads = [prefill.verify_read_tokens(q, 1000) for q in range(1, 33)]
    assert reads == sorted(set(reads))
    assert packed.verify_read_tokens(16, 4096, "prefill") == prefill.verify_read_tokens(16, 4096)


def test_a_profile_without_a_regime_reads_once_and_a_wrong_one_is_refused() -> None:
    plain = replace(catalog.open(NAME), verify={})
    assert plain.verify_read_tokens(16, 4096) == 4096
    with pytest.raises(InputError, match="did you mean 'packed'"):
        plain.verify_read_tokens(2, 1, "pakced")
    bad = replace(plain, verify={"regime": "tiled"}).to_json()
    with pytest.raises(InputError, match="field 'verify': unknown regime 'tiled'"):
        parse_profile(bad, "p.json")


def test_group_is_queries_a_kv_head_on_the_shard() -> None:
    assert verify_prior(model("Qwen3-32B").shard(8))["group"] == 8
    assert verify_prior(model("Qwen3-30B-A3B").shard(1))["group"] == 8


def test_knee_is_the_widest_step_within_budget() -> None:
    profile = catalog.open(NAME)
    n = knee(profile)
    one = profile.linear_ps_at(1)
    assert profile.linear_ps_at(n) <= 1.2 * one < profile.linear_ps_at(n + 1)
    assert knee(profile, 1.0) >= 1
    assert knee(profile, 10**6) == 4096
    # A dip after the crossing (a faster kernel at a larger size) counts as within.
    assert knee_of_points([1, 2, 4, 8], [1.0, 1.3, 1.1, 2.1]) == pytest.approx(4.4)


def test_widths_agree_with_public_curves_of_models_not_fitted() -> None:
    points = study()
    assert len(points) == 15
    for p in points:
        error = p["held_out_error"]["mape_percent"]
        assert error < (11 if p["precision"] == "bf16" else 18), p
        low, high = p["knee_interval"]
        assert 1 <= low < high
    covered = [p["knee_interval"][0] <= p["knee_measured"] <= p["knee_interval"][1] for p in points]
    assert sum(covered) >= 12
    assert text(points).count("\n") == 16


def test_experts_read_grow_to_all_and_skew_reads_fewer() -> None:
    reads = [experts_read(n, 128, 8) for n in (1, 2, 8, 64, 1000)]
    assert reads[0] == 8
    assert reads == sorted(reads)
    assert reads[-1] == pytest.approx(128)
    for n in (2, 16, 128):
        assert experts_read(n, 128, 8, hot_share=0.5) < experts_read(n, 128, 8)
    assert experts_read(0, 128, 8) == experts_read(5, 0, 0) == 0
    with pytest.raises(ValueError, match="hot_share"):
        experts_read(1, 8, 2, hot_share=2)
