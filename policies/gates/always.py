"""Fill every candidate that fits."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from policies._branch_fit import fitting
from policies.api import Admission, BranchView, FillOption, Gate, HostInfo, LoadView


@dataclass(frozen=True)
class Always(Gate[None]):
    """Both actions off: always draft, always fill. What speculation costs when nobody asks."""

    label = "always speculate"
    source = "DynBranch section 5.5 (both gates off)"

    def new_state(self, host: HostInfo) -> None:
        """There is nothing to remember."""

    def open(self, state: None, branch: BranchView, load: LoadView) -> bool:
        """Always draft."""
        return True

    def admit(
        self, state: None, branch: BranchView, options: Sequence[FillOption], load: LoadView
    ) -> Admission:
        """Fill all that fit, best first."""
        return Admission(fitting(options, range(len(options)), load, len(options)))
