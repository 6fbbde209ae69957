"""What the kernels with a weight matrix share: the product of a tile, its constants and its grid.

The tile is W X^T, not X W^T: the weight's 64 or 128 rows fill the tensor core's long side, so that 16 rows of X waste
nothing (Hopper's wgmma needs 64 on that side).
"""

from __future__ import annotations

import math
from typing import Any

import triton
import triton.language as tl

from kernels.op import StepConfig, Tiles
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
        "M_SLOT": config.layout.slot("M"), "OVERLAP": config.overlap, "K": k, "N": n, "ROWS": config.bounds.rows,
        "BM": tiles.block_m, "BN": tiles.block_n, "BK": tiles.block_k,
        "EVEN_K": k % (tiles.block_k * tiles.split) == 0, "PRECISION": config.precision,
    }  # fmt: skip
