"""What a step's time is made of: the physical terms of measured rows, and the form's price with its slopes.

The parameters are one vector, float64[20]: natural logs of the factors on datasheet terms (weights, flops, kv,
attention, power, reduce), then plain microseconds (layer, sequence; engine, engine a sequence, client), then logs of
the nine knots. Slopes are exact, so that a fit of hundreds of rows takes milliseconds.
"""

from __future__ import annotations

from dataclasses import dataclass, fields

import numpy as np
from numpy.typing import NDArray

from calibration.constants import Constants, Overhead, all_reduce_us
from calibration.gpus import Gpu
from calibration.knots import KNOT_TOKENS, SCALE, hat
from calibration.models import Shard
from calibration.moe import experts_read
from calibration.rows import StepRows

Floats = NDArray[np.float64]
LOGS = ("weights", "flops", "kv", "attention", "power", "reduce")
PLAIN = ("layer_us", "seq_us", "engine_us", "engine_seq_us", "client_us")
NAMES = (*LOGS, *PLAIN, *(f"knot_{n}" for n in KNOT_TOKENS))
FIRST_KNOT = len(LOGS) + len(PLAIN)
_W, _F, _KV, _A, _P, _R, _LAYER, _SEQ, _ENGINE, _ENGINE_SEQ, _CLIENT = range(FIRST_KNOT)


@dataclass(frozen=True)
class Terms:
    """N steps, float64[N] each, seconds at datasheet rates where not said otherwise; hats float64[N, 9].

    reads, multiplies   weight reads and matrix multiplies of the layers
    head                LM head reads
    layers, seqs        counts
    reduce              all-reduces of the tables
    kv                  KV reads of decoding or verifying sequences
    attention, prefix   flops of prefill chunks, and reading their prefixes once: a chunk costs the larger
    engine, client      1 where the measured time holds the engine's, the client's share
    seconds             measured; 1 where there is nothing to compare with
    busy                0 for idle rows
    """

    reads: Floats
    multiplies: Floats
    head: Floats
    layers: Floats
    seqs: Floats
    reduce: Floats
    kv: Floats
    attention: Floats
    prefix: Floats
    engine: Floats
    client: Floats
    busy: Floats
    seconds: Floats
    hats: Floats

    def __len__(self) -> int:
        return int(self.seconds.size)

    def where(self, mask: NDArray[np.bool_] | NDArray[np.int64]) -> Terms:
        """Return the steps that a mask bool[N], or an index int[M], keeps."""
        return Terms(**{f.name: getattr(self, f.name)[mask] for f in fields(self)})


def terms(rows: StepRows, shard: Shard, gpu: Gpu, precision: str, read_factor: Floats | None = None) -> Terms:
    """Return the terms of rows measured on one shard; `read_factor`, float64[N], multiplies KV reads (verification
    attention that reads them more than once)."""
    m = shard.model
    tokens = rows.tokens.astype(np.float64)
    counts, inverse = np.unique(tokens, return_inverse=True)
    experts = np.array([experts_read(int(n), m.experts, m.top_k) for n in counts])
    layer_bytes = shard.dense_bytes(precision) + experts * shard.expert_bytes(precision)
    reduces = np.array([2 * m.layers * all_reduce_us(gpu, shard.tp, int(2 * n * m.hidden)) for n in counts])
    kv_s = shard.kv_bytes_per_token() / gpu.bytes_per_s
    pair_s = 4 * shard.heads * m.head_dim * m.layers / gpu.bf16_flop_per_s
    busy = (rows.kind != "idle").astype(np.float64)
    chunks = np.where(rows.kind == "prefill", rows.batch, rows.kind == "mixed")
    engine = np.isin(rows.scope, ("engine", "client")).astype(np.float64)
    return Terms(
        reads=busy * layer_bytes[inverse] / gpu.bytes_per_s,
        multiplies=2 * shard.active_params / gpu.flop_per_s(precision) * tokens,
        head=busy * 2 * shard.head_params / gpu.bytes_per_s,
        layers=busy * m.layers,
        seqs=rows.seqs.astype(np.float64),
        reduce=busy * reduces[inverse] * 1e-6,
        kv=kv_s * rows.context.astype(np.float64) * (1.0 if read_factor is None else read_factor),
        attention=pair_s * rows.pairs.astype(np.float64),
        prefix=kv_s * chunks * rows.prefix_tokens,
        engine=engine,
        client=(rows.scope == "client").astype(np.float64),
        busy=busy,
        seconds=rows.time_ns.astype(np.float64) * 1e-9,
        hats=hat(tokens),
    )


def joined(parts: list[Terms]) -> Terms:
    """Return the terms of several shards, one after another."""
    return Terms(**{f.name: np.concatenate([getattr(p, f.name) for p in parts]) for f in fields(Terms)})


def price(x: Floats, t: Terms) -> tuple[Floats, Floats]:
    """Return (seconds, float64[N]; slopes, float64[N, 20]) of the form at parameters `x`, float64[20]."""
    scale = np.exp(x[: len(LOGS)])
    p = scale[_P]
    a, b = scale[_W] * t.reads, scale[_F] * t.multiplies
    high = np.maximum(np.maximum(a, b), 1e-30)
    ra, rb = np.maximum(a / high, 1e-30), np.maximum(b / high, 1e-30)
    pa, pb = ra**p, rb**p
    total = pa + pb
    smooth = high * total ** (1 / p) * np.exp(t.hats @ x[FIRST_KNOT:]) * t.busy
    flops, reads = scale[_A] * t.attention, scale[_KV] * t.prefix
    by_flops = flops >= reads
    slopes = np.zeros((len(t), len(NAMES)))
    slopes[:, _W] = smooth * pa / total + scale[_W] * t.head
    slopes[:, _F] = smooth * pb / total
    slopes[:, _KV] = scale[_KV] * t.kv + np.where(by_flops, 0.0, reads)
    slopes[:, _A] = np.where(by_flops, flops, 0.0)
    slopes[:, _P] = smooth * ((pa * np.log(ra) + pb * np.log(rb)) / total - np.log(total) / p)
    slopes[:, _R] = scale[_R] * t.reduce
    for j, term in ((_LAYER, t.layers), (_SEQ, t.seqs), (_ENGINE, t.engine), (_CLIENT, t.client)):
        slopes[:, j] = 1e-6 * term
    slopes[:, _ENGINE_SEQ] = 1e-6 * t.engine * t.seqs
    slopes[:, FIRST_KNOT:] = smooth[:, None] * t.hats
    plain = slopes[:, len(LOGS) : FIRST_KNOT] @ x[len(LOGS) : FIRST_KNOT]
    seconds = smooth + scale[_W] * t.head + slopes[:, _R] + slopes[:, _KV] + slopes[:, _A] + plain
    return seconds, slopes


def vector(c: Constants, o: Overhead, http_us: float = 0.0) -> Floats:
    """Return the parameters, float64[20], of constants and overhead."""
    logs = np.log([c.weights, c.flops, c.kv, c.attention, c.power, c.reduce])
    knots = np.log(np.array(c.knots or (SCALE,) * len(KNOT_TOKENS)) / SCALE)
    return np.concatenate([logs, [c.layer_us, c.seq_us, o.fixed_us, o.seq_us, http_us], knots])


def split(x: Floats, source: str) -> tuple[Constants, Overhead, float]:
    """Return (constants, engine overhead, HTTP constant in us) of parameters; rounded, so that a last digit that
    differs between machines is gone."""
    logs = [round(float(v), 4) for v in np.exp(x[: len(LOGS)])]
    layer, seq, engine, engine_seq, http = (round(float(v), 3) for v in x[len(LOGS) : FIRST_KNOT])
    knots = tuple(round(float(v) * SCALE) for v in np.exp(x[FIRST_KNOT:]))
    c = Constants(
        logs[_W], logs[_F], logs[_KV], logs[_A], layer, seq, 0.0, logs[_P], source,
        knots=() if all(k == SCALE for k in knots) else knots, reduce=logs[_R],
    )  # fmt: skip
    return c, Overhead(engine, engine_seq, source), http
