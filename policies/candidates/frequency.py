"""Rank by how often an outcome was chosen at this coordinate in this context."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from policies._branch_ranking import Counts, from_outcomes
from policies.api import BranchView, Candidate, CandidateDrafter, HostInfo
from traces.errors import InputError


@dataclass(frozen=True)
class Frequency(CandidateDrafter[Counts]):
    """A frequency prior over what was chosen before; backs off from the context to the coordinate.

    context    earlier outcomes of the workflow that make the context: 0, 1 or more
    strength   weight of the coordinate's prior, in observations of the context
    """

    context: int = 1
    strength: float = 2.0

    label = "frequency"
    source = "DynBranch section 2.1 (Fitchett and Cockburn 2012)"

    def __post_init__(self) -> None:
        if self.context < 0 or not self.strength > 0:
            raise InputError(
                f"candidate.context={self.context}, candidate.strength={self.strength}: expected at least 0, above 0"
            )

    def new_state(self, host: HostInfo) -> Counts:
        """Return counts of nothing."""
        return Counts()

    def propose(self, state: Counts, branch: BranchView, limit: int) -> Sequence[Candidate]:
        """Rank by the smoothed share of each outcome."""
        broad, narrow = branch.coordinate, self._narrow(branch)
        prior, here = state.outcomes(broad), state.outcomes(narrow)
        total, seen = state.total(broad), state.total(narrow)
        spread = len(set(branch.menu) | set(prior)) or 1
        chance = {}
        for outcome in sorted(set(branch.menu) | set(prior)):
            base = (prior.get(outcome, 0) + 1) / (total + spread)
            chance[outcome] = (here.get(outcome, 0) + self.strength * base) / (seen + self.strength)
        return from_outcomes(branch, chance, [state.options(narrow), state.options(broad)], limit)

    def observe(self, state: Counts, branch: BranchView, outcome: int, arguments: int) -> None:
        """Count the outcome, in its context and at the coordinate."""
        state.add(branch.coordinate, (outcome, arguments))
        state.add(self._narrow(branch), (outcome, arguments))

    def _narrow(self, branch: BranchView) -> tuple[int, tuple[int, ...]]:
        return branch.coordinate, branch.history[len(branch.history) - self.context :] if self.context else ()
