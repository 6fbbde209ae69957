"""Forecast nothing."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from policies.api import HostInfo, Predictor, WorkflowView


@dataclass(frozen=True)
class NoForecast(Predictor[int]):
    """Makes no forecast; its state is the number of agents, which fixes the width of the empty answer."""

    label = "no forecast"

    def new_state(self, host: HostInfo) -> int:
        """Return the number of agents."""
        return len(host.agents)

    def active(self) -> bool:
        """Return False: there is never a forecast to pass on."""
        return False

    def forecast(self, state: int, workflow: WorkflowView) -> NDArray[np.float32]:
        """Return float32[0, agents + 1]: no step ahead."""
        return np.zeros((0, state + 1), dtype=np.float32)
