"""Speculate only while the engines are close to idle."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from policies._branch_fit import fitting
from policies.api import Admission, BranchView, FillOption, Gate, HostInfo, LoadView
from traces.errors import InputError


@dataclass(frozen=True)
class IdleOnly(Gate[None]):
    """A load threshold and nothing else: the cheap rule that priced gates have to beat.

    load_max   canonical load in [0, 1] above which nothing opens
    k          most fills a branch
    """

    load_max: float = 0.3
    k: int = 2

    label = "idle only"

    def __post_init__(self) -> None:
        if not 0 <= self.load_max <= 1:
            raise InputError(f"gate.load_max={self.load_max}: expected a load in [0, 1]")

    def new_state(self, host: HostInfo) -> None:
        """There is nothing to remember."""

    def open(self, state: None, branch: BranchView, load: LoadView) -> bool:
        """Draft at low load."""
        return load.canonical_load <= self.load_max

    def admit(
        self, state: None, branch: BranchView, options: Sequence[FillOption], load: LoadView
    ) -> Admission:
        """Fill the first K that fit, if the load is still low."""
        if load.canonical_load > self.load_max:
            return Admission(())
        return Admission(fitting(options, range(len(options)), load, self.k))
