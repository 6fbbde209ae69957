"""Candidates with dialled accuracy: what prediction could be worth."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from policies._branch_ranking import Luck, options
from policies.api import BranchView, Candidate, CandidateDrafter, HostInfo
from traces import draws
from traces.errors import InputError


@dataclass(frozen=True)
class Oracle(CandidateDrafter[Luck]):
    """Knows the real outcome and names it first with a given chance; offline reference only.

    accuracy   chance that the real choice is ranked first
    coverage   chance that it is among the candidates at all, at least `accuracy`; between, it takes a rank at random
    arguments  chance that a real choice comes with its real arguments
    spread     candidates named where nothing is on the menu
    """

    accuracy: float = 1.0
    coverage: float = 1.0
    arguments: float = 1.0
    spread: int = 4

    needs: ClassVar[frozenset[str]] = frozenset({"oracle"})
    label = "oracle candidates"

    def __post_init__(self) -> None:
        for name in ("accuracy", "coverage", "arguments"):
            if not 0 <= getattr(self, name) <= 1:
                raise InputError(f"candidate.{name}={getattr(self, name)}: expected a chance in [0, 1]")
        if self.coverage < self.accuracy or self.spread < 1:
            raise InputError(
                f"candidate.coverage={self.coverage}: expected at least accuracy={self.accuracy}, and spread >= 1"
            )

    def new_state(self, host: HostInfo) -> Luck:
        """Return what draws and knows."""
        return Luck(host)

    def propose(self, state: Luck, branch: BranchView, limit: int) -> Sequence[Candidate]:
        """Return the truth at its drawn rank among the other options in random order."""
        assert state.host.branch_oracle is not None
        key = (branch.workflow, branch.stage)
        outcome, arguments = state.host.branch_oracle.choice(branch)
        real = (outcome, arguments)
        if state.host.draw("oracle arguments", *key) >= self.arguments:
            real = (outcome, draws.mix(arguments) >> 1)
        others = [o for o in options(branch) if o != (outcome, arguments)]
        if not branch.menu:
            others = [(draws.bits(0, "oracle distractor", *key, k) >> 1, 0) for k in range(self.spread - 1)]
        others.sort(key=lambda o: state.host.draw("oracle order", *key, *o))
        out = list(dict.fromkeys(others))
        luck = state.host.draw("oracle rank", *key)
        known = not branch.menu or outcome in branch.menu
        if luck < self.accuracy and known:
            out.insert(0, real)
        elif luck < self.coverage and known:
            last = min(len(out), max(limit - 1, 0))
            out.insert(min(1 + int(state.host.draw("oracle place", *key) * last), len(out)), real)
        out = list(dict.fromkeys(out))[:limit]
        return [Candidate(o, rank, 1 / (1 + rank), a) for rank, (o, a) in enumerate(out)]
