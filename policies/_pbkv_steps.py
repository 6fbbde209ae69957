"""Steps until an agent runs: along a graph of transitions seen so far, or by a forecast (KVFlow, section 4.2)."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

UNIT = 1 << 20  # one step, where steps are averaged
FAR = 1 << 60  # the agent will not run


class StepGraph:
    """Transitions between agents, counted over all workflows. Mutated by `observe`; `steps` fills a table.

    A transition between requests that overlap in time counts in the order of their accesses.
    """

    __slots__ = ("_agents", "_counts", "_expected", "_fresh", "_horizon", "_seen", "_table")

    def __init__(self, agents: int, horizon: int, *, expected: bool) -> None:
        self._agents = agents
        self._horizon = horizon
        self._expected = expected
        self._counts = np.zeros((agents, agents), dtype=np.int64)
        self._seen = 0
        self._fresh = 0
        self._table: list[list[int]] | None = None

    def observe(self, agent: int, following: int) -> bool:
        """Count a transition; True when distances may have changed.

        Shortest distances change with a new edge only. Expected ones are estimated anew whenever the transitions have
        grown by an eighth, so that all estimates together cost O(log transitions) tables.
        """
        if not (0 <= agent < self._agents and 0 <= following < self._agents):
            return False
        new = self._counts[agent, following] == 0
        self._counts[agent, following] += 1
        self._seen += 1
        if not new and not (self._expected and self._seen * 8 >= self._fresh * 9):
            return False
        self._fresh = self._seen
        self._table = None
        return True

    def steps(self, current: int) -> list[int]:
        """Return the steps from an agent to each agent, in units of UNIT; FAR for those that are not reached."""
        if not 0 <= current < self._agents:
            return [FAR] * self._agents
        if self._table is None:
            self._table = self._mean_first() if self._expected else self._fewest()
        return self._table[current]

    def _fewest(self) -> list[list[int]]:
        """Breadth first from every agent; an agent is reached again at the length of its shortest cycle."""
        following = [np.flatnonzero(row).tolist() for row in self._counts]
        table = []
        for start in range(self._agents):
            found = [FAR] * self._agents
            ring, steps = following[start], 1
            while ring:
                ring = [a for a in dict.fromkeys(ring) if found[a] == FAR]
                for agent in ring:
                    found[agent] = steps * UNIT
                ring = [b for a in ring for b in following[a]]
                steps += 1
            table.append(found)
        return table

    def _mean_first(self) -> list[list[int]]:
        """Mean of the first step at which the chain is at an agent, cut at horizon + 1; FAR where it never is.

        first[i, a] at step k is the probability that a is met first at step k, from i. Sums of products elementwise,
        in a fixed order: a matrix product may differ between CPUs in the last bit.
        """
        total = self._counts.sum(axis=1, keepdims=True)
        chain = self._counts / np.maximum(total, 1)
        first = chain.copy()
        mean = np.zeros_like(chain)
        met = np.zeros_like(chain)
        for k in range(1, self._horizon + 1):
            mean += k * first
            met += first
            onward = np.zeros_like(chain)
            for j in range(self._agents):
                step = chain[:, j : j + 1] * first[j]
                step[:, j] = 0.0  # a was met at j already
                onward += step
            first = onward
        mean += (self._horizon + 1) * (1.0 - met)
        return [
            [round(x * UNIT) if p > 0 else FAR for x, p in zip(row, seen, strict=True)]
            for row, seen in zip(mean.tolist(), met.tolist(), strict=True)
        ]


def forecast_steps(probability: NDArray[np.float32], likely: float, *, expected: bool) -> list[int]:
    """Return the steps to each agent by a forecast, float32[K, agents + 1], in units of UNIT; FAR beyond it.

    expected=False: the first step at which the agent's probability, given survival, reaches `likely`. expected=True:
    the mean first step, K + 1 where it is not met, steps taken as independent (a forecast has no joint distribution),
    FAR for what the forecast excludes.
    """
    rows = probability.tolist()
    out = []
    for agent in range(probability.shape[1] - 1):
        if not expected:
            out.append(next(((k + 1) * UNIT for k, row in enumerate(rows) if row[agent] >= likely), FAR))
            continue
        mean, left, alive, possible = 0.0, 1.0, 1.0, False
        for k, row in enumerate(rows):
            now = min(alive * row[agent], 1.0) * left
            mean += (k + 1) * now
            left -= now
            alive *= max(1.0 - row[-1], 0.0)
            possible = possible or now > 0
        out.append(round((mean + (len(rows) + 1) * left) * UNIT) if possible else FAR)
    return out
