"""Speculative Actions: the top k guesses run during the decision, one step ahead (arXiv 2510.04371)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

from policies._branch_fit import fitting
from policies.api import Admission, BranchView, FillOption, Gate, HostInfo, LoadView


@dataclass(frozen=True)
class SpeculativeActions(Gate[None]):
    """Launch k guesses while the actor thinks; commit on the exact action, else discard. Lossless; blind to load.

    k   guesses a step
    """

    k: int = 3

    label = "Speculative Actions"
    source = "arXiv 2510.04371"
    style: ClassVar[Mapping[str, str]] = {"demand": "join"}

    def new_state(self, host: HostInfo) -> None:
        """There is nothing to remember."""

    def open(self, state: None, branch: BranchView, load: LoadView) -> bool:
        """Guess at every step."""
        return True

    def admit(
        self, state: None, branch: BranchView, options: Sequence[FillOption], load: LoadView
    ) -> Admission:
        """Run the k best guesses that fit."""
        return Admission(fitting(options, range(len(options)), load, self.k))

    def depth(self, state: None, branch: BranchView) -> int | None:
        """One step ahead."""
        return 1
