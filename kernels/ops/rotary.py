"""Adds the parts of the QKV projection and its bias, turns queries and keys by position, writes keys and values.

Keys and values go into the paged cache at the slot the sequence's block table names, counted from the plan's base.
Rotation pairs number i of a head with number i + head_dim / 2.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl

from kernels.op import Launch, Op, Spec, StepConfig, Tensors, plan_spec
from kernels.ops.overlap import follow
from kernels.ops.qkv import TILES as QKV_TILES
from kernels.ops.rows import places, row_constants, sequence_of
from kernels.plan import Plan
from kernels.shapes import Bounds


@triton.jit
def rotary_kernel(
    plan,
    parts,
    bias,
    turns,
    contexts,
    tables,
    q,
    k_cache,
    v_cache,
    M_SLOT: tl.constexpr,
    OVERLAP: tl.constexpr,
    B_SLOT: tl.constexpr,
    D_SLOT: tl.constexpr,
    S_SLOT: tl.constexpr,
    RAGGED: tl.constexpr,
    BATCH: tl.constexpr,
    ROWS: tl.constexpr,
    PARTS: tl.constexpr,
    HEADS: tl.constexpr,
    KV_HEADS: tl.constexpr,
    HALF: tl.constexpr,
    PAGE: tl.constexpr,
    BLOCKS: tl.constexpr,
):
    """Grid (rows, heads of q, k and v)."""
    m = tl.load(plan + M_SLOT)
    row = tl.program_id(0)
    if row >= m:
        return
    follow(OVERLAP)
    head = tl.program_id(1)
    sequence, place, _ = sequence_of(plan, row, B_SLOT, D_SLOT, RAGGED, BATCH)
    position = tl.load(contexts + sequence) + place
    width: tl.constexpr = 2 * HALF
    i = tl.arange(0, HALF)
    at = head * width + i
    low = tl.load(bias + at).to(tl.float32)
    high = tl.load(bias + at + HALF).to(tl.float32)
    for part in tl.static_range(PARTS):
        source = parts + (part * ROWS + row) * ((HEADS + 2 * KV_HEADS) * width) + at
        low += tl.load(source)
        high += tl.load(source + HALF)
    if head < HEADS + KV_HEADS:
        cos = tl.load(turns + position * width + i)
        sin = tl.load(turns + position * width + HALF + i)
        turned = low * cos - high * sin
        high = high * cos + low * sin
        low = turned
    if head < HEADS:
        to = q + (row * HEADS + head) * width + i
        tl.store(to, low.to(q.dtype.element_ty))
        tl.store(to + HALF, high.to(q.dtype.element_ty))
    else:
        block = tl.load(tables + sequence * BLOCKS + position // PAGE)
        slot = (tl.load(plan + S_SLOT) + block * PAGE + position % PAGE).to(tl.int64)
        if head < HEADS + KV_HEADS:
            to = k_cache + (slot * KV_HEADS + head - HEADS) * width + i
            tl.store(to, low.to(k_cache.dtype.element_ty))
            tl.store(to + HALF, high.to(k_cache.dtype.element_ty))
        else:
            to = v_cache + (slot * KV_HEADS + head - HEADS - KV_HEADS) * width + i
            tl.store(to, low.to(v_cache.dtype.element_ty))
            tl.store(to + HALF, high.to(v_cache.dtype.element_ty))


def turns(config: StepConfig, device: str = "cpu") -> torch.Tensor:
    """Return float32[context, head_dim]: the cosines of each position's angles, then their sines."""
    half = config.shape.head_dim // 2
    speeds = config.shape.rope_theta ** (-torch.arange(half, dtype=torch.float64) / half)
    angles = torch.arange(config.bounds.context, dtype=torch.float64)[:, None] * speeds
    return torch.cat([angles.cos(), angles.sin()], dim=1).float().to(device)


def turn(x: torch.Tensor, turns_at: torch.Tensor) -> torch.Tensor:
    """Return x [rows, heads, head_dim] turned by turns_at [rows, head_dim]."""
    cos, sin = turns_at[:, None, :].chunk(2, dim=-1)
    low, high = x.chunk(2, dim=-1)
    return torch.cat([low * cos - high * sin, high * cos + low * sin], dim=-1)


def _table(config: StepConfig) -> dict[str, Spec]:
    shape, rows, batch = config.shape, config.bounds.rows, config.bounds.batch
    cache = Spec((config.slots, shape.kv_heads, shape.head_dim), config.dtype, "inout")
    return {
        "plan": plan_spec(config),
        "parts": Spec((config.tile("qkv", QKV_TILES).split, rows, shape.qkv), torch.float32, rows=1),
        "bias": Spec((shape.qkv,), config.dtype),
        "turns": Spec((config.bounds.context, shape.head_dim), torch.float32),
        "contexts": Spec((batch,), torch.int32),
        "tables": Spec((batch, config.blocks), torch.int32),
        "q": Spec((rows, shape.heads, shape.head_dim), config.dtype, "out", rows=0),
        "k_cache": cache,
        "v_cache": cache,
    }


def _plan(config: StepConfig, captured: Bounds) -> Launch:
    shape = config.shape
    constants = row_constants(config) | {
        "S_SLOT": config.layout.slot("s"), "ROWS": config.bounds.rows,
        "PARTS": config.tile("qkv", QKV_TILES).split, "HEADS": shape.heads, "KV_HEADS": shape.kv_heads,
        "HALF": shape.head_dim // 2, "PAGE": config.page, "BLOCKS": config.blocks,
    }  # fmt: skip
    grid = (captured.rows, shape.heads + 2 * shape.kv_heads)
    return Launch("rotary", rotary_kernel, grid, constants, warps=1)


def _reference(config: StepConfig, plan: Plan, t: Tensors) -> dict[str, torch.Tensor]:
    shape = config.shape
    sequence, place = places(plan)
    position = t["contexts"].long()[sequence] + place
    x = t["parts"].float()[:, : plan.rows].sum(0) + t["bias"].float()
    q, k, v = x.view(plan.rows, -1, shape.head_dim).split([shape.heads, shape.kv_heads, shape.kv_heads], 1)
    at = t["turns"].float()[position]
    k_cache, v_cache = t["k_cache"].float().clone(), t["v_cache"].float().clone()
    block = t["tables"].long()[sequence, position // config.page]
    slot = plan.slot_base + block * config.page + position % config.page
    k_cache[slot], v_cache[slot] = turn(k, at), v
    return {"q": turn(q, at), "k_cache": k_cache, "v_cache": v_cache}


def _result(plan: Plan, t: Tensors) -> dict[str, torch.Tensor]:
    return {"q": t["q"][: plan.rows], "k_cache": t["k_cache"], "v_cache": t["v_cache"]}


ROTARY = Op("rotary", _table, _plan, _reference, _result)
