"""A fill: the early execution of one candidate's path, as a table-driven state machine (DynBranch section 3.3).

candidate > admitted (reserved) > running > shadow (finished, unreadable) > promoted | expired | cancelled
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum

from policies.branch_events import FillPlan
from policies.reuse_index import Reads
from policies.views import Candidate, FillOption, LoadView, ReuseName, StageView


class State(Enum):
    """Where a fill is in its life."""

    CANDIDATE = "candidate"
    ADMITTED = "admitted"
    RUNNING = "running"
    SHADOW = "shadow"
    PROMOTED = "promoted"
    EXPIRED = "expired"
    CANCELLED = "cancelled"


TRANSITIONS: dict[tuple[State, str], State] = {
    (State.CANDIDATE, "reserve"): State.ADMITTED,
    (State.CANDIDATE, "cancel"): State.CANCELLED,
    (State.ADMITTED, "start"): State.RUNNING,
    (State.ADMITTED, "cancel"): State.CANCELLED,
    (State.RUNNING, "finish"): State.SHADOW,
    (State.RUNNING, "claim"): State.PROMOTED,
    (State.RUNNING, "cancel"): State.CANCELLED,
    (State.SHADOW, "claim"): State.PROMOTED,
    (State.SHADOW, "expire"): State.EXPIRED,
    (State.SHADOW, "cancel"): State.CANCELLED,
}
TERMINAL = frozenset({State.PROMOTED, State.EXPIRED, State.CANCELLED})


@dataclass(slots=True)
class Position:
    """One stage of a fill: its rendered input, then its result.

    taken: its demand is over, because it was `promoted`, or finished work served it, or it turned out stale.
    skipped: finished work gave the result, so that it says nothing about how long the stage takes.
    """

    view: StageView
    name: ReuseName
    started_ns: int
    reads: Reads
    value: int | None = None
    exec_ns: int = 0
    engine_ns: int = 0
    taken: bool = False
    promoted: bool = False
    skipped: bool = False


@dataclass(slots=True)
class Waiting:
    """A canonical stage that a fill is producing the result of. `racing`: it executes meanwhile."""

    view: StageView
    since_ns: int
    position: int
    racing: bool = False
    deadline_ns: int | None = None


@dataclass(slots=True, eq=False)
class Fill:
    """One fill. Methods mutate. `pooled`: unselected, but its results stay valid for another taker."""

    id: int
    entry: int
    workflow: int
    candidate: Candidate
    plan: FillPlan
    option: FillOption
    load: LoadView
    launched_ns: int
    audit: bool = False
    state: State = State.CANDIDATE
    positions: list[Position] = field(default_factory=list)
    waiting: Waiting | None = None
    selected: bool = False
    promoted: int = 0
    saved_ns: int = 0
    stalled_ns: int = 0
    ended_ns: int = 0
    end: str = ""
    lost_engine_ns: int = 0
    pooled: bool = False

    @property
    def live(self) -> bool:
        """Whether anything of it can still happen."""
        return self.state not in TERMINAL

    def move(self, trigger: str) -> None:
        """Take a transition; one that is not in the table is a bug in the controller."""
        following = TRANSITIONS.get((self.state, trigger))
        if following is None:
            raise AssertionError(f"fill {self.id}: no transition {trigger!r} from {self.state.value}")
        self.state = following

    @property
    def engine_ns(self) -> int:
        """Residence in engines so far, stages cut short included."""
        return self.lost_engine_ns + sum(p.engine_ns for p in self.positions)

    @property
    def wasted_ns(self) -> int:
        """Residence spent on stages that nobody was promoted from."""
        return self.lost_engine_ns + sum(p.engine_ns for p in self.positions if not p.promoted)
