"""Which sequence a row belongs to: a division in a rectangle, the offsets in a ragged plan."""

from __future__ import annotations

from typing import Any

import torch
import triton
import triton.language as tl

from kernels.op import StepConfig, power_of_two
from kernels.plan import Plan


def row_constants(config: StepConfig) -> dict[str, Any]:
    """Return the constants of `sequence_of` and of kernels that read the plan's rows."""
    slot = config.layout.slot
    return {
        "M_SLOT": slot("M"), "B_SLOT": slot("B"), "D_SLOT": slot("d"),
        "OVERLAP": config.overlap, "RAGGED": config.ragged, "BATCH": power_of_two(config.bounds.batch),
    }  # fmt: skip


def places(plan: Plan) -> tuple[torch.Tensor, torch.Tensor]:
    """Return int64[rows] of each row's sequence, and of its place in the draft: the reference of `sequence_of`."""
    drafts = torch.tensor(plan.drafts or (plan.draft,) * plan.batch, dtype=torch.int64)
    sequence = torch.repeat_interleave(torch.arange(plan.batch), drafts)
    first = drafts.cumsum(0) - drafts
    return sequence, torch.arange(plan.rows) - first[sequence]


@triton.jit
def sequence_of(
    plan,
    row,
    B_SLOT: tl.constexpr,
    D_SLOT: tl.constexpr,
    RAGGED: tl.constexpr,
    BATCH: tl.constexpr,
):
    """Return (sequence, place of the row in its draft, draft length)."""
    if RAGGED:
        batch = tl.load(plan + B_SLOT)
        i = tl.arange(0, BATCH)
        ends = tl.load(plan + 9 + i, mask=i < batch, other=2147483647)
        sequence = tl.sum((ends <= row).to(tl.int32), axis=0)
        first = tl.load(plan + 8 + sequence)
        draft = tl.load(plan + 9 + sequence) - first
    else:
        draft = tl.load(plan + D_SLOT)
        sequence = row // draft
        first = sequence * draft
    return sequence, row - first, draft


@triton.jit
def draft_of(plan, sequence, D_SLOT: tl.constexpr, RAGGED: tl.constexpr):
    """Return (first row of the sequence, draft length)."""
    if RAGGED:
        first = tl.load(plan + 8 + sequence)
        draft = tl.load(plan + 9 + sequence) - first
    else:
        draft = tl.load(plan + D_SLOT)
        first = sequence * draft
    return first, draft
