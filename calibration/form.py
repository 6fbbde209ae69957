"""The step-cost form: a smooth maximum of weight reads and matrix multiplies, and terms that add to it.

    linear = g(n)·[(W·weight_bytes/BW)^p + (F·2·P·n/FLOPS)^p]^(1/p) + W·head_bytes/BW + layers·u + R·all_reduce(n)
    affine = KV·kv_bytes·S/BW + A·4·heads·head_dim·layers·pairs/FLOPS + s·B + engine
    (latent attention: pairs in the absorbed form, and S costs the larger of its reads and its multiplies)

n tokens of the step, B sequences, S context tokens read, pairs = sum of chunk·(prefix + chunk/2), g a curve of
nine knots (calibration.knots). Everything is one GPU's share.
The linear part is tabulated; the rest is exact in integers (docs/adr/0003).
Powers are taken in decimal arithmetic, whose digits do not depend on the CPU, and rounded to whole
nanoseconds.
"""

from __future__ import annotations

from decimal import Context, Decimal
from itertools import accumulate
from typing import Any

from calibration.constants import Constants, Overhead, all_reduce_us
from calibration.gpus import Gpu
from calibration.knots import factor
from calibration.models import Shard
from calibration.moe import experts_read
from calibration.verification import verify_prior
from policies.costs import Profile

MAX_KNOT_TOKENS = 32768
_DECIMAL = Context(prec=28)
# Kernels of one transformer layer in vLLM: 2 norms, 4 matrix multiplies, rotary, KV write, attention,
# activation, q/k norm or residual. An eager step launches them one by one.
_KERNELS_A_LAYER = 11
_EAGER_LAUNCH_PS = 5_000_000
_GRAPH_LAUNCH_PS = 3_000_000
_GRAPH_BUILD_PS = 59_000_000_000
_GRAPH_BYTES = 16 << 20
# Plan buffers: a 32-byte copy on the launch stream, and half a microsecond a layer for the guards of 16 idle tokens
# (some hundred blocks that load one number, of which several fit a multiprocessor). Both assumed until measured.
_GRAPH_PLAN_PS = 3_000_000
_GUARD_PS_PER_LAYER_TOKEN = 500_000 // 16
# A piecewise step replays a graph a layer and launches attention's two kernels between them.
_PIECEWISE_LAUNCHES = 2
_COPY_OVERHEAD_PS = 6_000_000


def smooth_max(a: float, b: float, power: float) -> float:
    """Return (a^p + b^p)^(1/p) for a, b >= 0: at least the larger, at most 2^(1/p) times it.

    >>> smooth_max(3.0, 4.0, 2.0)
    5.0
    """
    high, low = Decimal(max(a, b)), Decimal(min(a, b))
    if low == 0:
        return float(high)
    p = Decimal(repr(power))
    ratio = _DECIMAL.power(_DECIMAL.divide(low, high), p)
    return float(_DECIMAL.multiply(high, _DECIMAL.power(1 + ratio, _DECIMAL.divide(1, p))))


def knot_tokens(limit: int = MAX_KNOT_TOKENS) -> tuple[int, ...]:
    """Return token counts of the table: each to 64, every 8 to 512, then eight an octave to `limit`."""
    fine = [*range(1, 65), *range(72, 513, 8)]
    coarse = [(16 + 2 * j) << i for i in range(5, 30) for j in range(8)]
    return tuple(n for n in [*fine, *(c for c in coarse if c > 512)] if n <= limit)


def linear_s(
    shard: Shard, gpu: Gpu, precision: str, c: Constants, tokens: int, *, all_reduce: bool = True
) -> float:
    """Return seconds of the part of a step that depends on its tokens alone.

    A mixture of experts reads dense + experts·(1 - (1 - k/E)^n) weights: experts nobody chose stay unread.
    """
    m = shard.model
    experts = experts_read(tokens, m.experts, m.top_k)
    layer_bytes = shard.dense_bytes(precision) + experts * shard.expert_bytes(precision)
    reads = c.weights * layer_bytes / gpu.bytes_per_s
    multiplies = c.flops * 2 * shard.active_params * tokens / gpu.flop_per_s(precision)
    head = c.weights * 2 * shard.head_params / gpu.bytes_per_s
    reduces = 0.0
    if all_reduce:
        reduces = c.reduce * 2 * m.layers * all_reduce_us(gpu, shard.tp, 2 * tokens * m.hidden) * 1e-6
    fixed = m.layers * c.layer_us * 1e-6 + c.fixed_ms * 1e-3
    curve = smooth_max(reads, multiplies, c.power) * factor(tokens, c.knots)
    return curve + head + fixed + reduces


def price(
    shard: Shard,
    gpu: Gpu,
    precision: str,
    constants: Constants,
    overhead: Overhead,
    *,
    timing: str,
    provenance: dict[str, Any],
    error: dict[str, Any],
    engine: str = "vllm",
    http_us: float = 0.0,
    tokens: tuple[int, ...] | None = None,
) -> Profile:
    """Return the profile of a model's shard on a GPU, all costs as integers.

    `tokens` are the counts that the table holds; None is `knot_tokens()`.
    """
    m, c = shard.model, constants
    tokens = tokens or knot_tokens()
    # The running maximum keeps small dips of a measured all-reduce table out of the profile.
    linear = accumulate((_ps(linear_s(shard, gpu, precision, c, n)) for n in tokens), max)
    kv_bytes = shard.kv_bytes_per_token()
    read_s = c.kv * kv_bytes / gpu.bytes_per_s
    # Attention runs in bf16 whatever the weights' precision.
    pair_s = c.attention * shard.pair_flops / gpu.bf16_flop_per_s
    if m.latent:
        # All heads share one short key: with many heads on a GPU decode multiplies longer than it reads.
        read_s = max(read_s, pair_s)
    return Profile(
        identity={
            "gpu": gpu.key, "tp": shard.tp, "model": m.name, "precision": precision, "engine": engine,
            "timing": timing,
        },
        linear_tokens=tokens,
        linear_ps=tuple(linear),
        kv_read_ps_per_token=round(read_s * 1e12),
        attention_as_per_pair=round(pair_s * 1e18),
        per_seq_ps=round(c.seq_us * 1e6),
        overhead_ps=round(overhead.fixed_us * 1e6),
        overhead_per_seq_ps=round(overhead.seq_us * 1e6),
        kv_bytes_per_token=kv_bytes,
        weight_bytes=shard.weight_bytes(precision),
        gpu_bytes=gpu.memory_bytes,
        max_model_len=m.max_positions,
        pcie_bytes_per_s=gpu.pcie_bytes_per_s,
        pcie_copy_overhead_ps=_COPY_OVERHEAD_PS,
        graph_build_ps=_GRAPH_BUILD_PS,
        graph_bytes=_GRAPH_BYTES,
        graph_launch_ps=_GRAPH_LAUNCH_PS,
        eager_launch_ps=m.layers * _KERNELS_A_LAYER * _EAGER_LAUNCH_PS,
        graph_guard_ps_per_token=m.layers * _GUARD_PS_PER_LAYER_TOKEN,
        graph_plan_ps=_GRAPH_PLAN_PS,
        piecewise_launch_ps=m.layers * (_GRAPH_LAUNCH_PS + _PIECEWISE_LAUNCHES * _EAGER_LAUNCH_PS),
        provenance={**provenance, "shape": m.to_dict()},
        error=error,
        http_overhead_ps=round(http_us * 1e6),
        verify=verify_prior(shard),
    )  # fmt: skip


def _ps(seconds: float) -> int:
    return round(seconds * 1e9) * 1000
