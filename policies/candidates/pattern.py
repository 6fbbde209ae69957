"""PASTE's mined patterns: a sequence of outcomes, what followed it, and how reliably (arXiv 2603.18897)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from policies._branch_ranking import Counts, options, ranked
from policies.api import BranchView, Candidate, CandidateDrafter, HostInfo
from traces.errors import InputError


@dataclass(frozen=True)
class Pattern(CandidateDrafter[Counts]):
    """Candidates with the probability of their best pattern; a pattern needs support to be believed.

    The published system maps arguments from earlier results; where arguments are hashes the map is the menu's
    own arguments, or else the ones that the pattern was last followed by most often.

    length    longest context sequence
    support   least times a context must have been seen
    """

    length: int = 3
    support: int = 5

    label = "PASTE patterns"
    source = "arXiv 2603.18897"

    def __post_init__(self) -> None:
        if self.length < 0 or self.support < 1:
            raise InputError(
                f"candidate.length={self.length}, candidate.support={self.support}: expected at least 0 and 1"
            )

    def new_state(self, host: HostInfo) -> Counts:
        """Return counts of nothing."""
        return Counts()

    def propose(self, state: Counts, branch: BranchView, limit: int) -> Sequence[Candidate]:
        """Rank options by the most confident pattern with enough support; options without one are not proposed."""
        allowed = set(options(branch)) if branch.menu else None
        scored = []
        for context in self._contexts(branch):
            total = state.total(context)
            if total >= self.support:
                for option, count in sorted(state.options(context).items()):
                    if allowed is None or option in allowed:
                        scored.append((option, count / total))
                    elif option[0] in branch.menu:
                        scored += [(o, count / total) for o in sorted(allowed) if o[0] == option[0]]
        return ranked(scored, limit)

    def observe(self, state: Counts, branch: BranchView, outcome: int, arguments: int) -> None:
        """Count the outcome after contexts of every length at this agent."""
        for context in self._contexts(branch):
            state.add(context, (outcome, arguments))

    def _contexts(self, branch: BranchView) -> list[tuple[int, tuple[int, ...]]]:
        history = branch.history
        top = min(self.length, len(history))
        return [(branch.coordinate, history[len(history) - n :]) for n in range(top, -1, -1)]
