"""Rank nobody."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from policies.api import BranchView, Candidate, CandidateDrafter, HostInfo


@dataclass(frozen=True)
class NoCandidates(CandidateDrafter[None]):
    """Proposes no outcome for any branch."""

    label = "no candidates"

    def new_state(self, host: HostInfo) -> None:
        """There is nothing to remember."""

    def propose(self, state: None, branch: BranchView, limit: int) -> Sequence[Candidate]:
        """Return no candidate."""
        return ()
