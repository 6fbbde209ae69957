"""RMSNorm with the residual: adds what the last projection left in parts, keeps the sum, normalises it.

The parts of a split inner dimension are added here in their order, so that a split costs no extra launch and the sum
does not depend on which program was first.
"""

from __future__ import annotations

from functools import partial

import torch
import triton
import triton.language as tl

from kernels.op import Launch, Op, Spec, StepConfig, Tensors, plan_spec, power_of_two
from kernels.ops.overlap import follow
from kernels.plan import Plan
from kernels.shapes import Bounds


@triton.jit
def norm_kernel(
    plan,
    residual,
    parts,
    weight,
    normed,
    M_SLOT: tl.constexpr,
    OVERLAP: tl.constexpr,
    HIDDEN: tl.constexpr,
    BLOCK: tl.constexpr,
    ROWS: tl.constexpr,
    PARTS: tl.constexpr,
    EPS: tl.constexpr,
):
    """One program a row."""
    m = tl.load(plan + M_SLOT)
    row = tl.program_id(0)
    if row >= m:
        return
    follow(OVERLAP)
    i = tl.arange(0, BLOCK)
    inside = i < HIDDEN
    x = tl.load(residual + row * HIDDEN + i, mask=inside, other=0.0)
    for part in tl.static_range(PARTS):
        x += tl.load(parts + (part * ROWS + row) * HIDDEN + i, mask=inside, other=0.0)
    if PARTS > 0:
        tl.store(residual + row * HIDDEN + i, x, mask=inside)
    scale = 1.0 / tl.sqrt(tl.sum(x * x, axis=0) / HIDDEN + EPS)
    w = tl.load(weight + i, mask=inside, other=0.0).to(tl.float32)
    tl.store(normed + row * HIDDEN + i, (x * scale * w).to(normed.dtype.element_ty), mask=inside)


def _table(config: StepConfig, parts: int) -> dict[str, Spec]:
    hidden, rows = config.shape.hidden, config.bounds.rows
    return {
        "plan": plan_spec(config),
        "residual": Spec((rows, hidden), torch.float32, "inout" if parts else "in", rows=0),
        "parts": Spec((max(parts, 1), rows, hidden), torch.float32, rows=1),
        "weight": Spec((hidden,), config.dtype),
        "normed": Spec((rows, hidden), config.dtype, "out", rows=0),
    }


def _plan(config: StepConfig, captured: Bounds, parts: int) -> Launch:
    hidden = config.shape.hidden
    constants = {
        "M_SLOT": config.layout.slot("M"), "OVERLAP": config.overlap, "HIDDEN": hidden, "BLOCK": power_of_two(hidden),
        "ROWS": config.bounds.rows, "PARTS": parts, "EPS": config.shape.norm_eps,
    }  # fmt: skip
    return Launch("norm", norm_kernel, (captured.rows,), constants, warps=4)


def _reference(config: StepConfig, plan: Plan, t: Tensors, parts: int) -> dict[str, torch.Tensor]:
    x = t["residual"].float()[: plan.rows]
    if parts:
        x = x + t["parts"].float()[:, : plan.rows].sum(0)
    return {"residual": x, "normed": rms_norm(x, t["weight"].float(), config.shape.norm_eps)}


def rms_norm(x: torch.Tensor, weight: torch.Tensor, eps: float) -> torch.Tensor:
    """Return x over its root mean square in the last dimension, times `weight`."""
    return x * torch.rsqrt(x.square().mean(-1, keepdim=True) + eps) * weight


def _result(plan: Plan, t: Tensors) -> dict[str, torch.Tensor]:
    return {"residual": t["residual"][: plan.rows], "normed": t["normed"][: plan.rows]}


def norm_op(parts: int) -> Op:
    """Return the op that first adds `parts` parts [parts, rows, hidden] to the residual stream; 0 adds nothing."""
    return Op(
        "norm",
        partial(_table, parts=parts),
        partial(_plan, parts=parts),
        partial(_reference, parts=parts),
        _result,
    )
