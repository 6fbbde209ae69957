"""Joins the parts of split attention: softmaxes over parts of a context become the one over all of it."""

from __future__ import annotations

import torch
import triton
import triton.language as tl

from kernels.op import Launch, Op, Spec, StepConfig, Tensors, plan_spec, power_of_two
from kernels.ops.attention import attention_tiles, cache_constants, context_part
from kernels.ops.overlap import follow
from kernels.ops.rows import places, sequence_of
from kernels.plan import Plan
from kernels.shapes import Bounds


@triton.jit
def combine_kernel(
    plan,
    part_out,
    part_weight,
    contexts,
    joined,
    M_SLOT: tl.constexpr,
    OVERLAP: tl.constexpr,
    B_SLOT: tl.constexpr,
    D_SLOT: tl.constexpr,
    RAGGED: tl.constexpr,
    BATCH: tl.constexpr,
    ROWS: tl.constexpr,
    HEADS: tl.constexpr,
    WIDTH: tl.constexpr,
    BN: tl.constexpr,
    PARTS: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """Grid (rows, heads)."""
    m = tl.load(plan + M_SLOT)
    row = tl.program_id(0)
    if row >= m:
        return
    follow(OVERLAP)
    head = tl.program_id(1)
    sequence, _, draft = sequence_of(plan, row, B_SLOT, D_SLOT, RAGGED, BATCH)
    total = tl.load(contexts + sequence) + draft
    part = tl.arange(0, BLOCK)
    begin, _ = context_part(total, part, BN, PARTS)
    # Parts that were empty wrote nothing: what lies there is another step's.
    written = (part < PARTS) & (begin < total)
    at = (part * ROWS + row) * HEADS + head
    weight = tl.load(part_weight + at, mask=written, other=float("-inf"))
    share = tl.exp2(weight - tl.max(weight, axis=0))
    i = tl.arange(0, WIDTH)
    out = tl.load(part_out + at[:, None] * WIDTH + i[None, :], mask=written[:, None], other=0.0)
    y = tl.sum(out * share[:, None], axis=0) / tl.sum(share, axis=0)
    tl.store(joined + (row * HEADS + head) * WIDTH + i, y.to(joined.dtype.element_ty))


def _table(config: StepConfig) -> dict[str, Spec]:
    shape, rows = config.shape, config.bounds.rows
    parts = attention_tiles(config).split
    return {
        "plan": plan_spec(config),
        "part_out": Spec((parts, rows, shape.heads, shape.head_dim), torch.float32, rows=1),
        "part_weight": Spec((parts, rows, shape.heads), torch.float32, rows=1),
        "contexts": Spec((config.bounds.batch,), torch.int32),
        "joined": Spec((rows, shape.heads, shape.head_dim), config.dtype, "out", rows=0),
    }


def _plan(config: StepConfig, captured: Bounds) -> Launch:
    constants = cache_constants(config)
    constants |= {"BLOCK": power_of_two(constants["PARTS"])}
    return Launch("combine", combine_kernel, (captured.rows, config.shape.heads), constants, warps=1)


def written_parts(config: StepConfig, plan: Plan, contexts: torch.Tensor) -> torch.Tensor:
    """Return bool[parts, rows]: which parts of each row's context hold keys."""
    tiles = attention_tiles(config)
    sequence, _ = places(plan)
    drafts = torch.bincount(sequence, minlength=plan.batch)
    total = contexts.long()[sequence] + drafts[sequence]
    blocks = (total + tiles.block_n - 1) // tiles.block_n
    width = (blocks + tiles.split - 1) // tiles.split * tiles.block_n
    return torch.arange(tiles.split)[:, None] * width[None, :] < total[None, :]


def _reference(config: StepConfig, plan: Plan, t: Tensors) -> dict[str, torch.Tensor]:
    written = written_parts(config, plan, t["contexts"])
    weight = torch.where(written[..., None], t["part_weight"][:, : plan.rows], -torch.inf)
    out = torch.where(written[..., None, None], t["part_out"][:, : plan.rows], 0.0)
    share = torch.exp2(weight - weight.max(dim=0, keepdim=True).values)
    return {"joined": (share[..., None] * out).sum(0) / share.sum(0)[..., None]}


def _result(plan: Plan, t: Tensors) -> dict[str, torch.Tensor]:
    return {"joined": t["joined"][: plan.rows]}


COMBINE = Op("combine", _table, _plan, _reference, _result)
