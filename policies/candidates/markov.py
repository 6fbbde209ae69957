"""Rank by what followed the workflow's last outcomes, wherever that was."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from policies._branch_ranking import Counts, from_outcomes
from policies.api import BranchView, Candidate, CandidateDrafter, HostInfo
from traces.errors import InputError


@dataclass(frozen=True)
class Markov(CandidateDrafter[Counts]):
    """An n-gram over outcomes with back-off: the longest context seen decides.

    order   most earlier outcomes in the context
    """

    order: int = 2

    label = "Markov"

    def __post_init__(self) -> None:
        if self.order < 1:
            raise InputError(f"candidate.order={self.order}: expected at least 1")

    def new_state(self, host: HostInfo) -> Counts:
        """Return counts of nothing."""
        return Counts()

    def propose(self, state: Counts, branch: BranchView, limit: int) -> Sequence[Candidate]:
        """Rank by the shares after the longest context that has been seen."""
        for context in self._contexts(branch):
            total = state.total(context)
            if total:
                chance = {o: n / total for o, n in sorted(state.outcomes(context).items())}
                return from_outcomes(branch, chance, [state.options(context)], limit)
        return from_outcomes(branch, {o: 1 / len(branch.menu) for o in branch.menu}, [], limit)

    def observe(self, state: Counts, branch: BranchView, outcome: int, arguments: int) -> None:
        """Count the outcome after contexts of every length."""
        for context in self._contexts(branch):
            state.add(context, (outcome, arguments))

    def _contexts(self, branch: BranchView) -> list[tuple[int, ...]]:
        history = branch.history
        return [history[len(history) - n :] for n in range(min(self.order, len(history)), -1, -1)]
