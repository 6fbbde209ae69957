"""The space of rectangular decode steps: B sequences of d new tokens each."""

from __future__ import annotations

from policies.views import BatchShape
from traces.errors import InputError

_D_MAX = 64


def check_width(d_max: int) -> None:
    """Raise InputError for a widest query that no engine has."""
    if not 1 <= d_max <= _D_MAX:
        raise InputError(f"d_max={d_max}: expected from 1 to {_D_MAX} new tokens a sequence")


def fits(shape: BatchShape, d_max: int) -> bool:
    """Say whether graphs of pure decode steps with at most `d_max` new tokens a sequence can run the step."""
    return shape.prefill_seqs == 0 and shape.rectangle_tokens <= shape.decode_seqs * d_max


def distinct_products(seqs_max: int, d_max: int) -> tuple[int, ...]:
    """Return the distinct B d for 1 <= B <= seqs_max and 1 <= d <= d_max, ascending.

    >>> len(distinct_products(16, 8)), distinct_products(16, 8)[-1]
    (64, 128)
    """
    return tuple(sorted({b * d for b in range(1, seqs_max + 1) for d in range(1, d_max + 1)}))


def geometric_widths(tokens_max: int, buckets: int) -> tuple[int, ...]:
    """Return `buckets` widths up to `tokens_max` in geometric steps, whole numbers, ascending, without repeats.

    Width i of K is the least n with n^K >= tokens_max^i, in integers, so that every machine has the same.

    >>> geometric_widths(128, 1), geometric_widths(128, 4), geometric_widths(2, 3)
    ((128,), (4, 12, 39, 128), (2,))
    """
    out = []
    for i in range(1, buckets + 1):
        bound = tokens_max**i
        low, high = 1, tokens_max
        while low < high:
            middle = (low + high) // 2
            if middle**buckets >= bound:
                high = middle
            else:
                low = middle + 1
        out.append(low)
    return tuple(sorted(set(out)))
