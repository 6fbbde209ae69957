"""Kernels that the check must flag, each wrong in one way: a check that passes them proves nothing."""

from __future__ import annotations

from typing import Any

import triton
import triton.language as tl


@triton.jit
def guarded(plan, x, y, limit, BLOCK: tl.constexpr):
    """Right: the control of the controls."""
    m = tl.load(plan)
    first = tl.program_id(0) * BLOCK
    if first >= m:
        return
    row = first + tl.arange(0, BLOCK)
    tl.store(y + row, tl.load(x + row, mask=row < m) + 1.0, mask=row < m)


@triton.jit
def unguarded(plan, x, y, limit, BLOCK: tl.constexpr):
    """Masks instead of a guard: every program runs to its end."""
    m = tl.load(plan)
    row = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(y + row, tl.load(x + row, mask=row < m) + 1.0, mask=row < m)


@triton.jit
def hoisted(plan, x, y, limit, BLOCK: tl.constexpr):
    """Loads its tile before it looks at the plan."""
    first = tl.program_id(0) * BLOCK
    row = first + tl.arange(0, BLOCK)
    tile = tl.load(x + row)
    m = tl.load(plan)
    if first >= m:
        return
    tl.store(y + row, tile + 1.0, mask=row < m)


@triton.jit
def other_word(plan, x, y, limit, BLOCK: tl.constexpr):
    """Guards on a word that is not the plan's."""
    m = tl.load(limit)
    first = tl.program_id(0) * BLOCK
    if first >= m:
        return
    row = first + tl.arange(0, BLOCK)
    tl.store(y + row, tl.load(x + row, mask=row < m) + 1.0, mask=row < m)


@triton.jit
def captured_scalar(plan, x, y, limit, m, BLOCK: tl.constexpr):
    """Takes M from the host: a replay repeats the M of the capture."""
    first = tl.program_id(0) * BLOCK
    if first >= m:
        return
    row = first + tl.arange(0, BLOCK)
    tl.store(y + row, tl.load(x + row, mask=row < m) + 1.0, mask=row < m)


@triton.jit
def writing_exit(plan, x, y, limit, BLOCK: tl.constexpr):
    """Inactive programs write zeros before they stop."""
    m = tl.load(plan)
    first = tl.program_id(0) * BLOCK
    row = first + tl.arange(0, BLOCK)
    if first >= m:
        tl.store(y + row, tl.zeros((BLOCK,), dtype=tl.float32))
        return
    tl.store(y + row, tl.load(x + row, mask=row < m) + 1.0, mask=row < m)


UNALIGNED = "unaligned"
SIGNATURE = {"plan": "*i32", "x": "*fp32", "y": "*fp32", "limit": "*i32"}
GOOD: dict[str, Any] = {"guarded": guarded}
BAD: dict[str, Any] = {
    "unguarded": unguarded, "hoisted": hoisted, "other_word": other_word,
    "captured_scalar": captured_scalar, "writing_exit": writing_exit,
}  # fmt: skip
