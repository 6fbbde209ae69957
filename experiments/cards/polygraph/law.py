"""The step law that the paper's own Table 4 implies, for consistency checks that are labelled as such."""

from __future__ import annotations

from experiments.targets import target

SEQS = 16


def affine_law() -> tuple[float, float]:
    """Return (base in us, slope in us a token) through the plan buffer's points at d = 1 and d = 8, B = 16.

    With it the model cannot help agreeing at d = 1 and 8: only d = 4 is free, and Table 3 under a schedule.
    """
    values = target("R43").values
    padded_us = 1000.0 * values["max_pad_p99_ms"]
    short, full = (padded_us * (1 - values["reduction_pct"][d] / 100) for d in ("1", "8"))
    slope = (full - short) / (SEQS * (8 - 1))
    return short - slope * SEQS, slope
