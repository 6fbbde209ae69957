"""The best of the LM head's column tiles: one token a row. Equal logits go to the lower token."""

from __future__ import annotations

import torch
import triton
import triton.language as tl

from kernels.op import Launch, Op, Spec, StepConfig, Tensors, plan_spec, power_of_two
from kernels.ops.lm_head import column_tiles
from kernels.ops.overlap import follow
from kernels.plan import Plan
from kernels.shapes import Bounds


@triton.jit
def argmax_kernel(
    plan,
    best,
    where,
    tokens,
    M_SLOT: tl.constexpr,
    OVERLAP: tl.constexpr,
    ROWS: tl.constexpr,
    TILES: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """One program a row."""
    m = tl.load(plan + M_SLOT)
    row = tl.program_id(0)
    if row >= m:
        return
    follow(OVERLAP)
    i = tl.arange(0, BLOCK)
    logits = tl.load(best + i * ROWS + row, mask=i < TILES, other=float("-inf"))
    tile = tl.argmax(logits, axis=0)
    tl.store(tokens + row, tl.load(where + tile * ROWS + row))


def _table(config: StepConfig) -> dict[str, Spec]:
    rows, tiles = config.bounds.rows, column_tiles(config)
    return {
        "plan": plan_spec(config),
        "best": Spec((tiles, rows), torch.float32, rows=1),
        "where": Spec((tiles, rows), torch.int32, rows=1),
        "tokens": Spec((rows,), torch.int32, "out", rows=0),
    }


def _plan(config: StepConfig, captured: Bounds) -> Launch:
    tiles = column_tiles(config)
    constants = {
        "M_SLOT": config.layout.slot("M"), "OVERLAP": config.overlap, "ROWS": config.bounds.rows,
        "TILES": tiles, "BLOCK": power_of_two(tiles),
    }  # fmt: skip
    return Launch("argmax", argmax_kernel, (captured.rows,), constants, warps=4)


def _reference(config: StepConfig, plan: Plan, t: Tensors) -> dict[str, torch.Tensor]:
    tile = t["best"][:, : plan.rows].argmax(dim=0, keepdim=True)
    return {"tokens": t["where"][:, : plan.rows].gather(0, tile)[0]}


def _result(plan: Plan, t: Tensors) -> dict[str, torch.Tensor]:
    return {"tokens": t["tokens"][: plan.rows]}


ARGMAX = Op("argmax", _table, _plan, _reference, _result)
