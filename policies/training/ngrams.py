"""Counts of what follows a context of agents, for every step ahead and every context length.

Kept apart from any policy, since Markov predictors and the transition matrix of the graph predictors count the
same thing.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

START = -2  # pads the context before a workflow's first agent; -1 is an agent the source does not name


class NgramCounts:
    """Counts by (step ahead, context). Methods marked so mutate.

    order: longest context. horizon: K. agents: A; outcome A is END. memo: what a predictor has made of these counts,
    by context; emptied when they change.
    """

    def __init__(self, order: int, horizon: int, agents: int) -> None:
        self.order = order
        self.horizon = horizon
        self.width = agents + 1
        self.memo: dict[tuple[int, ...], NDArray[np.float32]] = {}
        self._rows: dict[tuple[int, ...], NDArray[np.int64]] = {}

    def __len__(self) -> int:
        return len(self._rows)

    def add_agent(self, agents: tuple[int, ...]) -> None:
        """Count the last of `agents` as what followed the contexts before it. Mutates; O(horizon * order)."""
        outcome = agents[-1]
        if outcome >= 0:
            self.memo.clear()
            self._add(agents[:-1], outcome)

    def add_end(self, agents: tuple[int, ...]) -> None:
        """Count END after `agents`, a whole workflow. Mutates."""
        self.memo.clear()
        self._add(agents, self.width - 1)

    def add_sequence(self, agents: tuple[int, ...]) -> None:
        """Count a whole workflow. Mutates."""
        for t in range(1, len(agents) + 1):
            self.add_agent(agents[:t])
        self.add_end(agents)

    def row(self, context: tuple[int, ...]) -> NDArray[np.int64] | None:
        """Return int64[K, agents + 1] of what followed a context, None where it was never seen."""
        return self._rows.get(context)

    def context(self, agents: tuple[int, ...], length: int) -> tuple[int, ...]:
        """Return the last `length` agents, padded with START in front."""
        tail = agents[len(agents) - length :] if length <= len(agents) else agents
        return (START,) * (length - len(tail)) + tail

    def _add(self, before: tuple[int, ...], outcome: int) -> None:
        for k in range(min(self.horizon, len(before))):
            past = before[: len(before) - k]
            for length in range(self.order + 1):
                key = self.context(past, length)
                row = self._rows.get(key)
                if row is None:
                    row = self._rows[key] = np.zeros((self.horizon, self.width), dtype=np.int64)
                row[k, outcome] += 1
