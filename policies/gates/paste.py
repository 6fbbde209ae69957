"""PASTE: confident patterns run on slack only, and give way (arXiv 2603.18897)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

from policies._branch_fit import fitting
from policies.api import Admission, BranchView, FillOption, Gate, HostInfo, LoadView, RunningFill
from traces.errors import InputError


@dataclass(frozen=True)
class Paste(Gate[None]):
    """Fill candidates whose pattern is confident enough while there is slack; stop unconfirmed ones when it ends.

    Meant for the candidate drafter `pattern`, whose scores are probabilities. A fill that its branch confirmed is
    promoted work and is not stopped. What counts as slack is a reading: the paper speaks of idle slots.

    confidence   least score
    slack_load   canonical load in [0, 1] below which there is slack
    """

    confidence: float = 0.5
    slack_load: float = 0.5

    label = "PASTE"
    source = "arXiv 2603.18897"
    style: ClassVar[Mapping[str, str]] = {"demand": "join", "priority": "low"}

    def __post_init__(self) -> None:
        for name in ("confidence", "slack_load"):
            if not 0 <= getattr(self, name) <= 1:
                raise InputError(f"gate.{name}={getattr(self, name)}: expected a number in [0, 1]")

    def new_state(self, host: HostInfo) -> None:
        """There is nothing to remember."""

    def open(self, state: None, branch: BranchView, load: LoadView) -> bool:
        """Look patterns up while there is slack."""
        return load.canonical_load < self.slack_load

    def admit(
        self, state: None, branch: BranchView, options: Sequence[FillOption], load: LoadView
    ) -> Admission:
        """Fill what is confident and fits, while there is slack."""
        if load.canonical_load >= self.slack_load:
            return Admission(())
        sure = [i for i, o in enumerate(options) if o.candidate.score >= self.confidence]
        return Admission(fitting(options, sure, load, len(sure)))

    def depth(self, state: None, branch: BranchView) -> int | None:
        """One call ahead."""
        return 1

    def revokes(self) -> bool:
        """Return True: fills give way."""
        return True

    def revoke(self, state: None, running: Sequence[RunningFill], load: LoadView) -> Sequence[int]:
        """Stop what no branch has confirmed when the slack is gone."""
        if load.canonical_load < self.slack_load:
            return ()
        return [i for i, fill in enumerate(running) if not fill.resolved]

    def probe_period_ns(self) -> int | None:
        """Look for lost slack ten times a second."""
        return 100_000_000
