"""Constants from a per-operation profile of one GPU, and how well they carry over to another.

Reads the tables that LLMServingSim publishes of vLLM's layers (MIT): `<stem>_dense.csv.gz` (layer, tokens,
time_us, one layer's operation), `<stem>_per_sequence.csv.gz` (LM head and sampler) and
`<stem>_attention.csv.gz` (prefill_chunk, kv_prefill, n_decode, kv_decode, time_us, one layer). A step is
composed of them as the model runs: layers times (two norms, four multiplies, rotary, activation,
attention), then LM head and sampler.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from scipy.optimize import least_squares

from calibration.constants import Constants
from calibration.form import linear_s
from calibration.gpus import Gpu, gpu
from calibration.models import Shard, model
from calibration.stats import absolute_error

# (file stem, gpu, model, tp): the first is fitted, the others say how the constants transfer by datasheet.
TABLES = (
    ("RTX4090_meta-llama_Llama-3.1-8B_bf16_tp1", "RTX4090", "Llama-3.1-8B", 1),
    ("RTXPRO6000_meta-llama_Llama-3.1-8B_bf16_tp1", "RTXPRO6000", "Llama-3.1-8B", 1),
    ("RTXPRO6000_Qwen_Qwen3-32B_bf16_tp2", "RTXPRO6000", "Qwen3-32B", 2),
)
_ONCE = ("embedding", "final_layernorm")


@dataclass(frozen=True)
class Steps:
    """Composed steps, float64[N] each: tokens, sequences, context tokens, prefill pairs, seconds."""

    tokens: NDArray[np.float64]
    seqs: NDArray[np.float64]
    context: NDArray[np.float64]
    pairs: NDArray[np.float64]
    seconds: NDArray[np.float64]

    def where(self, mask: NDArray[np.bool_]) -> Steps:
        """Return the steps that `mask`, bool[N], keeps."""
        return Steps(
            self.tokens[mask], self.seqs[mask], self.context[mask], self.pairs[mask], self.seconds[mask]
        )


def compose(folder: Path, stem: str, shard: Shard) -> Steps:
    """Return the decode-only and prefill-only steps of one profile, without all-reduce and engine time."""
    dense = pd.read_csv(folder / f"{stem}_dense.csv.gz").pivot_table("time_us", "tokens", "layer")
    once = dense[list(_ONCE)].sum(axis=1)
    layer = dense.drop(columns=list(_ONCE)).sum(axis=1) + dense["layernorm"]
    per_seq = pd.read_csv(folder / f"{stem}_per_sequence.csv.gz").groupby("sequences")["time_us"].sum()
    rows = pd.read_csv(folder / f"{stem}_attention.csv.gz")
    rows = rows[((rows.prefill_chunk == 0) & (rows.n_decode > 0)) | (rows.n_decode == 0)]
    decode = rows.prefill_chunk.to_numpy() == 0
    tokens = np.where(decode, rows.n_decode, rows.prefill_chunk).astype(float)
    seqs = np.where(decode, rows.n_decode, 1).astype(float)
    # What a chunk reads of its own prefix is in its pairs.
    context = np.where(decode, rows.n_decode * rows.kv_decode, 0).astype(float)
    pairs = rows.prefill_chunk * (rows.kv_prefill + rows.prefill_chunk / 2)
    us = (
        shard.model.layers * (np.interp(tokens, layer.index, layer) + rows.time_us.to_numpy())
        + np.interp(tokens, once.index, once)
        + np.interp(seqs, per_seq.index, per_seq)
    )
    known = tokens <= layer.index.max()
    return Steps(tokens, seqs, context, pairs.to_numpy(dtype=float), us * 1e-6).where(known)


def predict(steps: Steps, shard: Shard, g: Gpu, c: Constants) -> NDArray[np.float64]:
    """Return seconds, float64[N], that the form gives these steps; all-reduce left out."""
    counts = np.unique(steps.tokens)
    curve = [linear_s(shard, g, "bf16", c, int(n), all_reduce=False) for n in counts]
    m = shard.model
    return np.asarray(
        np.interp(steps.tokens, counts, curve)
        + c.kv * shard.kv_bytes_per_token() / g.bytes_per_s * steps.context
        + c.attention * 4 * shard.heads * m.head_dim * m.layers / g.bf16_flop_per_s * steps.pairs
        + c.seq_us * 1e-6 * steps.seqs
    )


def fit(steps: Steps, shard: Shard, g: Gpu, source: str) -> Constants:
    """Return the constants that fit the steps best, by relative error with large residuals damped."""

    def at(x: NDArray[np.float64]) -> Constants:
        w, f, kv, a, layer, seq, p = (float(v) for v in x)
        return Constants(w, f, kv, a, layer, seq, 0.0, p, source)

    def residual(x: NDArray[np.float64]) -> NDArray[np.float64]:
        return predict(steps, shard, g, at(x)) / steps.seconds - 1

    low = [0.5, 0.5, 0.5, 0.2, 0.0, 0.0, 1.0]
    high = [3.0, 3.0, 3.0, 5.0, 200.0, 50.0, 6.0]
    start = [1.1, 1.1, 1.1, 1.5, 30.0, 2.0, 2.0]
    found = least_squares(residual, start, bounds=(low, high), loss="soft_l1", f_scale=0.05, x_scale=start)
    return at(np.round(found.x, 3))


def report(folder: Path) -> dict[str, Any]:
    """Fit the first table, check all of them; return the body of `data/operation_constants.json`."""
    checks: dict[str, Any] = {}
    fitted: Constants | None = None
    for stem, gpu_key, name, tp in TABLES:
        g, shard = gpu(gpu_key), model(name).shard(tp)
        steps = compose(folder, stem, shard)
        if fitted is None:
            fitted = fit(steps, shard, g, f"{g.key.lower()}:bf16")
        error = predict(steps, shard, g, fitted) / steps.seconds - 1
        kinds = {"decode": steps.pairs == 0, "prefill": steps.pairs > 0}
        checks[f"{gpu_key}x{tp}--{name}--bf16"] = {
            k: absolute_error(error[mask]) for k, mask in kinds.items()
        }
    assert fitted is not None
    c = fitted
    return {
        "provenance": {
            "from": "LLMServingSim per-operation profiles of vLLM 0.19.0 (MIT), RTX 4090, Llama-3.1-8B, bf16",
            "command": "python -m calibration operations --folder DIR --write",
            "checks": "percent, composed steps without all-reduce; RTX4090 was fitted, the others not",
        },
        "constants": {
            c.source: {
                "W": c.weights, "F": c.flops, "KV": c.kv, "A": c.attention, "us_per_layer": c.layer_us,
                "us_per_seq": c.seq_us, "c0_ms": c.fixed_ms, "p": c.power,
            }
        },
        "checks": checks,
    }  # fmt: skip
