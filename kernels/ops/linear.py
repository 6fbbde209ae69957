"""Products with a weight matrix, in parts of the inner dimension: the kernels behind three projections.

The tile is W X^T, not X W^T: the weight's 64 or 128 rows fill the tensor core's long side, so that 16 rows of X waste
nothing (Hopper's wgmma needs 64 on that side).

Two variants. `linear_guard` is the paper's: a grid over row tiles up to the captured M, where a tile beyond the plan's
M stops at the guard, and the inner extent comes from the plan too. `linear_versions` has one program a column tile,
which reads M and takes the body made for it: weights are read once for any M up to 128, and no program is inactive.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from functools import partial
from typing import Any

import torch
import triton
import triton.language as tl

from kernels.op import Launch, Op, Spec, StepConfig, Tensors, Tiles, plan_spec
from kernels.plan import Plan
from kernels.shapes import Bounds


@triton.jit
def product(
    x,
    w,
    m0,
    n0,
    k_begin,
    k_end,
    m,
    k_extent,
    N: tl.constexpr,
    BM: tl.constexpr,
    BN: tl.constexpr,
    BK: tl.constexpr,
    EVEN_K: tl.constexpr,
    PRECISION: tl.constexpr,
):
    """Return W[n0:n0+BN, k] X[m0:m0+BM, k]^T over k_begin <= k < k_end, float32[BN, BM]; rows past m count as 0."""
    row = m0 + tl.arange(0, BM)
    column = n0 + tl.arange(0, BN)
    k = tl.arange(0, BK)
    x_at = x + row[:, None] * k_extent + (k_begin + k)[None, :]
    w_at = w + column[:, None] * k_extent + (k_begin + k)[None, :]
    total = tl.zeros((BN, BM), dtype=tl.float32)
    for k0 in range(k_begin, k_end, BK):
        x_inside = row[:, None] < m
        w_inside = column[:, None] < N
        if not EVEN_K:
            x_inside = x_inside & ((k0 + k)[None, :] < k_end)
            w_inside = w_inside & ((k0 + k)[None, :] < k_end)
        w_tile = tl.load(w_at, mask=w_inside, other=0.0)
        x_tile = tl.load(x_at, mask=x_inside, other=0.0)
        total = tl.dot(w_tile, tl.trans(x_tile), total, input_precision=PRECISION)
        x_at += BK
        w_at += BK
    return total


@triton.jit
def span(part, k_extent, BK: tl.constexpr, PARTS: tl.constexpr):
    """Return (begin, end) of a part of the inner dimension; parts are whole iterations but for the last."""
    width = tl.cdiv(tl.cdiv(k_extent, BK), PARTS) * BK
    begin = part * width
    return begin, tl.minimum(begin + width, k_extent)


@triton.jit
def _part(
    x,
    w,
    out,
    m0,
    n0,
    part,
    m,
    k_extent,
    N: tl.constexpr,
    ROWS: tl.constexpr,
    BM: tl.constexpr,
    BN: tl.constexpr,
    BK: tl.constexpr,
    PARTS: tl.constexpr,
    EVEN_K: tl.constexpr,
    PRECISION: tl.constexpr,
):
    begin, end = span(part, k_extent, BK, PARTS)
    total = product(x, w, m0, n0, begin, end, m, k_extent, N, BM, BN, BK, EVEN_K, PRECISION)
    row = m0 + tl.arange(0, BM)
    column = n0 + tl.arange(0, BN)
    at = out + (part * ROWS + row)[None, :] * N + column[:, None]
    tl.store(at, total, mask=(row[None, :] < m) & (column[:, None] < N))


@triton.jit
def linear_guard(
    plan,
    x,
    w,
    parts,
    M_SLOT: tl.constexpr,
    K_SLOT: tl.constexpr,
    K_ALIGN: tl.constexpr,
    K: tl.constexpr,
    N: tl.constexpr,
    ROWS: tl.constexpr,
    BM: tl.constexpr,
    BN: tl.constexpr,
    BK: tl.constexpr,
    PARTS: tl.constexpr,
    EVEN_K: tl.constexpr,
    PRECISION: tl.constexpr,
):
    """Grid (row tiles, column tiles, parts): row tiles of one column follow each other, and find its weights cached."""
    m = tl.load(plan + M_SLOT)
    m0 = tl.program_id(0) * BM
    if m0 >= m:
        return
    if K_SLOT >= 0:
        # Without the hint a stride of unknown divisibility makes loads two bytes wide.
        k_extent = tl.multiple_of(tl.load(plan + K_SLOT), K_ALIGN)
    else:
        k_extent = K
    n0 = tl.program_id(1) * BN
    part = tl.program_id(2)
    _part(x, w, parts, m0, n0, part, m, k_extent, N, ROWS, BM, BN, BK, PARTS, EVEN_K, PRECISION)


@triton.jit
def linear_versions(
    plan,
    x,
    w,
    parts,
    M_SLOT: tl.constexpr,
    K: tl.constexpr,
    N: tl.constexpr,
    ROWS: tl.constexpr,
    BM: tl.constexpr,
    BN: tl.constexpr,
    BK: tl.constexpr,
    PARTS: tl.constexpr,
    EVEN_K: tl.constexpr,
    PRECISION: tl.constexpr,
):
    """Grid (column tiles, parts). BM is the largest body; smaller ones serve smaller M."""
    m = tl.load(plan + M_SLOT)
    if m <= 0:
        return
    n0 = tl.program_id(0) * BN
    part = tl.program_id(1)
    if m <= 16:
        _part(x, w, parts, 0, n0, part, m, K, N, ROWS, 16, BN, BK, PARTS, EVEN_K, PRECISION)
    elif m <= 32:
        _part(x, w, parts, 0, n0, part, m, K, N, ROWS, 32, BN, BK, PARTS, EVEN_K, PRECISION)
    elif m <= 64:
        _part(x, w, parts, 0, n0, part, m, K, N, ROWS, 64, BN, BK, PARTS, EVEN_K, PRECISION)
    else:
        for m0 in range(0, m, BM):
            _part(x, w, parts, m0, n0, part, m, K, N, ROWS, BM, BN, BK, PARTS, EVEN_K, PRECISION)


def matrix_grid(config: StepConfig, captured: Bounds, tiles: Tiles, columns: int) -> tuple[int, ...]:
    """Return the grid of a matrix kernel of the config's variant."""
    n_tiles = -(-columns // tiles.block_n)
    if config.variant == "guard":
        return -(-captured.rows // tiles.block_m), n_tiles, tiles.split
    return n_tiles, tiles.split


def extent_constants(config: StepConfig, k: int, k_name: str | None) -> dict[str, int]:
    """Return how a guarded kernel learns its inner extent: from the plan's word `k_name`, or captured (None)."""
    slot = -1 if k_name is None else config.layout.slot(k_name)
    return {"K_SLOT": slot, "K_ALIGN": math.gcd(k, 16)}


def body_constants(config: StepConfig, tiles: Tiles, k: int, n: int) -> dict[str, Any]:
    """Return the constants that all matrix kernels share."""
    return {
        "M_SLOT": config.layout.slot("M"), "K": k, "N": n, "ROWS": config.bounds.rows,
        "BM": tiles.block_m, "BN": tiles.block_n, "BK": tiles.block_k,
        "EVEN_K": k % (tiles.block_k * tiles.split) == 0, "PRECISION": config.precision,
    }  # fmt: skip


def _table(config: StepConfig, *, name: str, k: str, n: str, own: Mapping[str, Tiles]) -> dict[str, Spec]:
    rows, inner, columns = config.bounds.rows, getattr(config.shape, k), getattr(config.shape, n)
    return {
        "plan": plan_spec(config),
        "x": Spec((rows, inner), config.dtype, rows=0),
        "w": Spec((columns, inner), config.dtype),
        "parts": Spec((config.tile(name, own).split, rows, columns), torch.float32, "out", rows=1),
    }


def _plan(
    config: StepConfig,
    captured: Bounds,
    *,
    name: str,
    k: str,
    n: str,
    k_slot: str | None,
    own: Mapping[str, Tiles],
) -> Launch:
    tiles, inner, columns = config.tile(name, own), getattr(config.shape, k), getattr(config.shape, n)
    constants = body_constants(config, tiles, inner, columns) | {"PARTS": tiles.split}
    kernel = linear_versions
    if config.variant == "guard":
        kernel = linear_guard
        constants |= extent_constants(config, inner, k_slot)
    grid = matrix_grid(config, captured, tiles, columns)
    return Launch(name, kernel, grid, constants, tiles.warps, tiles.stages)


def _reference(config: StepConfig, plan: Plan, t: Tensors) -> dict[str, torch.Tensor]:
    return {"sum": t["x"].float()[: plan.rows] @ t["w"].float().T}


def _result(plan: Plan, t: Tensors) -> dict[str, torch.Tensor]:
    return {"sum": t["parts"][:, : plan.rows].sum(0)}


def linear_op(name: str, k: str, n: str, k_slot: str | None, own: Mapping[str, Tiles]) -> Op:
    """Return the op Y = X W^T: x [rows, k], w [n, k] -> parts [split, rows, n] in float32, whose sum is Y.

    k, n     the shape's widths, by name
    own      variant -> tiles
    k_slot   the plan's word that holds k, for the guard variant; None where the plan has none
    """
    return Op(
        name,
        partial(_table, name=name, k=k, n=n, own=own),
        partial(_plan, name=name, k=k, n=n, k_slot=k_slot, own=own),
        _reference,
        _result,
    )
