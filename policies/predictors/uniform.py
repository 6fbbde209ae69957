"""Every agent is as likely as any other: what is left of a score is how many workflows touch a node."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from policies.api import HostInfo, Predictor, WorkflowView
from traces.errors import InputError


@dataclass(frozen=True)
class Uniform(Predictor[int]):
    """The uniform distribution over agents at every step; its state is the number of agents.

    horizon   steps ahead
    end       END is one of the outcomes (it has no mass otherwise)
    """

    horizon: int = 3
    end: bool = False
    label = "uniform forecast"
    source = "PBKV, section 5.3 and appendix E: the uniform distribution of the noise sweep"

    def __post_init__(self) -> None:
        if self.horizon < 1:
            raise InputError(f"horizon={self.horizon}, expected at least 1")

    def new_state(self, host: HostInfo) -> int:
        """Return the number of agents."""
        return len(host.agents)

    def forecast(self, state: int, workflow: WorkflowView) -> NDArray[np.float32]:
        """Return float32[horizon, agents + 1], all rows alike. Does not mutate."""
        outcomes = state + 1 if self.end or state == 0 else state  # without agents only END is left
        row = np.zeros(state + 1, dtype=np.float32)
        row[:outcomes] = 1 / outcomes
        return np.tile(row, (self.horizon, 1))
