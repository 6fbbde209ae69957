"""Draws of the engine's CPU overhead, for profiles of kernels alone: how much public engines differ."""

from __future__ import annotations

import numpy as np

from calibration import constants as data
from traces import portable


def overhead_draw(index: int) -> data.Overhead:
    """Return draw `index` of vLLM's overhead: public engines differ by these factors (docs/adr/0005)."""
    o = data.overhead()
    ids = np.arange(2, dtype=np.int64)
    step, seq = portable.exp(
        np.array([0.5, 0.3]) * portable.normal(0, "engine overhead", np.full_like(ids, index), ids)
    )
    return data.Overhead(o.fixed_us * float(step), o.seq_us * float(seq), o.source)
