"""The likeliest draft tokens of the whole batch, as many as the step has room for."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from policies._budget_room import intensity_tokens, room_tokens
from policies.api import BatchView, Budget, HostInfo, Proposals
from traces.errors import InputError


@dataclass(frozen=True)
class Tetris(Budget[int]):
    """Verifies the M(b) = ai - b tokens with the highest probability that they and all before them are accepted.

    Such a probability never grows along a draft, so the best tokens are heads of drafts. Equal ones go by place in the
    draft, then in the batch. Expected accepted tokens are the most that so many tokens can give (Wu et al. 2025).

    ai       tokens a step may have before it is compute-bound; 0: the profile's knee
    longest  most tokens a request is asked to draft
    """

    label = "TETRIS"
    source = "Wu et al. 2025"

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
        """Return int32[B]; its sum is the room, or all that was drafted if that is less."""
        length = proposals.length
        if not len(length):
            return np.zeros(0, dtype=np.int32)
        row = np.repeat(np.arange(len(length)), length)
        place = np.arange(len(row)) - np.repeat(np.cumsum(length) - length, length)
        confidence = np.concatenate(
            [d.confidence[:n] for d, n in zip(proposals.drafts, length.tolist(), strict=True)]
        )
        best = np.lexsort((row, place, -confidence))[: room_tokens(state, batch.seqs)]
        return np.bincount(row[best], minlength=len(length)).astype(np.int32)
