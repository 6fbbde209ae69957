"""The ranker that is there: scores over text where the workload has them, a frequency prior where it has none."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from policies._branch_ranking import Counts, from_outcomes, options, ranked
from policies.api import BranchView, Candidate, CandidateDrafter, HostInfo


@dataclass(frozen=True)
class Deployed(CandidateDrafter[Counts]):
    """One drafter for workloads of every kind: entity scores, else retrieval scores, else what was chosen before."""

    label = "deployed"
    source = "DynBranch sections 2.1 and 3.2: entities in ReAct, retrieval in Routing, frequency in HCI"

    def new_state(self, host: HostInfo) -> Counts:
        """Return counts of nothing."""
        return Counts()

    def propose(self, state: Counts, branch: BranchView, limit: int) -> Sequence[Candidate]:
        """Rank the menu by the first of the branch's scores, or by the smoothed share of each outcome."""
        for kind in ("entity", "retrieval"):
            if any(score >= 0 for score in branch.scores.get(kind, ())):
                return ranked(zip(options(branch), branch.scores[kind], strict=False), limit)
        counts = state.outcomes(branch.coordinate)
        total = state.total(branch.coordinate) + len(branch.menu)
        chance = {o: (counts.get(o, 0) + 1) / total for o in sorted(set(branch.menu) | set(counts))}
        return from_outcomes(branch, chance, [state.options(branch.coordinate)], limit)

    def observe(self, state: Counts, branch: BranchView, outcome: int, arguments: int) -> None:
        """Count the outcome at its coordinate."""
        state.add(branch.coordinate, (outcome, arguments))
