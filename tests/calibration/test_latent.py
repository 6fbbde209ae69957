"""Multi-head latent attention: sizes worked by hand from two published shapes, and how they shard."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from calibration import roofline
from calibration.config_json import from_config_json
from calibration.datasheet import gpu
from calibration.memory import draft_beside, shape_of
from calibration.models import ModelShape
from policies.costs import parse_profile
from traces.errors import InputError

# Integers of the published DeepSeek-V3 and DeepSeek-V2-Lite.
V3: dict[str, Any] = {
    "_name_or_path": "org/DeepSeek-V3",
    "num_hidden_layers": 61,
    "hidden_size": 7168,
    "num_attention_heads": 128,
    "num_key_value_heads": 128,
    "intermediate_size": 18432,
    "moe_intermediate_size": 2048,
    "n_routed_experts": 256,
    "num_experts_per_tok": 8,
    "n_shared_experts": 1,
    "first_k_dense_replace": 3,
    "kv_lora_rank": 512,
    "q_lora_rank": 1536,
    "qk_nope_head_dim": 128,
    "qk_rope_head_dim": 64,
    "v_head_dim": 128,
    "vocab_size": 129280,
    "max_position_embeddings": 163840,
}
LITE: dict[str, Any] = {
    **V3,
    "_name_or_path": "org/DeepSeek-V2-Lite",
    "num_hidden_layers": 27,
    "hidden_size": 2048,
    "num_attention_heads": 16,
    "num_key_value_heads": 16,
    "intermediate_size": 10944,
    "moe_intermediate_size": 1408,
    "n_routed_experts": 64,
    "num_experts_per_tok": 6,
    "n_shared_experts": 2,
    "first_k_dense_replace": 1,
    "q_lora_rank": None,
    "vocab_size": 102400,
}


def write(tmp_path: Path, body: object) -> Path:
    path = tmp_path / "config.json"
    path.write_text(json.dumps(body), encoding="utf-8")
    return path


def shape(tmp_path: Path, body: dict[str, Any]) -> ModelShape:
    return from_config_json(write(tmp_path, body))[0]


def test_parameters_are_those_of_the_published_models(tmp_path: Path) -> None:
    # A layer of V3: 7168·1536 + 1536·128·192 + 7168·576 + 512·128·256 + 128·128·7168 = 187,105,280.
    v3 = shape(tmp_path, V3)
    attention = 61 * 187_105_280
    dense = 3 * 3 * 7168 * 18432
    experts = 58 * (257 * 3 * 7168 * 2048 + 256 * 7168)
    norms = 61 * (2 * 7168 + 512 + 1536) + 7168
    assert v3.params == attention + dense + experts + 2 * 129280 * 7168 + norms == 671_026_404_352
    # Active a token, embeddings aside: published as 37 billion with the LM head.
    active = v3.shard(1).active_params + v3.shard(1).head_params
    assert active == attention + dense + 58 * (9 * 3 * 7168 * 2048 + 256 * 7168) + 129280 * 7168
    assert 36e9 < active < 38e9
    # Without compressed queries: 2048·16·192 + 2048·576 + 512·16·256 + 16·128·2048 = 13,762,560 a layer.
    lite = shape(tmp_path, LITE)
    layers = 27 * 13_762_560 + 3 * 2048 * 10944 + 26 * (66 * 3 * 2048 * 1408 + 64 * 2048)
    assert lite.params == layers + 2 * 102400 * 2048 + 27 * (2 * 2048 + 512) + 2048
    assert 15.6e9 < lite.params < 15.8e9


@pytest.mark.parametrize("tp", [1, 2, 8, 16])
def test_cache_is_the_latent_and_whole_on_every_gpu(tmp_path: Path, tp: int) -> None:
    v3 = shape(tmp_path, V3)
    assert v3.kv_bytes_per_token() == v3.shard(tp).kv_bytes_per_token() == 61 * 576 * 2 == 70_272
    assert v3.shard(tp).kv_bytes_per_token(8) == 35_136


def test_tensor_parallelism_shares_heads_and_repeats_compressions(tmp_path: Path) -> None:
    v3 = shape(tmp_path, V3)
    repeated = 61 * (7168 * 1536 + 7168 * 576) + 58 * 256 * 7168
    whole, share = v3.shard(1).dense_params, v3.shard(8).dense_params
    assert share - repeated == (whole - repeated) // 8
    assert v3.shard(8).expert_params * 8 == v3.shard(1).expert_params == 58 * 3 * 7168 * 2048
    with pytest.raises(InputError, match=r"^tp=3 does not divide DeepSeek-V3: heads=128 % 3 = 2$"):
        v3.shard(3)


def test_attention_multiplies_in_the_absorbed_form(tmp_path: Path) -> None:
    # 2 FLOPs for each of 512 + 64 numbers of a key and 512 of a value, 128 heads, 61 layers.
    v3 = shape(tmp_path, V3)
    assert v3.shard(1).pair_flops == 61 * 128 * 2 * (576 + 512) == 16_990_208
    assert v3.shard(8).pair_flops * 8 == v3.shard(1).pair_flops


def test_decode_pays_the_larger_of_reads_and_multiplies(tmp_path: Path) -> None:
    path = write(tmp_path, {**LITE, "num_hidden_layers": 2})
    few = roofline.profile(path, gpu="H200")
    assert few.kv_bytes_per_token == 2 * 576 * 2
    # 16 heads: reading is the bound, so twice the layers' bytes is twice the price.
    assert few.kv_read_ps_per_token * 10**6 > 2 * few.attention_as_per_pair
    many = roofline.profile(
        write(tmp_path, {**LITE, "num_hidden_layers": 2, "num_attention_heads": 512}), gpu="H200"
    )
    assert many.kv_bytes_per_token == few.kv_bytes_per_token
    assert many.kv_read_ps_per_token == round(many.attention_as_per_pair / 10**6)
    assert many.kv_read_ps_per_token > few.kv_read_ps_per_token
    # Two queries of 512 heads take twice one's time, not more.
    assert many.verify_read_tokens(2, 1000) == 2000


def test_profile_is_a_roofline_with_a_wide_error_and_keeps_its_shape(tmp_path: Path) -> None:
    profile = roofline.profile(write(tmp_path, LITE), gpu="H200")
    assert profile.identity["timing"] == "roofline"
    assert (profile.error["mape_percent"], profile.error["p95_percent"]) == (30.0, 60.0)
    assert any(
        note.startswith("latent attention: priced in the absorbed form")
        for note in profile.provenance["notes"]
    )
    kept = shape_of(parse_profile(profile.to_json()))
    assert kept == shape(tmp_path, LITE)
    assert profile.weight_bytes == 2 * kept.params
    dense = roofline.profile(write(tmp_path, {**LITE, "n_routed_experts": None}), gpu="H200")
    assert dense.error["mape_percent"] == 30.0


def test_eagle_draft_of_latent_attention_is_one_dense_layer(tmp_path: Path) -> None:
    lite = shape(tmp_path, LITE)
    beside = draft_beside(lite, "eagle", 1)
    assert beside.draft_kv_bytes_per_token == 576 * 2
    width = max(6 * 1408 + 2 * 1408, 10944)
    norms = 3 * 2048 + 512
    assert beside.draft_weight_bytes == 2 * (13_762_560 + 3 * 2048 * width + 2 * 2048 * 2048 + norms)


def test_a_model_too_large_for_the_gpus_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"^H200x4--DeepSeek-V3--fp8 does not fit: 0.9 x 139.80 - weights"):
        roofline.profile(write(tmp_path, V3), gpu="H200", tp=4, precision="fp8")
    assert gpu("H200").memory_bytes * 4 < shape(tmp_path, V3).weight_bytes("fp8")


CASES = [
    ({"qk_rope_head_dim": None}, "field 'qk_rope_head_dim': missing"),
    ({"v_head_dim": "128"}, "field 'v_head_dim': got '128', expected a whole number of at least 1"),
    ({"kv_lora_rank": 0}, "field 'kv_lora_rank': got 0, expected a whole number of at least 1"),
    ({"q_lora_rank": -1}, "field 'q_lora_rank': got -1, expected a whole number of at least 0"),
    (
        {"first_k_dense_replace": 61},
        "field 'first_k_dense_replace': got 61, expected fewer than the 61 layers",
    ),
    ({"intermediate_size": None}, "field 'intermediate_size': missing (also read as n_inner)"),
]


@pytest.mark.parametrize(("change", "message"), CASES, ids=[c[1][:40] for c in CASES])
def test_malformed_latent_fields_answer_with_one_line(
    tmp_path: Path, change: dict[str, Any], message: str
) -> None:
    path = write(tmp_path, {**V3, **change})
    with pytest.raises(InputError) as e:
        from_config_json(path)
    assert str(e.value) == f"{path}: {message}"


def test_what_latent_models_add_and_is_not_priced_is_said(tmp_path: Path) -> None:
    body = {**V3, "moe_layer_freq": 2, "index_topk": 2048, "num_nextn_predict_layers": 1}
    found, notes = from_config_json(write(tmp_path, body))
    assert found == replace(shape(tmp_path, V3))
    assert [n.split(":")[1].strip() for n in notes] == [
        "moe_layer_freq",
        "index_topk",
        "num_nextn_predict_layers",
    ]
