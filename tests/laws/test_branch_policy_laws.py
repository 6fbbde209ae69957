"""Gates, candidate drafters and reuse policies made to break a law are told which."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar

import pytest

from policies import reuse_names
from policies.api import (
    Admission,
    BranchView,
    Candidate,
    CandidateDrafter,
    FillOption,
    Gate,
    HostInfo,
    LoadView,
    Policy,
    ReuseName,
    ReusePolicy,
    RunningFill,
    StageView,
)
from policies.gates.always import Always
from policies.laws import check


@dataclass(frozen=True)
class OverBudget(Always):
    def admit(
        self, state: None, branch: BranchView, options: Sequence[FillOption], load: LoadView
    ) -> Admission:
        return Admission(tuple(range(len(options))))


@dataclass(frozen=True)
class Twice(Always):
    def admit(
        self, state: None, branch: BranchView, options: Sequence[FillOption], load: LoadView
    ) -> Admission:
        return Admission((0, 0) if options else ())


@dataclass(frozen=True)
class AuditsNothing(Always):
    def admit(
        self, state: None, branch: BranchView, options: Sequence[FillOption], load: LoadView
    ) -> Admission:
        return Admission((), (0,))


@dataclass(frozen=True)
class CountsAsked(Gate[list[deque[int]]]):
    def new_state(self, host: HostInfo) -> list[deque[int]]:
        return [deque()]

    def open(self, state: list[deque[int]], branch: BranchView, load: LoadView) -> bool:
        return True

    def admit(
        self, state: list[deque[int]], branch: BranchView, options: Sequence[FillOption], load: LoadView
    ) -> Admission:
        state[0].append(branch.stage)
        return Admission(())


@dataclass(frozen=True)
class RevokesUnasked(Always):
    def revoke(self, state: None, running: Sequence[RunningFill], load: LoadView) -> Sequence[int]:
        return range(len(running))


@dataclass(frozen=True)
class OddStyle(Always):
    style: ClassVar[Mapping[str, str]] = {"demand": "hope"}


@dataclass(frozen=True)
class Menu(CandidateDrafter[None]):
    def new_state(self, host: HostInfo) -> None:
        return

    def propose(self, state: None, branch: BranchView, limit: int) -> Sequence[Candidate]:
        return [Candidate(o, i, 0.5) for i, o in enumerate(branch.menu)]


@dataclass(frozen=True)
class OffMenu(Menu):
    def propose(self, state: None, branch: BranchView, limit: int) -> Sequence[Candidate]:
        return [Candidate(77, 0, 0.5)][:limit]


@dataclass(frozen=True)
class AllFirst(Menu):
    def propose(self, state: None, branch: BranchView, limit: int) -> Sequence[Candidate]:
        return [Candidate(o, 0, 0.5) for o in branch.menu][:limit]


@dataclass(frozen=True)
class OneByOne(ReusePolicy[None]):
    eviction: str = field(default="lru", init=False)

    def new_state(self, host: HostInfo) -> None:
        return

    def names(self, state: None, stage: StageView) -> Sequence[ReuseName]:
        return [reuse_names.of_stage(stage)]

    def limits(self) -> tuple[int, str]:
        return 0, self.eviction


@dataclass(frozen=True)
class NamesWorkflows(OneByOne):
    def names(self, state: None, stage: StageView) -> Sequence[ReuseName]:
        return [ReuseName("stage", stage.workflow)]


@dataclass(frozen=True)
class IgnoresParameters(OneByOne):
    def names(self, state: None, stage: StageView) -> Sequence[ReuseName]:
        return [ReuseName("stage", hash((stage.fingerprint, stage.rendered_input)))]


@dataclass(frozen=True)
class InnermostFirst(OneByOne):
    def names(self, state: None, stage: StageView) -> Sequence[ReuseName]:
        return [reuse_names.of_stage(stage), *(reuse_names.of_scope(s) for s in stage.scopes)]


@dataclass(frozen=True)
class EvictsByWhim(OneByOne):
    eviction: str = field(default="whim", init=False)


BROKEN: list[tuple[type[Policy[Any]], str]] = [
    (OverBudget, "beyond the KV reservation"),
    (Twice, "one of them twice"),
    (CountsAsked, "admit changed the state"),
    (AuditsNothing, "not in"),
    (RevokesUnasked, "revokes\\(\\) is False"),
    (OddStyle, "unknown branching.demand 'hope'"),
    (Menu, "the limit is"),
    (OffMenu, "not on the menu"),
    (AllFirst, "ranks must be 0, 1"),
    (NamesWorkflows, "an equal stage has other names"),
    (IgnoresParameters, "names unequal work"),
    (InnermostFirst, "outermost must come first"),
    (EvictsByWhim, "eviction 'whim'"),
]


@pytest.mark.parametrize(("cls", "words"), BROKEN, ids=lambda x: getattr(x, "__name__", ""))
def test_a_branch_policy_that_breaks_a_law_is_told_which(cls: type[Policy[Any]], words: str) -> None:
    with pytest.raises(AssertionError, match=words):
        check(cls(), range(2))


def test_a_reuse_policy_of_single_stages_keeps_the_laws() -> None:
    check(OneByOne(), range(2))
