"""Split-conformal intervals of a step's time: quantiles of measured / predicted on steps the fit has not seen.

With n unseen steps, the next one from the same population falls between their order statistics of ranks
(n + 1)·tail and (n + 1)·(1 - tail) with the stated probability, whatever the errors' distribution (Vovk et al.). A
kind of step with fewer than 19 unseen rows takes the quantiles of all kinds together. Steps beyond the range that
was measured get the quantiles of steps that lay beyond the range of another fit.
"""

from __future__ import annotations

from collections.abc import Mapping
from math import ceil
from typing import Any

import numpy as np
from numpy.typing import NDArray

COVERAGE = 0.9
SCALE = 10_000
FEWEST = 19  # with fewer, no order statistic lies at 5 %


def quantiles(ratios: NDArray[np.float64], coverage: float = COVERAGE) -> tuple[int, int]:
    """Return (low, high) in ten-thousandths: measured / predicted, float64[N], of unseen steps lies between with
    probability `coverage`. Fewer than 19 ratios give their extremes, spread by half their range on each side.

    >>> quantiles(np.linspace(0.9, 1.1, 1001))
    (9098, 10902)
    """
    ordered = np.sort(np.asarray(ratios, dtype=np.float64))
    n = ordered.size
    tail = (1 - coverage) / 2
    if (n + 1) * tail < 1:
        spread = (ordered[-1] - ordered[0]) / 2
        return max(int(np.floor((ordered[0] - spread) * SCALE)), 0), ceil((ordered[-1] + spread) * SCALE)
    # Between two order statistics along the straight line: with tens of ratios their steps are percents of coverage.
    low, high = np.interp([(n + 1) * tail - 1, (n + 1) * (1 - tail) - 1], np.arange(n), ordered)
    return int(np.floor(low * SCALE)), ceil(high * SCALE)


def bands(
    inside: Mapping[str, NDArray[np.float64]],
    outside: Mapping[str, NDArray[np.float64]],
    limits: Mapping[str, int],
    how: str,
) -> dict[str, Any]:
    """Return the `bands` object of a profile.

    inside, outside   by kind of step, measured / predicted float64[N] of unseen steps within and beyond the range
    limits            the largest of each measured quantity: tokens, context_tokens (a sequence)
    """
    return {
        "coverage_percent": round(100 * COVERAGE),
        "scale": SCALE,
        "limits": dict(limits),
        "in_range": _by_kind(inside),
        "out_of_range": _by_kind(outside),
        "how": how,
    }


def _by_kind(parts: Mapping[str, NDArray[np.float64]]) -> dict[str, list[int]]:
    known = {k: v for k, v in sorted(parts.items()) if v.size}
    if not known:
        return {}
    together = np.concatenate(list(known.values()))
    return {k: list(quantiles(v if v.size >= FEWEST else together)) for k, v in known.items()}


def interval_ps(
    band: Mapping[str, Any], kind: str, predicted_ps: int, tokens: int, context_tokens: int
) -> tuple[int, int] | None:
    """Return (low, high) in ps around a predicted step, or None where the profile states no band for it.

    tokens            of the step; context_tokens that one sequence holds (or a chunk follows)
    A kind without rows of its own takes the widest band there is.
    """
    limits = band.get("limits", {})
    beyond = tokens > limits.get("tokens", 0) or context_tokens > limits.get("context_tokens", 0)
    known = band.get("out_of_range" if beyond else "in_range") or band.get("in_range")
    if not known:
        return None
    low, high = known.get(kind) or (min(v[0] for v in known.values()), max(v[1] for v in known.values()))
    return predicted_ps * low // band["scale"], -(-predicted_ps * high // band["scale"])
