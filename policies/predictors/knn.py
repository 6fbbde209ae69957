"""What followed the most similar prefixes seen before. Whole-number distances: every CPU finds the same neighbours."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from policies.api import HostInfo, Predictor, Profile, WorkflowView
from policies.training import modelfile, tables
from policies.training.ngrams import START, NgramCounts
from traces.errors import InputError


class Neighbours(NgramCounts):
    """Counts by the last `window` agents alone, with the contexts as one matrix to measure distances in."""

    def __init__(self, window: int, horizon: int, agents: int, prefixes_max: int) -> None:
        super().__init__(window, horizon, agents)
        self._max = prefixes_max
        self._keys = np.full((64, window), START, dtype=np.int32)
        self._weight = np.arange(1, window + 1)

    def _add(self, before: tuple[int, ...], outcome: int) -> None:
        for k in range(min(self.horizon, len(before))):
            key = self.context(before[: len(before) - k], self.order)
            row = self._rows.get(key)
            if row is None:
                if len(self._rows) == self._max:
                    continue
                row = self._place(key, np.zeros((self.horizon, self.width), dtype=np.int64))
            row[k, outcome] += 1

    def _place(self, key: tuple[int, ...], row: NDArray[np.int64]) -> NDArray[np.int64]:
        n = len(self._rows)
        if n == len(self._keys):
            self._keys = np.vstack([self._keys, np.full_like(self._keys, START)])
        self._keys[n] = key
        self._rows[key] = row
        return row

    def vote(self, agents: tuple[int, ...], neighbours: int) -> NDArray[np.int64]:
        """Return int64[K, agents + 1]: outcomes after the nearest prefixes, at least `neighbours` for each step.

        Prefixes at one distance vote together, so that order of arrival decides nothing; a step no prefix has an
        outcome for is all zero.
        """
        n = len(self._rows)
        out = np.zeros((self.horizon, self.width), dtype=np.int64)
        if n == 0:
            return out
        wanted = np.array(self.context(agents, self.order), dtype=np.int32)
        distance = (self._keys[:n] != wanted) @ self._weight
        rows = list(self._rows.values())
        order = np.argsort(distance, kind="stable")
        i = 0
        while i < n:
            short = out.sum(axis=1) < neighbours
            if not short.any():
                break
            near = distance[order[i]]
            while i < n and distance[order[i]] == near:
                out[short] += rows[order[i]][short]
                i += 1
        return out


@dataclass(frozen=True)
class Knn(Predictor[Neighbours]):
    """Outcomes after the nearest prefixes, by a Hamming distance in which a newer agent weighs more.

    The agent at distance i from the newest of `window` weighs window - i. The votes are smoothed by one vote spread
    over all outcomes.

    neighbours     observations that vote, at least
    window         agents compared
    horizon        steps ahead
    model          prefixes of a trained model to start from; none: starts empty
    online         keeps learning while it serves
    prefixes_max   distinct prefixes kept; the first ones stay
    """

    neighbours: int = 5
    window: int = 8
    horizon: int = 3
    model: str | None = None
    online: bool = True
    prefixes_max: int = 4096
    label = "kNN forecast"
    source = "PBKV, appendix C (kNN baseline; its distance is not stated)"

    def __post_init__(self) -> None:
        for name, low, high in (
            ("neighbours", 1, 1000), ("window", 1, 64), ("horizon", 1, 16), ("prefixes_max", 1, 1 << 20),
        ):  # fmt: skip
            if not low <= getattr(self, name) <= high:
                raise InputError(f"{name}={getattr(self, name)}, allowed: {low} to {high}")
        tables.check(self.model)

    def files(self) -> tuple[Path, ...]:
        """Return the model's files."""
        return tables.files(self.model)

    def new_state(self, host: HostInfo) -> Neighbours:
        """Return the model's prefixes, or none. Raises InputError for a model that does not fit."""
        state = Neighbours(self.window, self.horizon, len(host.agents), self.prefixes_max)
        if self.model is not None:
            tables.fill_counts(state, self.model, host.agents)
        return state

    def observe(self, state: Neighbours, workflow: WorkflowView) -> None:
        """Learn what followed. Mutates state."""
        if self.online:
            state.add_agent(workflow.agents)

    def workflow_finished(self, state: Neighbours, workflow: WorkflowView) -> None:
        """Learn the end. Mutates state."""
        if self.online:
            state.add_end(workflow.agents)

    def forecast(self, state: Neighbours, workflow: WorkflowView) -> NDArray[np.float32]:
        """Return float32[horizon, agents + 1], read-only. Fills `state.memo`."""
        context = state.context(workflow.agents, self.window)
        known = state.memo.get(context)
        if known is None:
            votes = state.vote(workflow.agents, self.neighbours)
            p: NDArray[np.float64] = (votes + 1 / state.width) / (votes.sum(axis=1, keepdims=True) + 1)
            known = state.memo[context] = p.astype(np.float32)
            known.flags.writeable = False
        return known

    def cost_ps(self, profile: Profile, workflows: int) -> int:
        """Return what `train --measure` found for the model, in ps; 0 without one."""
        return modelfile.cost_ps(self.model, workflows)
