"""Fill the K best candidates of every branch (the width of DynBranch Fig. 9)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from policies._branch_fit import fitting
from policies.api import Admission, BranchView, FillOption, Gate, HostInfo, LoadView


@dataclass(frozen=True)
class Fanout(Gate[None]):
    """Static fanout: no price, no learning. K = 0 never drafts.

    k   most fills a branch
    """

    k: int = 2

    label = "static fanout"
    source = "DynBranch section 5.3, Fig. 9a"

    def new_state(self, host: HostInfo) -> None:
        """There is nothing to remember."""

    def open(self, state: None, branch: BranchView, load: LoadView) -> bool:
        """Draft wherever anything could be filled."""
        return self.k > 0

    def admit(
        self, state: None, branch: BranchView, options: Sequence[FillOption], load: LoadView
    ) -> Admission:
        """Fill the first K that fit."""
        return Admission(fitting(options, range(len(options)), load, self.k))
