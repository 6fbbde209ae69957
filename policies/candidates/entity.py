"""Rank the entities named in what was read last (DynBranch's ReAct predictor)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from policies._branch_ranking import options, ranked
from policies.api import BranchView, Candidate, CandidateDrafter, HostInfo


@dataclass(frozen=True)
class Entity(CandidateDrafter[None]):
    """Open vocabulary: candidates come from the passage already read; only branches that have one get any.

    kind   which of the workload's scores to rank by
    """

    kind: str = "entity"

    label = "entity ranking"
    source = "DynBranch section 2.1"

    def new_state(self, host: HostInfo) -> None:
        """There is nothing to learn."""

    def propose(self, state: None, branch: BranchView, limit: int) -> Sequence[Candidate]:
        """Rank the entities by score; nothing before a passage has been read."""
        return ranked(zip(options(branch), branch.scores.get(self.kind, ()), strict=False), limit)
