"""A branch entry: one resolution window, its candidates and fills, and what they cost and saved."""

from __future__ import annotations

from dataclasses import dataclass, field

from policies._branch_fills import Fill
from policies.branch_events import Choice, FillPlan
from policies.views import BranchOutcome, BranchView, Candidate, FillOutcome, LoadView


@dataclass(slots=True, eq=False)
class Entry:
    """One branch entry. `parent_fill` is -1 in canonical flow, where its results may be demanded.

    refused   plans of candidates (by rank) that could be filled and are not yet
    """

    id: int
    branch: BranchView
    load: LoadView
    exclusive: bool
    parent_fill: int
    depth: int
    depth_limit: int
    opened: bool = False
    drafting: bool = False
    planning: bool = False
    setup_ns: int = 0
    candidates: tuple[Candidate, ...] = ()
    refused: dict[int, FillPlan] = field(default_factory=dict)
    fills: list[Fill] = field(default_factory=list)
    choices: tuple[Choice, ...] | None = None
    resolved_ns: int = -1

    def chose(self, candidate: Candidate) -> str:
        """Return "" when the candidate is what happened, else why its fill is a loser."""
        assert self.choices is not None
        reason = "unselected"
        for choice in self.choices:
            if choice.outcome == candidate.outcome:
                if choice.arguments == candidate.arguments:
                    return ""
                reason = "wrong argument"
        return reason

    def settles(self) -> bool:
        """Say whether nothing more can happen to it."""
        done = self.resolved_ns >= 0 and not self.drafting and not self.planning
        return done and not any(fill.live and not fill.pooled for fill in self.fills)

    def outcome(self) -> BranchOutcome:
        """Return how it settled; meaningful once `settles`, or when its workflow ended."""
        fills = tuple(_ended(fill) for fill in self.fills)
        first = self.choices[0] if self.choices else Choice(-1)
        return BranchOutcome(
            branch=self.branch,
            chosen=first.outcome,
            arguments=first.arguments,
            opened=self.opened,
            candidates=self.candidates,
            fills=fills,
            setup_ns=self.setup_ns,
            saved_ns=sum(f.saved_ns for f in fills),
            wasted_ns=sum(f.wasted_ns for f in fills),
            stalled_ns=sum(f.stalled_ns for f in fills),
            window_ns=self.resolved_ns - self.branch.opened_ns if self.resolved_ns >= 0 else -1,
            load=self.load,
        )


def _ended(fill: Fill) -> FillOutcome:
    return FillOutcome(
        option=fill.option,
        end="promoted" if fill.promoted else fill.end,
        selected=fill.selected,
        promoted=fill.promoted,
        stages=len(fill.plan.stages),
        exec_ns=fill.ended_ns - fill.launched_ns,
        engine_ns=fill.engine_ns,
        wasted_ns=fill.wasted_ns,
        saved_ns=fill.saved_ns,
        stalled_ns=fill.stalled_ns,
        load=fill.load,
        audit=fill.audit,
    )
