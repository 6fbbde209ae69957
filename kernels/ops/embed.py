"""Token ids to the residual stream."""

from __future__ import annotations

import torch
import triton
import triton.language as tl

from kernels.op import Launch, Op, Spec, StepConfig, Tensors, plan_spec, power_of_two
from kernels.ops.overlap import follow
from kernels.plan import Plan
from kernels.shapes import Bounds


@triton.jit
def embed_kernel(
    plan,
    tokens,
    embedding,
    residual,
    M_SLOT: tl.constexpr,
    OVERLAP: tl.constexpr,
    HIDDEN: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """One program a row."""
    m = tl.load(plan + M_SLOT)
    row = tl.program_id(0)
    if row >= m:
        return
    follow(OVERLAP)
    i = tl.arange(0, BLOCK)
    token = tl.load(tokens + row)
    x = tl.load(embedding + token.to(tl.int64) * HIDDEN + i, mask=i < HIDDEN)
    tl.store(residual + row * HIDDEN + i, x.to(tl.float32), mask=i < HIDDEN)


def _table(config: StepConfig) -> dict[str, Spec]:
    hidden, rows = config.shape.hidden, config.bounds.rows
    return {
        "plan": plan_spec(config),
        "tokens": Spec((rows,), torch.int32, rows=0),
        "embedding": Spec((config.shape.vocab, hidden), config.dtype),
        "residual": Spec((rows, hidden), torch.float32, "out", rows=0),
    }


def _plan(config: StepConfig, captured: Bounds) -> Launch:
    hidden = config.shape.hidden
    constants = {
        "M_SLOT": config.layout.slot("M"), "OVERLAP": config.overlap, "HIDDEN": hidden, "BLOCK": power_of_two(hidden),
    }  # fmt: skip
    return Launch("embed", embed_kernel, (captured.rows,), constants, warps=4)


def _reference(config: StepConfig, plan: Plan, t: Tensors) -> dict[str, torch.Tensor]:
    return {"residual": t["embedding"].float()[t["tokens"][: plan.rows].long()]}


def _result(plan: Plan, t: Tensors) -> dict[str, torch.Tensor]:
    return {"residual": t["residual"][: plan.rows]}


EMBED = Op("embed", _table, _plan, _reference, _result)
