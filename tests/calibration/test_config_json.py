"""Shapes from config.json: known models come out as listed, faults answer with one line."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from calibration import roofline
from calibration.config_json import from_config_json
from calibration.models import model
from traces.errors import InputError

DENSE: dict[str, Any] = {
    "_name_or_path": "org/Qwen3-8B",
    "num_hidden_layers": 36,
    "hidden_size": 4096,
    "num_attention_heads": 32,
    "num_key_value_heads": 8,
    "head_dim": 128,
    "intermediate_size": 12288,
    "vocab_size": 151936,
    "max_position_embeddings": 40960,
    "tie_word_embeddings": False,
}
MOE: dict[str, Any] = {
    **DENSE,
    "_name_or_path": "Qwen3-30B-A3B",
    "num_hidden_layers": 48,
    "hidden_size": 2048,
    "num_key_value_heads": 4,
    "intermediate_size": 6144,
    "moe_intermediate_size": 768,
    "num_experts": 128,
    "num_experts_per_tok": 8,
}


def write(tmp_path: Path, body: object) -> Path:
    path = tmp_path / "config.json"
    path.write_text(json.dumps(body), encoding="utf-8")
    return path


@pytest.mark.parametrize(("body", "name"), [(DENSE, "Qwen3-8B"), (MOE, "Qwen3-30B-A3B")])
def test_config_json_gives_the_listed_shape(tmp_path: Path, body: dict[str, Any], name: str) -> None:
    shape, notes = from_config_json(write(tmp_path, body))
    assert shape == model(name)
    assert notes == []


def test_heads_default_to_no_grouping_and_head_dim_to_their_share(tmp_path: Path) -> None:
    body = {k: v for k, v in DENSE.items() if k not in ("num_key_value_heads", "head_dim")}
    shape, _ = from_config_json(write(tmp_path, body))
    assert (shape.kv_heads, shape.head_dim) == (32, 128)


def test_fp8_checkpoint_and_what_is_not_modelled_are_said(tmp_path: Path) -> None:
    body = {
        **DENSE,
        "quantization_config": {"quant_method": "fp8", "weight_block_size": [128, 128]},
        "sliding_window": 128,
    }
    shape, notes = from_config_json(write(tmp_path, body))
    assert shape == replace(model("Qwen3-8B"), precision="fp8")
    assert [n.split(":")[1].strip().split("=")[0].split(" ")[0] for n in notes] == [
        "sliding_window",
        "block-wise",
    ]


CASES = [
    (
        {k: v for k, v in DENSE.items() if k != "hidden_size"},
        "field 'hidden_size': missing (also read as n_embd)",
    ),
    (
        {**DENSE, "vocab_size": "many"},
        "field 'vocab_size': got 'many', expected a whole number of at least 1",
    ),
    (
        {**DENSE, "num_hidden_layers": 0},
        "field 'num_hidden_layers': got 0, expected a whole number of at least 1",
    ),
    (
        {**DENSE, "num_key_value_heads": 5},
        "field 'num_key_value_heads': got 5, expected a divisor of num_attention_heads=32",
    ),
    (
        {**MOE, "num_experts_per_tok": 200},
        "field 'num_experts_per_tok': got 200, expected at most the 128 experts",
    ),
    (
        {k: v for k, v in MOE.items() if k != "num_experts_per_tok"},
        "field 'num_experts_per_tok': missing (also read as experts_per_token, num_experts_per_token)",
    ),
    (
        {**DENSE, "quantization_config": {"quant_method": "awq"}},
        "field 'quantization_config.quant_method': got 'awq'; allowed: fbgemm_fp8, fp8, mxfp4",
    ),
    (
        {**DENSE, "linear_attn_config": {"kda_layers": [1]}},
        "field 'linear_attn_config': not modelled: linear-attention layers have no KV cache",
    ),
    ([1], "a config.json is a JSON object"),
]


@pytest.mark.parametrize(("body", "message"), CASES, ids=[c[1][:40] for c in CASES])
def test_malformed_config_json_names_file_field_and_fault(tmp_path: Path, body: object, message: str) -> None:
    path = write(tmp_path, body)
    with pytest.raises(InputError) as e:
        from_config_json(path)
    assert str(e.value) == f"{path}: {message}"


def test_roofline_profile_is_labelled_and_prices_like_the_listed_model(tmp_path: Path) -> None:
    from_file = roofline.profile(write(tmp_path, MOE), gpu="H200")
    listed = roofline.profile("Qwen3-30B-A3B", gpu="H200")
    assert from_file.identity["timing"] == "roofline"
    assert from_file.linear_ps == listed.linear_ps
    assert from_file.error["mape_percent"] >= 20
    # Few tokens read few experts: a step of 64 tokens reads most of them and costs several times one token's.
    assert from_file.linear_ps_at(64) > 3 * from_file.linear_ps_at(1)


def test_roofline_is_refused_where_the_model_does_not_fit() -> None:
    with pytest.raises(InputError, match=r"^RTX4090x1--Qwen3-32B--bf16 does not fit: 0.9 x 23.60 - weights"):
        roofline.profile("Qwen3-32B", gpu="RTX4090")
