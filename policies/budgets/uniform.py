"""The step's free tokens in equal parts."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from policies._budget_room import intensity_tokens, room_tokens
from policies.api import BatchView, Budget, HostInfo, Proposals
from traces.errors import InputError


@dataclass(frozen=True)
class Uniform(Budget[int]):
    """Gives every request floor(M(b) / b) tokens, M(b) = ai - b; what one does not use is lost.

    ai       tokens a step may have before it is compute-bound; 0: the profile's knee
    longest  most tokens a request is given
    """

    label = "uniform"

    ai: int = 256
    longest: int = 32

    def __post_init__(self) -> None:
        if self.ai < 0 or self.longest < 0:
            raise InputError(f"ai={self.ai}, longest={self.longest}: expected at least 0")

    def new_state(self, host: HostInfo) -> int:
        """Return AI in tokens."""
        return intensity_tokens(self.ai, host.profile)

    def limit(self, state: int, batch: BatchView) -> int:
        """Return the share of a request."""
        return min(room_tokens(state, batch.seqs) // max(batch.seqs, 1), self.longest)

    def allocate(self, state: int, proposals: Proposals, batch: BatchView) -> NDArray[np.int32]:
        """Return int32[B]: the share, or what was drafted if that is less."""
        return np.minimum(proposals.length, np.int32(self.limit(state, batch)))
