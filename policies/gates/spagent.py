"""SPAgent: speculate the search agent's next action while load allows (arXiv 2511.20048)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

from policies._branch_fit import fitting
from policies.api import Admission, BranchView, FillOption, Gate, HostInfo, LoadView
from traces.errors import InputError


@dataclass(frozen=True)
class SPAgent(Gate[None]):
    """Its lossless phase: draft one action beside the reasoning, use the tool's result if the actions match.

    Two-level scheduler: within a request a draft is dropped once its step is verified and it is late; across
    requests drafts are admitted below a load threshold, with priority below canonical work. The phase that skips
    verification changes outputs and is not built. The load threshold is a reading: the paper's is not published.

    load_max   engine load in [0, 1] from which no draft is admitted
    """

    load_max: float = 0.7

    label = "SPAgent"
    source = "arXiv 2511.20048, phase 2"
    style: ClassVar[Mapping[str, str]] = {"demand": "drop", "priority": "low"}

    def __post_init__(self) -> None:
        if not 0 <= self.load_max <= 1:
            raise InputError(f"gate.load_max={self.load_max}: expected a load in [0, 1]")

    def new_state(self, host: HostInfo) -> None:
        """There is nothing to remember."""

    def open(self, state: None, branch: BranchView, load: LoadView) -> bool:
        """Draft below the load threshold."""
        return load.canonical_load < self.load_max

    def admit(
        self, state: None, branch: BranchView, options: Sequence[FillOption], load: LoadView
    ) -> Admission:
        """Fill the best candidate, if the load is still below the threshold."""
        if load.canonical_load >= self.load_max:
            return Admission(())
        return Admission(fitting(options, range(len(options)), load, 1))

    def depth(self, state: None, branch: BranchView) -> int | None:
        """One action ahead."""
        return 1
