"""The MLP's gate and up projections with SiLU between: silu(X Wg^T) * (X Wu^T), X read once for both."""

from __future__ import annotations

import torch
import triton
import triton.language as tl

from kernels.op import Launch, Op, Spec, StepConfig, Tensors, Tiles, plan_spec
from kernels.ops.matrix import body_constants, extent_constants, matrix_grid
from kernels.ops.overlap import follow
from kernels.plan import Plan
from kernels.shapes import Bounds

# Two accumulators: with four warps a body of 128 rows has no registers left. Three stages, so that two programs share a
# multiprocessor: 172 column tiles would otherwise be one wave and a third of another on 132 of them.
TILES = {
    "guard": Tiles(block_m=16, block_n=64, block_k=64, warps=4, stages=4),
    "versions": Tiles(block_m=128, block_n=64, block_k=64, warps=8, stages=3),
}


@triton.jit
def _tile(
    x,
    w,
    out,
    m0,
    n0,
    m,
    k_extent,
    N: tl.constexpr,
    BM: tl.constexpr,
    BN: tl.constexpr,
    BK: tl.constexpr,
    EVEN_K: tl.constexpr,
    PRECISION: tl.constexpr,
):
    row = m0 + tl.arange(0, BM)
    column = n0 + tl.arange(0, BN)
    k = tl.arange(0, BK)
    x_at = x + row[:, None] * k_extent + k[None, :]
    gate_at = w + column[:, None] * k_extent + k[None, :]
    up_at = gate_at + N * k_extent
    gate = tl.zeros((BN, BM), dtype=tl.float32)
    up = tl.zeros((BN, BM), dtype=tl.float32)
    for k0 in range(0, k_extent, BK):
        x_inside = row[:, None] < m
        w_inside = column[:, None] < N
        if not EVEN_K:
            x_inside = x_inside & ((k0 + k)[None, :] < k_extent)
            w_inside = w_inside & ((k0 + k)[None, :] < k_extent)
        gate_tile = tl.load(gate_at, mask=w_inside, other=0.0)
        up_tile = tl.load(up_at, mask=w_inside, other=0.0)
        x_tile = tl.trans(tl.load(x_at, mask=x_inside, other=0.0))
        gate = tl.dot(gate_tile, x_tile, gate, input_precision=PRECISION)
        up = tl.dot(up_tile, x_tile, up, input_precision=PRECISION)
        x_at += BK
        gate_at += BK
        up_at += BK
    y = gate / (1.0 + tl.exp(-gate)) * up
    at = out + row[None, :] * N + column[:, None]
    tl.store(at, y.to(out.dtype.element_ty), mask=(row[None, :] < m) & (column[:, None] < N))


@triton.jit
def gate_up_guard(
    plan,
    x,
    w,
    activated,
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
    _tile(x, w, activated, m0, tl.program_id(1) * BN, m, k_extent, N, BM, BN, BK, EVEN_K, PRECISION)


@triton.jit
def gate_up_versions(
    plan,
    x,
    w,
    activated,
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
    n0 = tl.program_id(0) * BN
    if m <= 16:
        _tile(x, w, activated, 0, n0, m, K, N, 16, BN, BK, EVEN_K, PRECISION)
    elif m <= 32:
        _tile(x, w, activated, 0, n0, m, K, N, 32, BN, BK, EVEN_K, PRECISION)
    elif m <= 64:
        _tile(x, w, activated, 0, n0, m, K, N, 64, BN, BK, EVEN_K, PRECISION)
    else:
        for m0 in range(0, m, BM):
            _tile(x, w, activated, m0, n0, m, K, N, BM, BN, BK, EVEN_K, PRECISION)


def _table(config: StepConfig) -> dict[str, Spec]:
    rows, shape = config.bounds.rows, config.shape
    return {
        "plan": plan_spec(config),
        "x": Spec((rows, shape.hidden), config.dtype, rows=0),
        "w": Spec((2 * shape.intermediate, shape.hidden), config.dtype),
        "activated": Spec((rows, shape.intermediate), config.dtype, "out", rows=0),
    }


def _plan(config: StepConfig, captured: Bounds) -> Launch:
    tiles, n = config.tile("gate_up", TILES), config.shape.intermediate
    constants = body_constants(config, tiles, config.shape.hidden, n)
    kernel = gate_up_versions
    if config.variant == "guard":
        kernel = gate_up_guard
        constants |= extent_constants(config, config.shape.hidden, "H")
    grid = matrix_grid(config, captured, tiles, n)[:2]
    return Launch("gate_up", kernel, grid, constants, tiles.warps, tiles.stages)


def _reference(config: StepConfig, plan: Plan, t: Tensors) -> dict[str, torch.Tensor]:
    gate, up = (t["x"].float()[: plan.rows] @ t["w"].float().T).chunk(2, dim=1)
    return {"activated": torch.nn.functional.silu(gate) * up}


def _result(plan: Plan, t: Tensors) -> dict[str, torch.Tensor]:
    return {"activated": t["activated"][: plan.rows]}


GATE_UP = Op("gate_up", _table, _plan, _reference, _result)
