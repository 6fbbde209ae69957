"""Launches that overlap (Hopper's programmatic dependent launch): a kernel starts while the one before it ends.

A kernel's programs read the plan and, if inactive, leave without waiting: no kernel writes the plan or a step's inputs.
Active ones wait before they touch anything else. A step has an active program in every kernel, and a kernel is complete
only when that one is: so whoever waits for a kernel has waited for all before it. A step of no rows touches nothing.
"""

from __future__ import annotations

import triton
import triton.language as tl
from triton.language.extra.cuda import gdc_launch_dependents, gdc_wait


@triton.jit
def follow(OVERLAP: tl.constexpr):
    """Let the next kernel start, and wait until the one before is complete and its writes are visible."""
    if OVERLAP:
        gdc_launch_dependents()
        gdc_wait()
