"""What followed the last n agents before, backing off to shorter contexts where the longer were rarely seen.

Uses + - * / alone, so that every CPU computes the same forecast.
"""

from __future__ import annotations

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
        """Return float32[horizon, agents + 1]. Does not mutate."""
        p = np.full((self.horizon, state.width), 1 / state.width)
        for length in range(self.order + 1):
            row = state.row(state.context(workflow.agents, length))
            if row is None:
                break  # a longer context was seen even less
            distinct = (row > 0).sum(axis=1, keepdims=True)
            total = row.sum(axis=1, keepdims=True) + distinct
            p = np.where(total > 0, (row + distinct * p) / np.maximum(total, 1), p)
        return p.astype(np.float32)

    def cost_ps(self, profile: Profile, workflows: int) -> int:
        """Return what `train --measure` found for the model, in ps; 0 without one."""
        return modelfile.cost_ps(self.model, workflows)
