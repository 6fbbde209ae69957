"""Products with a weight matrix, in parts of the inner dimension: the kernels behind three projections.

Two variants. `linear_guard` is the paper's: a grid over row tiles up to the captured M, where a tile beyond the plan's
M stops at the guard, and the inner extent comes from the plan too. `linear_versions` has one program a column tile,
which reads M and takes the body made for it: weights are read once for any M up to 128, and no program is inactive.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial

import torch
import triton
import triton.language as tl

from kernels.op import Launch, Op, Spec, StepConfig, Tensors, Tiles, plan_spec
from kernels.ops.matrix import body_constants, extent_constants, matrix_grid, product
from kernels.ops.overlap import follow
from kernels.plan import Plan
from kernels.shapes import Bounds


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
    OVERLAP: tl.constexpr,
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
    follow(OVERLAP)
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
    OVERLAP: tl.constexpr,
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
    follow(OVERLAP)
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
