"""Fills as the simulator runs them: real requests in the engines, timers for tools, and a row for each stage."""

from __future__ import annotations

from collections.abc import MutableMapping
from dataclasses import dataclass, field

from policies.branch_events import Launch
from policies.views import StageView
from sim.clock import PS_PER_NS
from sim.log import RunLog
from sim.request import Request
from traces.tables import REQUEST_STATUS

_STATUS = {name: i for i, name in enumerate(REQUEST_STATUS)}
OPEN = "open"  # fate of what the end of the run cut off
UNUSED = "unused"  # a stage of a fill of which others were promoted


@dataclass
class FillStage:
    """One stage of a fill. `fate` and `status` are "" until known; the row is written when both are."""

    stage: int
    view: StageView
    started_ps: int
    request: Request | None = None
    ended_ps: int = -1
    status: str = ""
    fate: str = ""


@dataclass
class Fill:
    """One fill in the simulator. values: what its stages returned, over what was known at its launch."""

    launch: Launch
    workflow: int
    branch: int
    option: int
    values: MutableMapping[int, int]
    parent: int = -1
    live: bool = True
    stages: list[FillStage] = field(default_factory=list)
    unwritten: int = 0

    @property
    def id(self) -> int:
        """The controller's number."""
        return self.launch.fill


class FillRows:
    """Writes the table `fills`. Methods mutate."""

    def __init__(self, log: RunLog) -> None:
        self._log = log
        self.written = 0

    def ended(self, fill: Fill, position: int, status: str, ended_ps: int) -> None:
        """A stage's execution is over."""
        at = fill.stages[position]
        at.status, at.ended_ps = status, ended_ps
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
        r, launch = at.request, fill.launch
        engine = (-1, -1, -1, 0, 0, 0, 0, 0, 0, 0, 0)
        if r is not None:
            engine = (
                r.replica, _ns(r.admitted_ps), _ns(r.first_token_ps), r.prompt_tokens, r.generated, r.gpu_hit_tokens,
                r.host_hit_tokens, r.prefilled_tokens, r.recomputed_tokens, r.preemptions, r.share_ps // PS_PER_NS,
            )  # fmt: skip
        replica, admitted, first, *counts = engine
        self._log.add(
            "fills",
            (
                fill.id, fill.workflow, fill.branch, fill.option, launch.candidate.rank, position, at.stage, replica,
                at.started_ps // PS_PER_NS, admitted, first, _ns(at.ended_ps), *counts, _STATUS[at.status], at.fate,
            ),
        )  # fmt: skip
        self.written += 1


def _ns(ps: int) -> int:
    return ps // PS_PER_NS if ps >= 0 else -1
