"""DSP: learn how many steps ahead a plan holds, and speculate that deep (arXiv 2509.01920)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import ClassVar

from policies._branch_fit import fitting
from policies.api import Admission, BranchOutcome, BranchView, FillOption, Gate, HostInfo, LoadView
from traces.errors import InputError


@dataclass
class DSPState:
    """Value by coordinate: expected further steps that the approximate agent gets right; and what follows what."""

    value: dict[int, float] = field(default_factory=dict)
    visits: dict[int, int] = field(default_factory=dict)
    follows: dict[int, int] = field(default_factory=dict)
    last: dict[int, int] = field(default_factory=dict)


@dataclass(frozen=True)
class DSP(Gate[DSPState]):
    """Dynamic speculative planning, tabular: V(s) = steps to the first mismatch, learned by TD(0) on expectile loss.

    Each branch speculates one chain of its best candidate, k steps deep: k = V rounded, at least 1. The published
    system regresses V from text with a language model; here a branch coordinate is the state. A first mismatch
    stops all that is nested below it.

    tau     expectile: above one half prefers to overshoot (latency), below to undershoot (cost)
    k_max   most steps
    rate    learning rate
    warm    depth at a coordinate that has not been settled often enough
    warmup  how often that is
    warmup  times a coordinate is settled before its own value counts
    """

    tau: float = 0.5
    k_max: int = 10
    rate: float = 0.1
    warm: int = 2
    warmup: int = 5

    label = "DSP"
    source = "arXiv 2509.01920"
    style: ClassVar[Mapping[str, str]] = {"demand": "join"}

    def __post_init__(self) -> None:
        if not 0 < self.tau < 1:
            raise InputError(f"gate.tau={self.tau}: expected an expectile in (0, 1)")
        if self.k_max < 1 or not 0 < self.rate <= 1:
            raise InputError(
                f"gate.k_max={self.k_max}, gate.rate={self.rate}: expected k_max >= 1, rate in (0, 1]"
            )

    def new_state(self, host: HostInfo) -> DSPState:
        """Return a table that knows nothing."""
        return DSPState()

    def open(self, state: DSPState, branch: BranchView, load: LoadView) -> bool:
        """Always draft: the load does not enter."""
        before = state.last.get(branch.workflow)
        if before is not None:
            state.follows[before] = branch.coordinate
        state.last[branch.workflow] = branch.coordinate
        return True

    def depth(self, state: DSPState, branch: BranchView) -> int | None:
        """Return the predicted number of steps."""
        if state.visits.get(branch.coordinate, 0) < self.warmup:
            return min(self.warm, self.k_max)
        return max(1, min(self.k_max, round(round(state.value[branch.coordinate], 6))))

    def admit(
        self, state: DSPState, branch: BranchView, options: Sequence[FillOption], load: LoadView
    ) -> Admission:
        """Fill the best candidate."""
        return Admission(fitting(options, range(len(options)), load, 1))

    def settle(self, state: DSPState, outcome: BranchOutcome) -> None:
        """TD(0): one step more than the next coordinate's value on a match, none on a mismatch."""
        if outcome.window_ns < 0 or not outcome.candidates:
            return
        here, best = outcome.branch.coordinate, outcome.candidates[0]
        target = 0.0
        if (best.outcome, best.arguments) == (outcome.chosen, outcome.arguments):
            target = 1.0 + state.value.get(state.follows.get(here, -1), 0.0)
        error = target - state.value.get(here, 0.0)
        weight = 2 * (self.tau if error > 0 else 1 - self.tau)
        state.value[here] = state.value.get(here, 0.0) + self.rate * weight * error
        state.visits[here] = state.visits.get(here, 0) + 1
