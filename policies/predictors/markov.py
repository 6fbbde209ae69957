"""What followed the last n agents before, backing off to shorter contexts where the longer were rarely seen.

Uses + - * / alone, so that every CPU computes the same forecast.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from policies.api import HostInfo, Predictor, Profile, WorkflowView
from policies.training import modelfile, tables
from policies.training.ngrams import NgramCounts
from traces.errors import InputError


@dataclass(frozen=True)
class Markov(Predictor[NgramCounts]):
    """Step k ahead is counted directly, among the workflows that got that far, rather than by chaining steps.

    Witten-Bell back-off: a context with n observations of d distinct outcomes keeps n / (n + d) of the mass, the
    rest goes to the context shortened by one; below the empty context lies the uniform distribution.

    order     agents of context, 1 to 3
    horizon   steps ahead
    model     counts of a trained model to start from; none: starts empty
    online    keeps counting while it serves
    """

    order: int = 3
    horizon: int = 3
    model: str | None = None
    online: bool = True
    label = "Markov forecast"
    source = "PBKV, appendix C (Markov-N baselines); Witten and Bell 1991, method C"

    def __post_init__(self) -> None:
        if not 1 <= self.order <= 3:
            raise InputError(f"order={self.order}, allowed: 1 to 3")
        if not 1 <= self.horizon <= 16:
            raise InputError(f"horizon={self.horizon}, allowed: 1 to 16")
        tables.check(self.model)

    def files(self) -> tuple[Path, ...]:
        """Return the model's files."""
        return tables.files(self.model)

    def new_state(self, host: HostInfo) -> NgramCounts:
        """Return the model's counts, or none. Raises InputError for a model that does not fit host or options."""
        state = NgramCounts(self.order, self.horizon, len(host.agents))
        if self.model is not None:
            tables.fill_counts(state, self.model, host.agents)
        return state

    def observe(self, state: NgramCounts, workflow: WorkflowView) -> None:
        """Count the newest agent. Mutates state."""
        if self.online:
            state.add_agent(workflow.agents)

    def workflow_finished(self, state: NgramCounts, workflow: WorkflowView) -> None:
        """Count the end. Mutates state."""
        if self.online:
            state.add_end(workflow.agents)

    def forecast(self, state: NgramCounts, workflow: WorkflowView) -> NDArray[np.float32]:
        """Return float32[horizon, agents + 1], read-only. Fills `state.memo`."""
        return self.forecasts(state, [workflow])[0]

    def forecasts(self, state: NgramCounts, workflows: Sequence[WorkflowView]) -> list[NDArray[np.float32]]:
        """Return the forecasts of a batch; each context among them is computed once. Fills `state.memo`."""
        memo = state.memo
        contexts = [state.context(workflow.agents, self.order) for workflow in workflows]
        fresh = [context for context in dict.fromkeys(contexts) if context not in memo]
        if fresh:
            p = self._computed(state, fresh)
            p.flags.writeable = False
            memo.update(zip(fresh, p, strict=True))
        return [memo[context] for context in contexts]

    def _computed(self, state: NgramCounts, contexts: list[tuple[int, ...]]) -> NDArray[np.float32]:
        """Return float32[contexts, horizon, agents + 1]. A context never seen leaves the shorter one's estimate."""
        p = np.full((len(contexts), self.horizon, state.width), 1 / state.width)
        unseen = np.zeros((self.horizon, state.width), dtype=np.int64)
        for length in range(self.order + 1):
            rows = [state.row(context[self.order - length :]) for context in contexts]
            row = np.stack([unseen if r is None else r for r in rows])
            distinct = (row > 0).sum(axis=2, keepdims=True)
            total = row.sum(axis=2, keepdims=True) + distinct
            p = np.where(total > 0, (row + distinct * p) / np.maximum(total, 1), p)
        return p.astype(np.float32)

    def cost_ps(self, profile: Profile, workflows: int) -> int:
        """Return what `train --measure` found for the model, in ps; 0 without one."""
        return modelfile.cost_ps(self.model, workflows)
