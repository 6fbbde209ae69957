"""How often what is asked for was asked for before, as more of it arrives."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from traces import draws

SIZES = (100, 200, 500, 1000, 2000, 5000)


def seen_before(
    groups: Sequence[Sequence[int]], sizes: Sequence[int] = SIZES, orders: int = 20
) -> dict[int, float]:
    """Return, for each size up to len(groups), the share of keys that an earlier one equals, mean of random orders.

    groups: keys of each workflow (or question); a key counts each time it stands there, also within its own group.
    The orders are draws keyed by their number: equal groups, equal shares.

    >>> seen_before([[1], [1], [2], [1]], sizes=(4,))
    {4: 0.5}
    """
    found = shares_by_order(groups, sizes, orders)
    return {size: round(sum(shares) / orders, 4) for size, shares in found.items()}


def shares_by_order(
    groups: Sequence[Sequence[int]], sizes: Sequence[int] = SIZES, orders: int = 20
) -> dict[int, list[float]]:
    """Return what `seen_before` is the mean of: for each size one share an order, rounded to 9 digits."""
    n = len(groups)
    wanted = sorted({s for s in sizes if s <= n} | {n})
    out: dict[int, list[float]] = {size: [] for size in wanted}
    for turn in range(orders):
        order = np.argsort(
            draws.bits_array(0, "recurrence/order", turn, np.arange(n)), kind="stable"
        ).tolist()
        seen: set[int] = set()
        mentions = repeats = 0
        for count, g in enumerate(order, start=1):
            for key in groups[g]:
                mentions += 1
                repeats += key in seen
                seen.add(key)
            if count in out:
                out[count].append(round(repeats / mentions, 9) if mentions else 0.0)
    return out
