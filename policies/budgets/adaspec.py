"""Draft tokens by acceptance: AdaSpec as AgentSpec's section 3.2 re-implements it."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from policies._budget_room import intensity_tokens, room_tokens
from policies.api import BatchView, Budget, HostInfo, Proposals
from traces.errors import InputError

_MICRO = 1_000_000


@dataclass(frozen=True)
class AdaSpec(Budget[int]):
    """Gives request i floor(M(b) a_i / sum a) tokens, a_i the moving average of its accepted share, M(b) = ai - b.

    AgentSpec says no more of its baseline than that it "assigns draft tokens based on per-request acceptance rates";
    the service-level objectives of Huang et al. 2026 are not part of it.

    ai       tokens a step may have before it is compute-bound; 0: the profile's knee
    longest  most tokens a request is given
    """

    label = "AdaSpec (acceptance shares)"
    source = "AgentSpec, section 3.2, after Huang et al. 2026"

    ai: int = 256
    longest: int = 32

    def __post_init__(self) -> None:
        if self.ai < 0 or self.longest < 0:
            raise InputError(f"ai={self.ai}, longest={self.longest}: expected at least 0")

    def new_state(self, host: HostInfo) -> int:
        """Return AI in tokens."""
        return intensity_tokens(self.ai, host.profile)

    def limit(self, state: int, batch: BatchView) -> int:
        """Return what the room and `longest` allow one request."""
        return min(room_tokens(state, batch.seqs), self.longest)

    def allocate(self, state: int, proposals: Proposals, batch: BatchView) -> NDArray[np.int32]:
        """Return int32[B]: shares by acceptance, at most what was drafted."""
        weight = np.rint(proposals.acceptance.astype(np.float64) * _MICRO).astype(np.int64)
        total = int(weight.sum())
        if not total:
            return np.zeros(len(weight), dtype=np.int32)
        share = np.minimum(room_tokens(state, batch.seqs) * weight // total, self.longest)
        return np.minimum(proposals.length, share).astype(np.int32)
