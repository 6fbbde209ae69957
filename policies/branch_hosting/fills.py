"""Fills as hosts run them: real requests in engines, timers for tools, and a row for each stage."""

from __future__ import annotations

from collections.abc import MutableMapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

from policies.branch_events import Launch
from policies.views import StageView
from traces.tables import REQUEST_STATUS

if TYPE_CHECKING:
    from policies.branch_hosting.world import Rows, World

_STATUS = {name: i for i, name in enumerate(REQUEST_STATUS)}
OPEN = "open"  # fate of what the end of the run cut off
UNUSED = "unused"  # a stage of a fill of which others were promoted


class EngineColumns(NamedTuple):
    """What an engine says of a fill's request: columns of the table `fills`. Times in ticks, -1: did not happen."""

    replica: int = -1
    admitted: int = -1
    first_token: int = -1
    prompt_tokens: int = 0
    output_tokens: int = 0
    gpu_hit_tokens: int = 0
    host_hit_tokens: int = 0
    prefilled_tokens: int = 0
    recomputed_tokens: int = 0
    preemptions: int = 0
    share_ns: int = 0


@dataclass
class FillStage:
    """One stage of a fill. `fate` and `status` are "" until known; the row is written when both are.

    started, ended   in ticks
    work             what executes it, if it is an engine's: whatever the world made
    """

    stage: int
    view: StageView
    started: int
    work: Any = None
    ended: int = -1
    status: str = ""
    fate: str = ""


@dataclass
class Fill:
    """One fill in progress. values: what its stages returned, over what was known at its launch."""

    launch: Launch
    workflow: int
    branch: int
    option: int
    values: MutableMapping[int, int]
    parent: int = -1
    live: bool = True
    stages: list[FillStage] = field(default_factory=list)

    @property
    def id(self) -> int:
        """The controller's number."""
        return self.launch.fill


class FillRows:
    """Writes the table `fills`. Methods mutate."""

    def __init__(self, rows: Rows, world: World) -> None:
        self._rows = rows
        self._world = world

    def ended(self, fill: Fill, position: int, status: str, ended: int) -> None:
        """A stage's execution is over; `ended` in ticks, -1: never."""
        at = fill.stages[position]
        at.status, at.ended = status, ended
        self._try(fill, position)

    def settled(self, fill: Fill, fate: str) -> None:
        """The fill's branch settled: stages that were not promoted end with `fate`."""
        for position, at in enumerate(fill.stages):
            if not at.fate:
                at.fate = fate
                self._try(fill, position)

    def promoted(self, fill: Fill, position: int) -> None:
        """A stage was promoted."""
        at = fill.stages[position]
        at.fate = "promoted"
        self._try(fill, position)

    def _try(self, fill: Fill, position: int) -> None:
        at = fill.stages[position]
        if not at.fate or not at.status:
            return
        launch = fill.launch
        engine = EngineColumns() if at.work is None else self._world.engine_columns(at.work)
        replica, admitted, first, *counts = engine
        self._rows.add(
            "fills",
            (
                fill.id, fill.workflow, fill.branch, fill.option, launch.candidate.rank, position, at.stage, replica,
                self._ns(at.started), self._ns(admitted), self._ns(first), self._ns(at.ended), *counts,
                _STATUS[at.status], at.fate,
            ),
        )  # fmt: skip

    def _ns(self, ticks: int) -> int:
        return ticks // self._world.ticks_per_ns if ticks >= 0 else -1
