"""The LM head with argmax: logits stay in registers, each column tile leaves its best one and where it is."""

from __future__ import annotations

import torch
import triton
import triton.language as tl

from kernels.op import Launch, Op, Spec, StepConfig, Tensors, Tiles, plan_spec
from kernels.ops.matrix import body_constants, extent_constants, matrix_grid, product
from kernels.ops.overlap import follow
from kernels.plan import Plan
from kernels.shapes import Bounds

TILES = {
    "guard": Tiles(block_m=16, block_n=128, block_k=64, warps=4, stages=4),
    "versions": Tiles(block_m=128, block_n=128, block_k=64, warps=8, stages=4),
}


@triton.jit
def _tile(
    x,
    w,
    best,
    where,
    m0,
    tile,
    m,
    k_extent,
    N: tl.constexpr,
    ROWS: tl.constexpr,
    BM: tl.constexpr,
    BN: tl.constexpr,
    BK: tl.constexpr,
    EVEN_K: tl.constexpr,
    PRECISION: tl.constexpr,
):
    n0 = tile * BN
    logits = product(x, w, m0, n0, 0, k_extent, m, k_extent, N, BM, BN, BK, EVEN_K, PRECISION)
    column = n0 + tl.arange(0, BN)
    logits = tl.where(column[:, None] < N, logits, float("-inf"))
    row = m0 + tl.arange(0, BM)
    tl.store(best + tile * ROWS + row, tl.max(logits, axis=0), mask=row < m)
    tl.store(where + tile * ROWS + row, n0 + tl.argmax(logits, axis=0), mask=row < m)


@triton.jit
def lm_head_guard(
    plan,
    x,
    w,
    best,
    where,
    M_SLOT: tl.constexpr,
    OVERLAP: tl.constexpr,
    K_SLOT: tl.constexpr,
    K_ALIGN: tl.constexpr,
    K: tl.constexpr,
    N: tl.constexpr,
    ROWS: tl.constexpr,
    BM: tl.constexpr,
    BN: tl.constexpr,
    BK: tl.constexpr,
    EVEN_K: tl.constexpr,
    PRECISION: tl.constexpr,
):
    """Grid (row tiles, column tiles)."""
    m = tl.load(plan + M_SLOT)
    m0 = tl.program_id(0) * BM
    if m0 >= m:
        return
    follow(OVERLAP)
    if K_SLOT >= 0:
        k_extent = tl.multiple_of(tl.load(plan + K_SLOT), K_ALIGN)
    else:
        k_extent = K
    _tile(x, w, best, where, m0, tl.program_id(1), m, k_extent, N, ROWS, BM, BN, BK, EVEN_K, PRECISION)


@triton.jit
def lm_head_versions(
    plan,
    x,
    w,
    best,
    where,
    M_SLOT: tl.constexpr,
    OVERLAP: tl.constexpr,
    K: tl.constexpr,
    N: tl.constexpr,
    ROWS: tl.constexpr,
    BM: tl.constexpr,
    BN: tl.constexpr,
    BK: tl.constexpr,
    EVEN_K: tl.constexpr,
    PRECISION: tl.constexpr,
):
    """Grid (column tiles)."""
    m = tl.load(plan + M_SLOT)
    if m <= 0:
        return
    follow(OVERLAP)
    tile = tl.program_id(0)
    if m <= 16:
        _tile(x, w, best, where, 0, tile, m, K, N, ROWS, 16, BN, BK, EVEN_K, PRECISION)
    elif m <= 32:
        _tile(x, w, best, where, 0, tile, m, K, N, ROWS, 32, BN, BK, EVEN_K, PRECISION)
    elif m <= 64:
        _tile(x, w, best, where, 0, tile, m, K, N, ROWS, 64, BN, BK, EVEN_K, PRECISION)
    else:
        for m0 in range(0, m, BM):
            _tile(x, w, best, where, m0, tile, m, K, N, ROWS, BM, BN, BK, EVEN_K, PRECISION)


def column_tiles(config: StepConfig) -> int:
    """Return the number of column tiles of the vocabulary."""
    return -(-config.shape.vocab // config.tile("lm_head", TILES).block_n)


def _table(config: StepConfig) -> dict[str, Spec]:
    rows, shape, tiles = config.bounds.rows, config.shape, column_tiles(config)
    return {
        "plan": plan_spec(config),
        "x": Spec((rows, shape.hidden), config.dtype, rows=0),
        "w": Spec((shape.vocab, shape.hidden), config.dtype),
        "best": Spec((tiles, rows), torch.float32, "out", rows=1),
        "where": Spec((tiles, rows), torch.int32, "out", rows=1),
    }


def _plan(config: StepConfig, captured: Bounds) -> Launch:
    tiles, n = config.tile("lm_head", TILES), config.shape.vocab
    constants = body_constants(config, tiles, config.shape.hidden, n)
    kernel = lm_head_versions
    if config.variant == "guard":
        kernel = lm_head_guard
        constants |= extent_constants(config, config.shape.hidden, "H")
    grid = matrix_grid(config, captured, tiles, n)[:2]
    return Launch("lm_head", kernel, grid, constants, tiles.warps, tiles.stages)


def _reference(config: StepConfig, plan: Plan, t: Tensors) -> dict[str, torch.Tensor]:
    logits = t["x"].float()[: plan.rows] @ t["w"].float().T
    best = logits.max(dim=1)
    return {"best": best.values, "tokens": best.indices}


def _result(plan: Plan, t: Tensors) -> dict[str, torch.Tensor]:
    best = t["best"][:, : plan.rows].max(dim=0)
    return {"best": best.values, "tokens": t["where"][:, : plan.rows].gather(0, best.indices[None])[0]}


LM_HEAD = Op("lm_head", _table, _plan, _reference, _result)
