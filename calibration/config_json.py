"""Reads a model's shape from a Hugging Face `config.json`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from calibration.json_object import load_object
from calibration.latent import Latent
from calibration.models import ModelShape
from traces.errors import InputError, at

# Our field: the names that config.json files use for it, first match wins.
_NAMES: dict[str, tuple[str, ...]] = {
    "layers": ("num_hidden_layers", "n_layer"),
    "hidden": ("hidden_size", "n_embd"),
    "heads": ("num_attention_heads", "n_head"),
    "intermediate": ("intermediate_size", "n_inner"),
    "vocab": ("vocab_size",),
    "max_positions": ("max_position_embeddings", "n_positions"),
}
_EXPERTS = ("num_experts", "num_local_experts", "n_routed_experts")
_TOP_K = ("num_experts_per_tok", "experts_per_token", "num_experts_per_token")
# Quantisation methods whose weight bytes and multiply rate are known here.
_QUANTISED = {"fp8": "fp8", "fbgemm_fp8": "fp8", "mxfp4": "mxfp4"}
_NOT_MODELLED = {
    "ssm_cfg": "state-space layers have no KV cache",
    "mamba_d_state": "state-space layers have no KV cache",
    "linear_attn_config": "linear-attention layers have no KV cache",
    "linear_num_key_heads": "linear-attention layers have no KV cache",
}


def from_config_json(path: str | Path) -> tuple[ModelShape, list[str]]:
    """Return the shape and one note for each thing in the file that is not modelled.

    Dense and mixture-of-experts decoders with multi-head, grouped-query, multi-query or latent
    attention; dense layers before the experts; fp8 and mxfp4 checkpoints.
    Raises InputError, one line, on a missing or malformed field and on an architecture
    without a KV cache of that form.
    """
    path = Path(path)
    body = load_object(path, "a config.json is a JSON object")
    if isinstance(body.get("text_config"), dict) and "num_hidden_layers" not in body:
        body = {**body, **body["text_config"]}
    for field, why in _NOT_MODELLED.items():
        if body.get(field):
            raise InputError(f"{at(path, field=field)}: not modelled: {why}")
    values = {ours: _whole(path, body, theirs) for ours, theirs in _NAMES.items() if ours != "intermediate"}
    heads = values["heads"]
    latent = _latent(path, body)
    # The vector that latent attention caches is one KV head, whatever the file says of KV heads.
    kv_heads = 1 if latent else _whole(path, body, ("num_key_value_heads",), default=heads)
    if heads % kv_heads:
        raise InputError(
            f"{at(path, field='num_key_value_heads')}: got {kv_heads}, expected a divisor of "
            f"num_attention_heads={heads}"
        )
    if latent:
        head_dim = latent.qk_nope_head_dim + latent.qk_rope_head_dim
    else:
        head_dim = _whole(path, body, ("head_dim",), default=max(values["hidden"] // heads, 1))
    experts = _whole(path, body, _EXPERTS, default=0, low=0)
    experts = experts if experts > 1 else 0
    top_k = _whole(path, body, _TOP_K) if experts else 0
    if top_k > experts:
        raise InputError(f"{at(path, field=_TOP_K[0])}: got {top_k}, expected at most the {experts} experts")
    width = ("moe_intermediate_size", *_NAMES["intermediate"]) if experts else _NAMES["intermediate"]
    shared = _whole(path, body, ("shared_expert_intermediate_size",), default=0, low=0)
    intermediate = _whole(path, body, width)
    if experts and not shared:
        shared = intermediate * _whole(path, body, ("n_shared_experts",), default=0, low=0)
    dense = _whole(path, body, ("first_k_dense_replace",), default=0, low=0) if experts else 0
    if dense >= values["layers"]:
        raise InputError(
            f"{at(path, field='first_k_dense_replace')}: got {dense}, expected fewer than the "
            f"{values['layers']} layers"
        )
    shape = ModelShape(
        name=_name(path, body),
        kv_heads=kv_heads,
        head_dim=head_dim,
        intermediate=intermediate,
        experts=experts,
        top_k=top_k,
        shared_intermediate=shared,
        tied_embeddings=bool(body.get("tie_word_embeddings", False)),
        precision=_precision(path, body),
        latent=latent,
        dense_layers=dense,
        dense_intermediate=_whole(path, body, _NAMES["intermediate"]) if dense else 0,
        **values,
    )
    return shape, _notes(body, experts)


def _latent(path: Path, body: dict[str, Any]) -> Latent | None:
    if body.get("kv_lora_rank") is None:
        return None
    needed = ("kv_lora_rank", "qk_rope_head_dim", "qk_nope_head_dim", "v_head_dim")
    widths = {name: _whole(path, body, (name,)) for name in needed}
    return Latent(**widths, q_lora_rank=_whole(path, body, ("q_lora_rank",), default=0, low=0))


def _whole(
    path: Path, body: dict[str, Any], names: tuple[str, ...], *, default: int | None = None, low: int = 1
) -> int:
    for name in names:
        value = body.get(name)
        if value is None:
            continue
        if isinstance(value, bool) or not isinstance(value, int) or value < low:
            raise InputError(
                f"{at(path, field=name)}: got {value!r}, expected a whole number of at least {low}"
            )
        return value
    if default is None:
        also = f" (also read as {', '.join(names[1:])})" if names[1:] else ""
        raise InputError(f"{at(path, field=names[0])}: missing{also}")
    return default


def _precision(path: Path, body: dict[str, Any]) -> str:
    quantisation = body.get("quantization_config")
    if quantisation is None:
        return "bf16"
    method = str(quantisation.get("quant_method", "")) if isinstance(quantisation, dict) else ""
    if method not in _QUANTISED:
        raise InputError(
            f"{at(path, field='quantization_config.quant_method')}: got {method!r}; allowed: "
            f"{', '.join(sorted(_QUANTISED))}"
        )
    return _QUANTISED[method]


def _name(path: Path, body: dict[str, Any]) -> str:
    given = str(body.get("_name_or_path") or path.resolve().parent.name or "model")
    return given.rstrip("/").rsplit("/", 1)[-1].replace("--", "-") or "model"


def _notes(body: dict[str, Any], experts: int) -> list[str]:
    notes = []
    window = body.get("sliding_window")
    if window and body.get("use_sliding_window", True):
        notes.append(f"not modelled: sliding_window={window}: all layers are priced with full attention")
    if body.get("attention_chunk_size"):
        notes.append("not modelled: attention_chunk_size: all layers are priced with full attention")
    if experts and body.get("mlp_only_layers"):
        notes.append("not modelled: dense layers among experts: every layer is priced with experts")
    for field in ("decoder_sparse_step", "moe_layer_freq"):
        if experts and body.get(field, 1) != 1:
            notes.append(f"not modelled: {field}: every layer is priced with experts")
    if body.get("index_topk"):
        notes.append("not modelled: index_topk: all layers are priced with full attention, without the index")
    if body.get("num_nextn_predict_layers"):
        notes.append("not modelled: num_nextn_predict_layers: those layers are not loaded")
    if body.get("vision_config"):
        notes.append("not modelled: vision_config: the text model alone is priced")
    quantisation = body.get("quantization_config")
    if isinstance(quantisation, dict) and quantisation.get("weight_block_size"):
        notes.append("not modelled: block-wise fp8 scales, slower than per-tensor fp8; priced as per-tensor")
    return notes
