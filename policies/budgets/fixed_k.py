"""The same number of draft tokens for every request, whatever the batch."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from policies.api import BatchView, Budget, HostInfo, Proposals
from traces.errors import InputError


@dataclass(frozen=True)
class FixedK(Budget[None]):
    """Verifies the first k drafted tokens of each request: what engines do by default.

    k   tokens a request, at most
    """

    label = "fixed k"

    k: int = 5

    def __post_init__(self) -> None:
        if self.k < 0:
            raise InputError(f"k={self.k}: expected at least 0")

    def new_state(self, host: HostInfo) -> None:
        """There is nothing to remember."""

    def limit(self, state: None, batch: BatchView) -> int:
        """Return k."""
        return self.k

    def allocate(self, state: None, proposals: Proposals, batch: BatchView) -> NDArray[np.int32]:
        """Return int32[B]: k, or what was drafted if that is less."""
        return np.minimum(proposals.length, np.int32(self.k))
