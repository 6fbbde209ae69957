"""Paged grouped-query attention of a step's new tokens over their sequences' contexts, the context split in parts.

A tile's rows are (new token, query head of the group): all heads of a group read their keys once, and d tokens of a
group of g heads fill d g rows of the tensor core. A part of the context leaves its own softmax and its logarithmic
weight; `combine` joins them. How a context is cut depends on its own length only, never on the batch beside it.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import torch
import triton
import triton.language as tl

from kernels.op import Launch, Op, Spec, StepConfig, Tensors, Tiles, plan_spec, same_tiles
from kernels.ops.overlap import follow
from kernels.ops.rows import draft_of, places, row_constants
from kernels.plan import Plan
from kernels.shapes import Bounds

TILES = same_tiles(Tiles(block_m=64, block_n=64, split=8, warps=4, stages=3))
_PART_KEYS, _PARTS_MAX = 512, 32
LOG2_E = math.log2(math.e)


@triton.jit
def context_part(total, part, BN: tl.constexpr, PARTS: tl.constexpr):
    """Return (begin, end) of a part of `total` keys; begin >= total says that the part is empty."""
    width = tl.cdiv(tl.cdiv(total, BN), PARTS) * BN
    begin = part * width
    return begin, tl.minimum(begin + width, total)


@triton.jit
def attention_kernel(
    plan,
    q,
    k_cache,
    v_cache,
    contexts,
    tables,
    part_out,
    part_weight,
    M_SLOT: tl.constexpr,
    OVERLAP: tl.constexpr,
    B_SLOT: tl.constexpr,
    D_SLOT: tl.constexpr,
    S_SLOT: tl.constexpr,
    RAGGED: tl.constexpr,
    BATCH: tl.constexpr,
    ROWS: tl.constexpr,
    HEADS: tl.constexpr,
    KV_HEADS: tl.constexpr,
    WIDTH: tl.constexpr,
    PAGE: tl.constexpr,
    BLOCKS: tl.constexpr,
    SCALE: tl.constexpr,
    BR: tl.constexpr,
    BN: tl.constexpr,
    PARTS: tl.constexpr,
    PRECISION: tl.constexpr,
):
    """Grid (sequences, KV heads, row tiles x parts)."""
    batch = tl.load(plan + B_SLOT)
    sequence = tl.program_id(0)
    if sequence >= batch:
        return
    first, draft = draft_of(plan, sequence, D_SLOT, RAGGED)
    group: tl.constexpr = HEADS // KV_HEADS
    r0 = (tl.program_id(2) // PARTS) * BR
    if r0 >= draft * group:
        return
    part = tl.program_id(2) % PARTS
    context = tl.load(contexts + sequence)
    total = context + draft
    begin, end = context_part(total, part, BN, PARTS)
    if begin >= total:
        return
    follow(OVERLAP)
    kv_head = tl.program_id(1)
    r = r0 + tl.arange(0, BR)
    new_token = r // group
    head = kv_head * group + r % group
    active = r < draft * group
    i = tl.arange(0, WIDTH)
    q_at = q + ((first + new_token) * HEADS + head)[:, None] * WIDTH + i[None, :]
    q_tile = tl.load(q_at, mask=active[:, None], other=0.0)
    base = tl.load(plan + S_SLOT)
    n = tl.arange(0, BN)
    highest = tl.full((BR,), float("-inf"), dtype=tl.float32)
    mass = tl.zeros((BR,), dtype=tl.float32)
    out = tl.zeros((BR, WIDTH), dtype=tl.float32)
    for k0 in range(begin, end, BN):
        position = k0 + n
        held = position < end
        block = tl.load(tables + sequence * BLOCKS + position // PAGE, mask=held, other=0)
        slot = (base + block * PAGE + position % PAGE).to(tl.int64)
        kv_at = (slot * KV_HEADS + kv_head)[:, None] * WIDTH + i[None, :]
        k_tile = tl.load(k_cache + kv_at, mask=held[:, None], other=0.0)
        v_tile = tl.load(v_cache + kv_at, mask=held[:, None], other=0.0)
        scores = tl.dot(q_tile, tl.trans(k_tile), input_precision=PRECISION) * SCALE
        seen = held[None, :] & (position[None, :] <= context + new_token[:, None])
        scores = tl.where(seen, scores, float("-inf"))
        higher = tl.maximum(highest, tl.max(scores, axis=1))
        # A row whose first keys lie in another part has seen nothing yet: exp2(-inf - -inf) would be NaN.
        safe = tl.where(higher == float("-inf"), 0.0, higher)
        p = tl.exp2(scores - safe[:, None])
        fade = tl.exp2(highest - safe)
        mass = mass * fade + tl.sum(p, axis=1)
        out = out * fade[:, None]
        out = tl.dot(p.to(v_tile.dtype), v_tile, out, input_precision=PRECISION)
        highest = higher
    seen_any = mass > 0.0
    out = out / tl.where(seen_any, mass, 1.0)[:, None]
    weight = tl.where(seen_any, highest + tl.log2(tl.where(seen_any, mass, 1.0)), float("-inf"))
    at = (part * ROWS + first + new_token) * HEADS + head
    tl.store(part_out + at[:, None] * WIDTH + i[None, :], out, mask=active[:, None])
    tl.store(part_weight + at, weight, mask=active)


def attention_tiles(config: StepConfig) -> Tiles:
    """Return the tiles: those given, or the op's own with one part more for every 512 keys of the context bound.

    One sequence of two KV heads is two programs a part; a long context in few parts would leave a GPU idle.
    """
    tiles = config.tile("attention", TILES)
    if "attention" in config.tiles:
        return tiles
    return replace(tiles, split=max(tiles.split, min(-(-config.bounds.context // _PART_KEYS), _PARTS_MAX)))


def _table(config: StepConfig) -> dict[str, Spec]:
    shape, rows, batch = config.shape, config.bounds.rows, config.bounds.batch
    parts = attention_tiles(config).split
    cache = Spec((config.slots, shape.kv_heads, shape.head_dim), config.dtype)
    return {
        "plan": plan_spec(config),
        "q": Spec((rows, shape.heads, shape.head_dim), config.dtype, rows=0),
        "k_cache": cache,
        "v_cache": cache,
        "contexts": Spec((batch,), torch.int32),
        "tables": Spec((batch, config.blocks), torch.int32),
        "part_out": Spec((parts, rows, shape.heads, shape.head_dim), torch.float32, "out", rows=1),
        "part_weight": Spec((parts, rows, shape.heads), torch.float32, "out", rows=1),
    }


def cache_constants(config: StepConfig) -> dict[str, Any]:
    """Return the constants of kernels that cut contexts in parts."""
    tiles = attention_tiles(config)
    return row_constants(config) | {
        "ROWS": config.bounds.rows, "HEADS": config.shape.heads, "WIDTH": config.shape.head_dim,
        "BN": tiles.block_n, "PARTS": tiles.split,
    }  # fmt: skip


def _plan(config: StepConfig, captured: Bounds) -> Launch:
    shape, tiles = config.shape, attention_tiles(config)
    constants = cache_constants(config) | {
        "S_SLOT": config.layout.slot("s"), "KV_HEADS": shape.kv_heads, "PAGE": config.page,
        "BLOCKS": config.blocks, "SCALE": LOG2_E / math.sqrt(shape.head_dim),
        "BR": tiles.block_m, "PRECISION": config.precision,
    }  # fmt: skip
    row_tiles = -(-captured.draft * shape.group // tiles.block_m)
    grid = (captured.batch, shape.kv_heads, row_tiles * tiles.split)
    return Launch("attention", attention_kernel, grid, constants, tiles.warps, tiles.stages)


def attend(config: StepConfig, plan: Plan, t: Tensors) -> torch.Tensor:
    """Return float32[rows, heads, head_dim]: each row's attention, one row after the other."""
    shape, q = config.shape, t["q"].float()
    sequence, place = places(plan)
    rows = []
    for row in range(plan.rows):
        s = int(sequence[row])
        position = torch.arange(int(t["contexts"][s]) + int(place[row]) + 1, device=q.device)
        block = t["tables"][s].long()[position // config.page]
        slot = plan.slot_base + block * config.page + position % config.page
        k, v = (
            t[name][slot].float().repeat_interleave(shape.group, dim=1) for name in ("k_cache", "v_cache")
        )
        scores = torch.einsum("hd,nhd->hn", q[row], k) / math.sqrt(shape.head_dim)
        rows.append(torch.einsum("hn,nhd->hd", scores.softmax(-1), v))
    return torch.stack(rows) if rows else q[:0]


def _reference(config: StepConfig, plan: Plan, t: Tensors) -> dict[str, torch.Tensor]:
    return {"joined": attend(config, plan, t)}


def _result(plan: Plan, t: Tensors) -> dict[str, torch.Tensor]:
    """Join the parts that were written: a part left as it was holds NaN, or a weight of -inf."""
    weight = t["part_weight"][:, : plan.rows].nan_to_num(nan=-torch.inf)
    share = torch.exp2(weight - weight.max(dim=0, keepdim=True).values)
    out = torch.where(share[..., None] > 0, t["part_out"][:, : plan.rows], 0.0)
    return {"joined": (share[..., None] * out).sum(0) / share.sum(0)[..., None]}


ATTENTION = Op("attention", _table, _plan, _reference, _result)
