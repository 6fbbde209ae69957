"""OPT-Tree, as a path: draft on while the next token's weight is worth more than a threshold."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from traces import portable

_LN_DELTA = -0.6931471805599453  # of 0.5


def width(draws: Sequence[float], mean_nats: float) -> int:
    """Return the depth at which the product of draft probabilities falls to 0.5 or below, at least 1.

    The probability of a drafted token is exp(-H), H exponential with the given mean, that is u^mean for a uniform u:
    the product of p over the path is compared through the product of the draws with 0.5^(1 / mean). A tree of several
    nodes a layer grows alike, on the sum of its layer's weights; here it has one.
    """
    floor = float(portable.exp(np.array([max(_LN_DELTA / mean_nats, -700.0)]))[0])
    product = 1.0
    for k, u in enumerate(draws):
        product *= u
        if product <= floor:
            return max(k, 1)
    return len(draws)
