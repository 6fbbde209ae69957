"""How much of a mixture of experts one step reads: more tokens choose more of the experts.

A step of n tokens, each of which chooses k of E experts, reads E·(1 - (1 - k/E)^n) experts if choices are even.
Skewed routing reads fewer: with a share q of the choices on a share h of the experts, each group follows the
same law with its own rate. So verifying a few tokens a request is far from free at a small batch.
"""

from __future__ import annotations

from decimal import Context, Decimal

_DECIMAL = Context(prec=28)


def experts_read(tokens: int, experts: int, top_k: int, *, hot_share: float = 0.0) -> float:
    """Return the expected number of different experts that `tokens` tokens read, at most `experts`.

    hot_share   share of the choices that go to the busiest eighth of the experts beyond their even eighth;
                0 is even routing, 1 sends every choice there

    Taken in decimal arithmetic, whose digits do not depend on the CPU.

    >>> experts_read(1, 128, 8)
    8.0
    >>> round(experts_read(64, 128, 8), 2)
    125.94
    """
    if not 0 <= hot_share <= 1:
        raise ValueError(f"hot_share={hot_share}: expected 0 to 1")
    if not experts or tokens <= 0:
        return 0.0
    rate = Decimal(top_k) / Decimal(experts)
    hot = Decimal(experts) / 8
    share = Decimal(repr(hot_share))
    groups = ((hot, rate * (1 + 7 * share)), (experts - hot, rate * (1 - share)))
    read = Decimal(0)
    for size, p in groups:
        unread = _DECIMAL.power(1 - min(p, Decimal(1)), Decimal(tokens)) if p < 1 else Decimal(0)
        read += size * (1 - unread)
    return float(read)
