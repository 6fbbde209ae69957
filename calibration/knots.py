"""Nine knots in log tokens: a correction curve on the smooth maximum, straight between knots, flat beyond.

Where kernels change tiles (64, 128, 256, 512 tokens) the knots are dense. Values are kept as whole ten-thousandths,
so that a profile made from them is the same on every machine.
"""

from __future__ import annotations

from decimal import Context, Decimal
from functools import cache

import numpy as np
from numpy.typing import ArrayLike, NDArray

KNOT_TOKENS = (1, 32, 64, 128, 256, 512, 1024, 4096, 16384)
SCALE = 10_000
_DECIMAL = Context(prec=28)


def hat(tokens: ArrayLike) -> NDArray[np.float64]:
    """Return float64[N, 9]: the weight of each knot at each token count (at least 1); rows sum to 1.

    For fits. Prices use `factor`, whose digits do not depend on the CPU.
    """
    x = np.log(np.maximum(np.asarray(tokens, dtype=np.float64), 1))
    at = np.log(np.array(KNOT_TOKENS, dtype=np.float64))
    return np.stack([np.interp(x, at, row) for row in np.eye(len(at))], axis=-1)


def factor(tokens: int, knots: tuple[int, ...]) -> float:
    """Return the multiplier at `tokens`: knots are ten-thousandths at KNOT_TOKENS; none at all is 1.

    >>> factor(256, (10000, 10000, 10000, 10000, 10500, 10000, 10000, 10000, 10000))
    1.05
    """
    if not knots:
        return 1.0
    if tokens >= KNOT_TOKENS[-1]:
        return knots[-1] / SCALE
    i = next(i for i in range(1, len(KNOT_TOKENS)) if tokens < KNOT_TOKENS[i])
    low, high = KNOT_TOKENS[i - 1], KNOT_TOKENS[i]
    share = _DECIMAL.divide(_ln(tokens) - _ln(low), _ln(high) - _ln(low))
    return float((knots[i - 1] + (knots[i] - knots[i - 1]) * share) / SCALE)


def interpolate(tokens: int, values: tuple[int, ...] | list[int]) -> int:
    """Return whole values at KNOT_TOKENS carried to `tokens`, straight in tokens, flat beyond; integers only."""
    if tokens >= KNOT_TOKENS[-1]:
        return values[-1]
    i = next(i for i in range(1, len(KNOT_TOKENS)) if tokens < KNOT_TOKENS[i])
    low, high = KNOT_TOKENS[i - 1], KNOT_TOKENS[i]
    return values[i - 1] + (values[i] - values[i - 1]) * (tokens - low) // (high - low)


@cache
def _ln(n: int) -> Decimal:
    return _DECIMAL.ln(Decimal(n))
