"""Rank by how similar an option's description is to the request."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from policies._branch_ranking import options, ranked
from policies.api import BranchView, Candidate, CandidateDrafter, HostInfo


@dataclass(frozen=True)
class Retrieval(CandidateDrafter[None]):
    """Scores computed once, at import, where the text is: tf-idf over descriptions of functions.

    kind   which of the workload's scores to rank by
    """

    kind: str = "retrieval"

    label = "retrieval"
    source = "DynBranch sections 2.1 and 3.2; targets R3"

    def new_state(self, host: HostInfo) -> None:
        """There is nothing to learn."""

    def propose(self, state: None, branch: BranchView, limit: int) -> Sequence[Candidate]:
        """Rank the menu by score; nothing where the workload has no such score."""
        return ranked(zip(options(branch), branch.scores.get(self.kind, ()), strict=False), limit)
