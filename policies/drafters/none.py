"""Decode one token a step."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from policies.api import Draft, Drafter, HostInfo

_EMPTY = Draft(tokens=np.zeros(0, dtype=np.uint32), confidence=np.zeros(0, dtype=np.float32))


@dataclass(frozen=True)
class NoDrafts(Drafter[None]):
    """Proposes nothing; the host may fast-forward decoding."""

    label = "no drafts"

    def new_state(self, host: HostInfo) -> None:
        """There is nothing to remember."""

    def active(self) -> bool:
        """Return False: this drafter never drafts."""
        return False

    def propose(self, state: None, request: int, limit: int) -> Draft:
        """Return the empty draft."""
        return _EMPTY
