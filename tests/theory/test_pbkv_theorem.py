"""Appendix G of PBKV on random instances: what Score means, how it moves with the forecast, what errors can cost.

Scores come from the code that serves (`reuse_weights`, `masked`), victims from the evictor itself.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import combinations, product

import numpy as np
import pytest
from numpy.typing import NDArray

from policies._pbkv_score import ONE, masked, reuse_weights
from policies.api import Access, Forecast, HostInfo
from policies.evictors.lookahead import Lookahead
from policies.laws import toy_host
from traces import draws

TOLERANCE = 1e-5  # float32 forecasts


@dataclass
class Leaf:
    """A cache node of one unit, beside all others."""

    id: int
    identity: int = 0
    tokens: int = 16
    depth_tokens: int = 16
    parent: None = None
    created_ns: int = 0
    last_access_ns: int = 0


class Instance:
    """Workflows with a true and a predicted forecast each, and nodes with their readers; all from one seed."""

    def __init__(self, seed: int) -> None:
        def below(name: str, n: int) -> int:
            return draws.bits(seed, name) % n

        self.seed = seed
        self.agents = 2 + below("agents", 4)
        self.workflows = 1 + below("workflows", 5)
        self.horizon = 1 + below("horizon", 4)
        self.gamma = (0.3, 0.7, 0.9, 0.99)[below("gamma", 4)]
        noise = (0.0, 0.1, 0.5, 1.0)[below("noise", 4)]
        self.true = [self._rows("true", w) for w in range(self.workflows)]
        self.predicted = [
            ((1 - noise) * p + noise * self._rows("other", w)).astype(np.float32)
            for w, p in enumerate(self.true)
        ]
        self.readers: list[dict[int, int]] = []
        for c in range(6 + below("nodes", 12)):
            masks = {
                w: draws.bits(seed, "mask", c, w) % (1 << self.agents)
                for w in range(self.workflows)
                if draws.uniform(seed, "reads", c, w) < 0.5
            }
            self.readers.append({w: m for w, m in masks.items() if m} or {0: 1})

    def _rows(self, purpose: str, workflow: int) -> NDArray[np.float32]:
        n = self.horizon * (self.agents + 1)
        raw = draws.uniform_array(self.seed, purpose, workflow, np.arange(n)).reshape(self.horizon, -1) ** 3
        out: NDArray[np.float32] = (raw / raw.sum(axis=1, keepdims=True)).astype(np.float32)
        return out

    def scores(self, rows: list[NDArray[np.float32]]) -> NDArray[np.float64]:
        weights = [reuse_weights(p, self.horizon, self.gamma) for p in rows]
        return np.array([sum(masked(weights[w], m) for w, m in r.items()) / ONE for r in self.readers])

    def errors(self) -> NDArray[np.float64]:
        """Equation 7: the discounted l1 error of the workflows that read each node."""
        discount = self.gamma ** np.arange(self.horizon)
        by_workflow = [
            float(discount @ np.abs(p.astype(np.float64) - q).sum(axis=1))
            for p, q in zip(self.true, self.predicted, strict=True)
        ]
        return np.array([sum(by_workflow[w] for w in r) for r in self.readers])

    @property
    def factor(self) -> float:
        return (1 - self.gamma**self.horizon) / (2 * (1 - self.gamma))

    def victims(self, count: int, host: HostInfo) -> set[int]:
        """Let the evictor, given the predicted forecasts, remove `count` nodes."""
        policy = Lookahead(horizon=self.horizon, gamma=self.gamma)
        state = policy.new_state(host)
        leaves = [Leaf(c) for c in range(len(self.readers))]
        for leaf, readers in zip(leaves, self.readers, strict=True):
            reads = [
                Access(0, w, 0, a) for w, mask in readers.items() for a in range(self.agents) if mask >> a & 1
            ]
            policy.insert(state, leaf, reads[0])
            for read in reads[1:]:
                policy.hit(state, leaf, read)
            policy.release(state, leaf, 0)
        for w, p in enumerate(self.predicted):
            policy.forecast(state, Forecast(w, 0, p))
        out = set()
        for _ in range(count):
            node = policy.next_victim(state, 0)
            assert node is not None
            policy.remove(state, node)
            out.add(node.id)
        return out


SEEDS = range(60)


@pytest.mark.parametrize("seed", range(12))
def test_lemma_g1_score_is_the_expected_discounted_misses_of_an_evicted_node(seed: int) -> None:
    instance = Instance(seed)
    end = instance.agents
    expected = np.zeros(len(instance.readers))
    for w, p in enumerate(instance.true):
        rows = p.astype(np.float64)
        for path in product(range(end + 1), repeat=instance.horizon):
            stop = path.index(end) if end in path else instance.horizon
            if any(agent != end for agent in path[stop:]):
                continue  # nothing runs after the end
            likely = float(np.prod([rows[k, agent] for k, agent in enumerate(path[: stop + 1])]))
            for c, readers in enumerate(instance.readers):
                mask = readers.get(w, 0)
                for k in range(stop):
                    expected[c] += likely * instance.gamma**k * (mask >> path[k] & 1)
    assert np.allclose(instance.scores(instance.true), expected, atol=TOLERANCE)


@pytest.mark.parametrize("seed", SEEDS)
def test_lemma_g2_score_is_lipschitz_in_the_forecast(seed: int) -> None:
    instance = Instance(seed)
    moved = np.abs(instance.scores(instance.true) - instance.scores(instance.predicted))
    assert np.all(moved <= instance.factor * instance.errors() + TOLERANCE)


@pytest.mark.parametrize("seed", SEEDS)
def test_corollary_g3_a_clear_preference_survives_small_errors(seed: int) -> None:
    instance = Instance(seed)
    true, predicted, error = (
        instance.scores(instance.true),
        instance.scores(instance.predicted),
        instance.errors(),
    )
    for a, b in combinations(range(len(true)), 2):
        low, high = (a, b) if true[a] < true[b] else (b, a)
        if instance.factor * (error[a] + error[b]) + TOLERANCE < true[high] - true[low]:
            assert predicted[high] > predicted[low]


@pytest.mark.parametrize("seed", SEEDS)
def test_theorem_g4_regret_is_not_negative_and_within_the_bound(seed: int) -> None:
    instance = Instance(seed)
    true, predicted, error = (
        instance.scores(instance.true),
        instance.scores(instance.predicted),
        instance.errors(),
    )
    for count in (1, len(true) // 3, len(true) // 2):
        chosen = instance.victims(count, toy_host())
        best = set(np.argsort(true, kind="stable")[:count].tolist())
        regret = sum(true[c] for c in chosen) - sum(true[c] for c in best)
        apart = sorted(chosen ^ best)
        deltas = sum(abs(true[c] - predicted[c]) for c in apart)
        assert regret >= -TOLERANCE
        assert regret <= deltas + TOLERANCE
        assert deltas <= instance.factor * sum(error[c] for c in apart) + TOLERANCE
        if np.array_equal(instance.true, instance.predicted):
            assert regret <= TOLERANCE


def test_the_instances_do_exercise_the_theorem() -> None:
    regrets, noisy = 0, 0
    for seed in SEEDS:
        instance = Instance(seed)
        true = instance.scores(instance.true)
        count = len(true) // 2
        chosen = instance.victims(count, toy_host())
        regrets += sum(true[c] for c in chosen) > np.sort(true)[:count].sum() + 1e-3
        noisy += not np.array_equal(instance.true, instance.predicted)
    assert regrets > 10
    assert 0 < noisy < len(SEEDS)
