"""The truth: what the workflow runs next, from the host's oracle. An upper reference, no policy to deploy."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from policies.api import HostInfo, Predictor, WorkflowView
from policies.views import Oracle as Truth
from traces.errors import InputError


@dataclass(frozen=True)
class OracleForecast(Predictor[tuple[Truth]]):
    """One-hot rows of the agents that come after those released; its state holds the host's oracle.

    horizon   steps ahead
    """

    horizon: int = 3
    needs = frozenset({"oracle"})
    label = "oracle forecast"

    def __post_init__(self) -> None:
        if self.horizon < 1:
            raise InputError(f"horizon={self.horizon}, expected at least 1")

    def new_state(self, host: HostInfo) -> tuple[Truth]:
        """Return the host's oracle. Raises InputError where there is none."""
        if host.oracle is None:
            raise InputError("predictor=oracle: this host has no oracle")
        return (host.oracle,)

    def forecast(self, state: tuple[Truth], workflow: WorkflowView) -> NDArray[np.float32]:
        """Return float32[horizon, agents + 1] of zeros and ones. Does not mutate."""
        return state[0].forecast(workflow.workflow, self.horizon, len(workflow.agents))
