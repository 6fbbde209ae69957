"""Verifying several tokens a sequence: what a step of n tokens costs beside a step of one, and its attention.

Two regimes of attention are kept apart because no public measurement decides between them. Packed: the query heads
that share a KV head fill a tile together and KV is read once a tile. Prefill kernel: time grows with each query;
one public case is 4.5 times at 16 queries over 4,096 tokens, which gives the growth. Until a profile is measured
(kind "verify" rows), every speculative result is shown under both.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from calibration.models import Shard
from policies.costs import VERIFY_REGIMES, Profile

_PACKED_ROWS = 64  # rows of a decode kernel's query tile: an assumption
_GROWTH_PERMILLE = 233  # (4.5 - 1) / 15
KNEE = 1.2


def verify_prior(shard: Shard) -> dict[str, Any]:
    """Return the `verify` object of a profile whose verification attention nobody measured."""
    group = max(shard.heads // shard.kv_heads, 1)
    return {
        "regime": "packed",
        "group": group,
        # One query's heads are one tile, which the price of a context token holds, even where they are over 64.
        "packed_rows": max(_PACKED_ROWS, group),
        "growth_permille": _GROWTH_PERMILLE,
        "source": "assumed: tile of 64 rows; growth from one public case, 4.5 x at 16 queries, 4,096 tokens",
    }


def both_regimes(profile: Profile) -> dict[str, Profile]:
    """Return the profile under each regime of verification attention, by the regime's name."""
    return {r: replace(profile, verify={**profile.verify, "regime": r}) for r in VERIFY_REGIMES}


def relative(profile: Profile, widths: Sequence[int]) -> list[float]:
    """Return t(n)/t(1) of the token-dependent part for each width n (kernels only, no engine, no attention)."""
    one = profile.linear_ps_at(1)
    return [profile.linear_ps_at(n) / one for n in widths]


def knee(profile: Profile, times: float = KNEE, limit: int = 4096) -> int:
    """Return the widest step, in tokens, whose linear layers cost at most `times` those of one token."""
    budget = int(times * profile.linear_ps_at(1))
    low, high = 1, limit
    while low < high:
        middle = (low + high + 1) // 2
        low, high = (middle, high) if profile.linear_ps_at(middle) <= budget else (low, middle - 1)
    return low


def knee_of_points(tokens: Sequence[int], times_one: Sequence[float], times: float = KNEE) -> float:
    """Return where a measured curve t(n)/t(1), made monotone from the right, last crosses `times`."""
    curve = np.minimum.accumulate(np.asarray(times_one, dtype=np.float64)[::-1])[::-1]
    return float(np.interp(times, curve, np.asarray(tokens, dtype=np.float64)))
