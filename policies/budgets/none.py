"""Give no draft token to anyone."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from policies.api import BatchView, Budget, HostInfo, Proposals


@dataclass(frozen=True)
class NoBudget(Budget[None]):
    """Verifies no drafted token, whatever is proposed."""

    label = "no draft tokens"

    def new_state(self, host: HostInfo) -> None:
        """There is nothing to remember."""

    def allocate(self, state: None, proposals: Proposals, batch: BatchView) -> NDArray[np.int32]:
        """Return int32[B] zeros."""
        return np.zeros(len(proposals.length), dtype=np.int32)
