"""AdaEDL: stop drafting where an entropy-based lower bound of the acceptance falls below a threshold that adapts."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from traces import portable

_BOUND = 0.2  # of the entropy, in nats, under the root
_STEP = 0.01
_TARGET = 0.9


def width(draws: Sequence[float], mean_nats: float, threshold: float) -> int:
    """Return the tokens drafted before 1 - sqrt(0.2 H) < threshold, at least 1; H exponential from uniform draws.

    H exceeds x with probability exp(-x / mean), so no logarithm is taken.
    """
    limit_nats = max(1.0 - threshold, 0.0) ** 2 / _BOUND
    beyond = float(portable.exp(np.array([max(-limit_nats / mean_nats, -700.0)]))[0])
    for k, u in enumerate(draws):
        if u < beyond:
            return max(k, 1)
    return len(draws)


def learn(threshold: float, average: float, drafted: int, accepted: int) -> tuple[float, float]:
    """Return the threshold and the average acceptance after a step verified `drafted` tokens."""
    average = 0.5 * average + 0.5 * accepted / drafted
    moved = threshold
    if average < _TARGET:
        moved = threshold + _STEP
    elif accepted != drafted:
        moved = threshold - _STEP
    return 0.9 * threshold + 0.1 * moved, average
