"""Rank the menu at random: the negative control."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from policies._branch_ranking import Luck, options, ranked
from policies.api import BranchView, Candidate, CandidateDrafter, HostInfo


@dataclass(frozen=True)
class Random(CandidateDrafter[Luck]):
    """Every order of the menu is equally likely; nothing without a menu."""

    label = "random candidates"

    def new_state(self, host: HostInfo) -> Luck:
        """Return what draws."""
        return Luck(host)

    def propose(self, state: Luck, branch: BranchView, limit: int) -> Sequence[Candidate]:
        """Rank by draws that depend on the branch entry and the option."""
        return ranked(
            (
                (o, state.host.draw("random candidate", branch.workflow, branch.stage, *o))
                for o in options(branch)
            ),
            limit,
        )
