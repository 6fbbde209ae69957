"""Reuse value of a cache node from forecasts (PBKV equations 1 and 2), in fixed point.

Score(c) is a sum over workflows and agents of weights that depend on the forecast alone. The weights are rounded to
integers once, so that a score kept by adding and subtracting them never drifts, has the same value whatever the order
of events, and is monotone toward the root exactly.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

ONE = 1 << 40  # the weight of a certain hit at the next step


def reuse_weights(
    probability: NDArray[np.float32], horizon: int, gamma: float, *, survival: bool = True
) -> list[int]:
    """Return, for each agent, the discounted probability that a workflow runs it within `horizon` steps, times ONE.

    probability: float32[K, agents + 1], row k - 1 given survival to step k, last column END. The weight of agent a is
    the sum over k of gamma^(k-1) s^(k) P^(k)(a), with s^(k) the product of 1 - P^(j)(END) over j < k (equation 2); for
    horizon=1 it is P^(1)(a) (equation 1). survival=False leaves s out. Sums and products of doubles alone, in a fixed
    order: the same on every CPU.
    """
    agents = probability.shape[1] - 1
    total = [0.0] * agents
    factor = 1.0
    for row in probability[:horizon].tolist():
        for agent in range(agents):
            total[agent] += factor * row[agent]
        factor *= gamma
        if survival:
            factor *= max(1.0 - row[agents], 0.0)
        if factor == 0.0:
            break
    return [round(x * ONE) for x in total]


def masked(weights: list[int], agents: int) -> int:
    """Return the sum of the weights whose bit is set in `agents`: A_w(c) . v_w for the agents that read a node.

    >>> masked([5, 7, 11], 0b101)
    16
    """
    total = 0
    while agents:
        low = agents & -agents
        at = low.bit_length() - 1
        if at < len(weights):
            total += weights[at]
        agents ^= low
    return total
