"""Speculate on nothing."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from policies.api import Admission, BranchView, FillOption, Gate, HostInfo, LoadView


@dataclass(frozen=True)
class Never(Gate[None]):
    """The gate that stays closed: every branch waits for its real outcome."""

    label = "no speculation"

    def new_state(self, host: HostInfo) -> None:
        """There is nothing to remember."""

    def open(self, state: None, branch: BranchView, load: LoadView) -> bool:
        """Never draft candidates."""
        return False

    def admit(
        self, state: None, branch: BranchView, options: Sequence[FillOption], load: LoadView
    ) -> Admission:
        """Fill nothing."""
        return Admission(rows=())
