"""Another predictor's forecast mixed with the uniform distribution: what prediction errors cost."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from policies.api import HostInfo, Predictor, Profile, WorkflowView
from policies.training.inner import load_inner
from traces.errors import InputError


@dataclass(frozen=True)
class Noise(Predictor[Any]):
    """(1 - level) P + level U, P the inner predictor's rows (PBKV equation 5).

    U is uniform over agents and scaled to the mass that P gives them, so that P(END) stays as it was: the paper
    does not say whether U holds END.

    inner     the predictor disturbed, built in or installed: `markov`, `markov(order=1)`, `graphsage(model=F)`
    level     lambda, 0 (nothing changes) to 1 (the agents are uniform)
    end       U holds END as one more outcome
    """

    inner: str = "markov"
    level: float = 0.2
    end: bool = False
    label = "noisy forecast"
    source = "PBKV, equation 5"

    def __post_init__(self) -> None:
        if not 0 <= self.level <= 1:
            raise InputError(f"level={self.level}, allowed: 0 to 1")
        # `needs` and `reads_text` are the inner predictor's: a host asks this object.
        inner = load_inner(self.inner, self)
        object.__setattr__(self, "needs", inner.needs)
        object.__setattr__(self, "reads_text", inner.reads_text)

    def files(self) -> tuple[Path, ...]:
        """Return the inner predictor's files."""
        return load_inner(self.inner, self).files()

    def active(self) -> bool:
        """Say what the inner predictor says."""
        return load_inner(self.inner, self).active()

    def new_state(self, host: HostInfo) -> Any:
        """Return (inner predictor, its state)."""
        inner = load_inner(self.inner, self)
        return inner, inner.new_state(host)

    def observe(self, state: Any, workflow: WorkflowView) -> None:
        """Pass the event on. Mutates state."""
        state[0].observe(state[1], workflow)

    def workflow_finished(self, state: Any, workflow: WorkflowView) -> None:
        """Pass the event on. Mutates state."""
        state[0].workflow_finished(state[1], workflow)

    def forecast(self, state: Any, workflow: WorkflowView) -> NDArray[np.float32]:
        """Return float32[K, agents + 1], K as the inner predictor's."""
        return self._mixed(state[0].forecast(state[1], workflow))

    def forecasts(self, state: Any, workflows: Sequence[WorkflowView]) -> list[NDArray[np.float32]]:
        """Return the inner predictor's batch, mixed."""
        return [self._mixed(p) for p in state[0].forecasts(state[1], workflows)]

    def _mixed(self, p: NDArray[np.float32]) -> NDArray[np.float32]:
        agents = p.shape[1] - 1
        uniform = np.zeros_like(p)
        if self.end or agents == 0:
            uniform[:] = np.float32(1 / (agents + 1))
        else:
            uniform[:, :agents] = (1 - p[:, agents:]) / np.float32(agents)
            uniform[:, agents] = p[:, agents]
        level = np.float32(self.level)
        return cast("NDArray[np.float32]", (1 - level) * p + level * uniform)

    def cost_ps(self, profile: Profile, workflows: int) -> int:
        """Return the inner predictor's cost in ps: mixing is not what a server would do."""
        return load_inner(self.inner, self).cost_ps(profile, workflows)
