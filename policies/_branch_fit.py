"""Which fills fit the reservation budget, for gates that choose without a price."""

from __future__ import annotations

from collections.abc import Sequence

from policies.views import FillOption, LoadView


def fitting(
    options: Sequence[FillOption], order: Sequence[int], load: LoadView, most: int
) -> tuple[int, ...]:
    """Return at most `most` rows of `order`, in that order, that fit slots and KV together."""
    rows: list[int] = []
    slots, tokens = load.fills_max - load.fills, load.fill_kv_tokens_max - load.fill_kv_tokens
    for row in order:
        if len(rows) >= min(most, slots):
            break
        if options[row].kv_tokens <= tokens:
            rows.append(row)
            tokens -= options[row].kv_tokens
    return tuple(rows)
