"""PEARL-style: the draft shortens linearly as generation proceeds."""

from __future__ import annotations


def width(emitted: int, length_tokens: int, d_max: int) -> int:
    """Return max(1, round(d_max (1 - progress))), halves up, in integers.

    Source: PolyGraph, section 4, has no formula; this is the reading of this project.

    >>> [width(n, 100, 8) for n in (0, 6, 7, 50, 99, 100)]
    [8, 8, 7, 4, 1, 1]
    """
    left = max(length_tokens - emitted, 0)
    return max(1, (2 * d_max * left + length_tokens) // (2 * max(length_tokens, 1)))
