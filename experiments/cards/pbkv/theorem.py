"""Appendix G on random instances: scores and victims of the served code against the paper's bounds."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from policies._pbkv_score import ONE, masked, reuse_weights
from traces import draws

TOLERANCE = 1e-5  # forecasts are float32


@dataclass(frozen=True)
class Outcome:
    """instances tried; how often each bound failed; the largest regret over its bound."""

    instances: int
    lipschitz_failures: int
    regret_failures: int
    largest_share: float


def check(instances: int) -> Outcome:
    """Return how lemma G.2 and theorem G.4 fare over random instances, keyed by their number."""
    lipschitz = regret = 0
    largest = 0.0
    for seed in range(instances):
        agents, workflows = 2 + _below(seed, "agents", 5), 1 + _below(seed, "workflows", 6)
        horizon, gamma = 1 + _below(seed, "horizon", 4), (0.3, 0.7, 0.9, 0.99)[_below(seed, "gamma", 4)]
        level = draws.uniform(seed, "theorem/level")
        true = [_rows(seed, "true", w, horizon, agents) for w in range(workflows)]
        guess = [
            ((1 - level) * t + level * _rows(seed, "other", w, horizon, agents)).astype(np.float32)
            for w, t in enumerate(true)
        ]
        masks = [
            [draws.bits(seed, "theorem/mask", c, w) % (1 << agents) for w in range(workflows)]
            for c in range(4 + _below(seed, "nodes", 14))
        ]
        discounts = gamma ** np.arange(horizon)
        error = [
            float((discounts * np.abs(t.astype(float) - g).sum(axis=1)).sum())
            for t, g in zip(true, guess, strict=True)
        ]
        scores, predicted = _scores(true, masks, horizon, gamma), _scores(guess, masks, horizon, gamma)
        factor = (1 - gamma**horizon) / (2 * (1 - gamma))
        near = np.array([factor * sum(e for e, m in zip(error, node, strict=True) if m) for node in masks])
        lipschitz += bool(np.any(np.abs(scores - predicted) > near + TOLERANCE))
        budget = 1 + _below(seed, "budget", len(masks) - 1)
        chosen, best = (set(np.argsort(s, kind="stable")[:budget].tolist()) for s in (predicted, scores))
        lost = float(scores[list(chosen)].sum() - scores[list(best)].sum())
        bound = float(near[list(chosen ^ best)].sum())
        regret += not -TOLERANCE <= lost <= bound + TOLERANCE
        if bound > TOLERANCE:
            largest = max(largest, lost / bound)
    return Outcome(instances, lipschitz, regret, largest)


def _scores(
    forecasts: list[NDArray[np.float32]], masks: list[list[int]], horizon: int, gamma: float
) -> NDArray[np.float64]:
    weights = [reuse_weights(p, horizon, gamma) for p in forecasts]
    return np.array([sum(masked(v, m) for v, m in zip(weights, node, strict=True)) / ONE for node in masks])


def _rows(seed: int, name: str, workflow: int, horizon: int, agents: int) -> NDArray[np.float32]:
    ids = np.arange(horizon * (agents + 1)).reshape(horizon, agents + 1)
    p = draws.uniform_array(seed, f"theorem/{name}", workflow, ids) ** 3 + 1e-6
    return np.asarray(p / p.sum(axis=1, keepdims=True), dtype=np.float32)


def _below(seed: int, name: str, n: int) -> int:
    return draws.bits(seed, f"theorem/{name}") % n
