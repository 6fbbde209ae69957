"""The host of the speculation controller, without a clock or an engine: tells what happens, has done what it is told.

Canonical flow asks here before it executes a stage (`demand`) and says when one is done. A `World` executes: the
simulator in virtual time, the live host against real servers. Where the world knows what a stage would have returned,
whatever is served in its place is checked against that: `unsafe` counts what would differ.
"""

from __future__ import annotations

from collections import ChainMap, deque
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

from policies import branch_events as ev
from policies.branch_hosting.fills import OPEN, UNUSED, Fill, FillRows, FillStage
from policies.branch_hosting.resources import Resources
from policies.branch_hosting.views import BranchViews
from policies.branch_hosting.world import Rows, World
from policies.branching import Controller
from policies.views import BranchOutcome, StageView
from traces.schema import StageKind


@dataclass
class _Workflow:
    """What is known of a workflow in progress: values returned, views of stages that began, branches resolved."""

    values: dict[int, int] = field(default_factory=dict)
    views: dict[int, StageView] = field(default_factory=dict)
    prefixes: dict[int, int] = field(default_factory=dict)
    started: dict[int, int] = field(default_factory=dict)  # in ticks
    entries: dict[int, int] = field(default_factory=dict)  # branch -> entry, canonical ones
    history: list[int] = field(default_factory=list)
    closing: bool = False


@dataclass
class _Entry:
    branch: int
    workflow: int
    opened: int
    parent: int
    fills: list[int] = field(default_factory=list)
    resolved: int = -1


class BranchHost:
    """Drives the controller. Every method mutates, unless it says otherwise."""

    def __init__(self, world: World, views: BranchViews, controller: Controller, rows: Rows) -> None:
        self._world = world
        self._views = views
        self.controller = controller
        self._rows = rows
        self._fill_rows = FillRows(rows, world)
        self.resources = Resources()
        self._workflows: dict[int, _Workflow] = {}
        self._entries: dict[int, _Entry] = {}
        self._next_entry = 0
        self._fills: dict[int, Fill] = {}
        self._queue: deque[ev.Event] = deque()
        self._handling = False
        self._tick_ns: int | None = None
        self.spliced = self.unsafe = self.filled = 0
        self._carry: dict[type, Callable[[Any], None]] = {
            ev.Draft: self._draft, ev.Plan: self._plan, ev.Launch: self._launch, ev.RunFill: self._run_fill,
            ev.SkipFill: self._skip_fill, ev.Advance: self._advance, ev.Cancel: self._cancel, ev.Serve: self._serve,
            ev.Promote: self._promote, ev.Join: self._hold, ev.Race: self._run, ev.Miss: self._run,
            ev.Adopt: self._adopt, ev.Settle: self._settle,
        }  # fmt: skip

    # -- what canonical flow says ----------------------------------------------------------------------------

    def start(self) -> None:
        """Begin the run."""
        self._schedule_writes(-1)
        period_ns = self.controller.gate.probe_period_ns()
        if period_ns is not None:
            self._probe(period_ns * self._world.ticks_per_ns)

    def begin(self, workflow: int) -> None:
        """A workflow starts."""
        self._workflows[workflow] = _Workflow()
        self._schedule_writes(workflow)

    def demand(self, stage: int) -> None:
        """A stage's parents are done: it will be executed, finished or held (`World.execute`, `World.finish`)."""
        w = self._workflows[self._views.workflow[stage]]
        option = self._views.rendering.path[stage]
        entry = w.entries.get(self._views.option_branch[option], -1) if option >= 0 else -1
        rendered = self._views.rendering.rendered(stage, w.values)
        view = self._views.stage(
            stage, rendered, self.resources.read, w.values, w.prefixes, w.views.__contains__
        )
        w.views[stage] = view
        self._tell(ev.Demanded(self._now_ns, view, entry))

    def view(self, stage: int) -> StageView:
        """Return a demanded stage as it was shown, with the versions that it read. Does not mutate."""
        return self._workflows[self._views.workflow[stage]].views[stage]

    def values(self, workflow: int) -> dict[int, int]:
        """Return what the stages of a workflow in progress returned. Does not mutate."""
        return self._workflows[workflow].values

    def done(self, stage: int, value: int) -> None:
        """A canonical execution ended well, and returned this."""
        w = self._workflows[self._views.workflow[stage]]
        view = w.views[stage]
        events: list[ev.Event] = [self._written(key) for key in self._views.rendering.writes[stage]]
        took_ns = (self._world.now() - w.started[stage]) // self._world.ticks_per_ns
        self._ended(w, stage, value)
        events.append(ev.CanonicalDone(self._now_ns, view, value, took_ns))
        self._tell(*events, *self._resolve(w, stage))

    def closed(self, workflow: int) -> None:
        """A workflow ended, well or badly."""
        self._workflows[workflow].closing = True
        self._tell(ev.Closed(self._now_ns, workflow))
        del self._workflows[workflow]

    def stop(self) -> None:
        """Write the rows of what is still open."""
        for fill in self._fills.values():
            for position, at in enumerate(fill.stages):
                if not at.status:
                    self._fill_rows.ended(fill, position, "incomplete", -1)
            self._fill_rows.settled(fill, OPEN)

    # -- what engines and tools say ----------------------------------------------------------------------------

    def fill_over(self, fill: Fill, position: int, status: str) -> None:
        """The execution of a fill's stage is over, in whatever way (`REQUEST_STATUS`)."""
        self._fill_rows.ended(fill, position, status, self._world.now() if status != "incomplete" else -1)
        if status == "aborted":
            self._forget(fill)

    def fill_done(self, fill: Fill, position: int, value: int, engine_ns: int) -> None:
        """A fill's stage returned this, after so long in an engine."""
        at = fill.stages[position]
        fill.values[at.stage] = value
        if fill.live:
            nested = [
                n
                for n, e in self._entries.items()
                if e.parent == fill.id and self._views.branches[e.branch].stage == at.stage
            ]
            done = ev.FillStageDone(self._now_ns, fill.id, position, value, engine_ns)
            self._tell(done, *self._resolved(nested))

    def fill_failed(self, fill: Fill, reason: str, engine_ns: int = 0) -> None:
        """A fill's stage has no result and will have none."""
        if fill.live:
            self._tell(ev.FillFailed(self._now_ns, fill.id, reason, engine_ns))

    # -- the loop ----------------------------------------------------------------------------------------------

    @property
    def _now_ns(self) -> int:
        return self._world.now() // self._world.ticks_per_ns

    def _tell(self, *events: ev.Event) -> None:
        """Hand events to the controller and carry out its commands; what they cause comes after."""
        self._queue.extend(events)
        if self._handling:
            return
        self._handling = True
        while self._queue:
            for command in self.controller.handle(self._queue.popleft()):
                self._carry[type(command)](command)
        self._handling = False
        self._schedule_tick()
        self._world.pump()

    def _schedule_tick(self) -> None:
        due = self.controller.next_deadline_ns()
        if due is None or (self._tick_ns is not None and self._tick_ns <= due):
            return
        self._tick_ns = due

        def tick() -> None:
            if self._tick_ns == due:
                self._tick_ns = None
                self._tell(ev.Ticked(due))

        self._world.later(max(due * self._world.ticks_per_ns - self._world.now(), 0), tick)

    def _probe(self, period: int) -> None:
        def probed() -> None:
            self._tell(ev.Probed(self._now_ns, self._world.load()))
            self._probe(period)

        self._world.later(period, probed)

    # -- resources ---------------------------------------------------------------------------------------------

    def _written(self, key: int) -> ev.Written:
        return ev.Written(self._now_ns, key, self.resources.write(key))

    def _schedule_writes(self, workflow: int) -> None:
        def written(key: int) -> None:
            self._tell(self._written(key))

        for time_ns, key in self._views.rendering.external.get(workflow, ()):
            self._world.later(time_ns * self._world.ticks_per_ns, partial(written, key))

    # -- branches ----------------------------------------------------------------------------------------------

    def _open(self, stage: int, workflow: int, history: list[int], parent: int) -> None:
        for branch in self._views.at_stage.get(stage, ()):
            entry = self._next_entry
            self._next_entry += 1
            self._entries[entry] = _Entry(branch, workflow, self._world.now(), parent)
            if parent < 0:
                self._workflows[workflow].entries[branch] = entry
            view = self._views.branch(branch, self._now_ns, tuple(history))
            row = self._views.branches[branch]
            self._tell(ev.Opened(self._now_ns, entry, view, self._world.load(), row.exclusive, parent))

    def _resolve(self, w: _Workflow, stage: int) -> list[ev.Event]:
        entries = [w.entries.get(branch, -1) for branch in self._views.at_stage.get(stage, ())]
        return self._resolved([e for e in entries if e in self._entries])

    def _resolved(self, entries: list[int]) -> list[ev.Event]:
        """Return the events of entries whose outcome is known from now on; none for those that have one."""
        out: list[ev.Event] = []
        for number in entries:
            at = self._entries[number]
            if at.resolved < 0:
                at.resolved = self._world.now()
                out.append(ev.Resolved(self._now_ns, number, self._views.branches[at.branch].choices))
        return out

    def _draft(self, c: ev.Draft) -> None:
        at = self._entries[c.entry]
        cost_ns = self._views.branches[at.branch].setup_ns if c.cost_ns is None else c.cost_ns
        if cost_ns == 0:
            self._tell(ev.Drafted(self._now_ns, c.entry, 0))
            return
        self._world.draft(at.workflow, cost_ns)

        def drafted() -> None:
            self._tell(ev.Drafted(self._now_ns, c.entry, cost_ns))

        self._world.later(cost_ns * self._world.ticks_per_ns, drafted)

    def _known(self, entry: int) -> ChainMap[int, int]:
        at = self._entries[entry]
        if at.parent >= 0 and at.parent in self._fills:
            values = self._fills[at.parent].values
            assert isinstance(values, ChainMap)
            return values
        return ChainMap(self._workflows[at.workflow].values)

    def _plan(self, c: ev.Plan) -> None:
        at, values = self._entries[c.entry], self._known(c.entry)
        plans = tuple(self._placed(self._views.plan(at.branch, x, values)) for x in c.candidates)
        self._tell(ev.Planned(self._now_ns, c.entry, plans, self._world.load()))

    def _placed(self, plan: ev.FillPlan | None) -> ev.FillPlan | None:
        """Return the plan with what is resident of its first prompt where it would run now."""
        calls = [s for s in plan.stages if self._views.kind[s] == StageKind.LLM] if plan is not None else []
        if plan is None or not calls:
            return plan
        cached = self._world.resident_tokens(calls[0], self.controller.config.routing)
        return replace(plan, cached_tokens=min(cached, plan.prompt_tokens))

    def _adopt(self, c: ev.Adopt) -> None:
        at = self._entries[c.entry]
        at.parent = -1
        if c.workflow in self._workflows:  # a result may outlive the workflow that it was made for
            self._workflows[c.workflow].entries[at.branch] = c.entry

    def _settle(self, c: ev.Settle) -> None:
        at = self._entries.pop(c.entry)
        outcome = c.outcome
        fates = [UNUSED if f.end == "promoted" else f.end for f in outcome.fills]
        for number, fate in zip(at.fills, fates, strict=True):
            fill = self._fills[number]
            self._fill_rows.settled(fill, fate)
            self._forget(fill)
        per_ns = self._world.ticks_per_ns
        resolved_ns = at.resolved // per_ns if at.resolved >= 0 else -1
        self._rows.add("branches", branch_row(at.branch, at.opened // per_ns, resolved_ns, outcome))

    # -- fills -------------------------------------------------------------------------------------------------

    def _launch(self, c: ev.Launch) -> None:
        at = self._entries[c.entry]
        option = self._views.option(at.branch, c.candidate)
        fill = Fill(c, at.workflow, at.branch, option, self._known(c.entry).new_child(), at.parent)
        self._fills[c.fill] = fill
        at.fills.append(c.fill)
        self.filled += 1
        self._render(fill, 0)

    def _advance(self, c: ev.Advance) -> None:
        self._render(self._fills[c.fill], c.position)

    def _render(self, fill: Fill, position: int) -> None:
        stage = fill.launch.plan.stages[position]
        rendered = self._views.rendering.rendered(stage, fill.values)
        view = self._views.stage(stage, rendered, self.resources.read, fill.values)
        assert position == len(fill.stages)
        fill.stages.append(FillStage(stage, view, self._world.now()))
        self._tell(ev.FillStarted(self._now_ns, fill.id, position, view))

    def _run_fill(self, c: ev.RunFill) -> None:
        fill = self._fills[c.fill]
        self._open(fill.stages[c.position].stage, fill.workflow, self._history(fill), fill.id)
        self._world.run_fill(fill, c.position)

    def _history(self, fill: Fill) -> list[int]:
        outcome = fill.launch.candidate.outcome
        if fill.parent >= 0 and fill.parent in self._fills:
            return [*self._history(self._fills[fill.parent]), outcome]
        return [*self._workflows[fill.workflow].history, outcome]

    def _skip_fill(self, c: ev.SkipFill) -> None:
        fill = self._fills[c.fill]
        fill.values[fill.stages[c.position].stage] = c.value
        self._fill_rows.ended(fill, c.position, "finished", self._world.now())
        self._tell(ev.FillStageDone(self._now_ns, fill.id, c.position, c.value, 0))

    def _cancel(self, c: ev.Cancel) -> None:
        fill = self._fills.get(c.fill)
        if fill is None:
            return  # all of it has run; it outlived its branch in the pool, and its rows are written
        fill.live = False
        for position, at in enumerate(fill.stages):
            if not self._world.stop_fill(fill, position) and not at.status:
                self._fill_rows.ended(fill, position, "aborted", self._world.now())

    def _forget(self, fill: Fill) -> None:
        """Drop a fill whose every row is written."""
        if all(at.fate and at.status for at in fill.stages):
            self._fills.pop(fill.id, None)

    # -- canonical stages --------------------------------------------------------------------------------------

    def _run(self, c: ev.Miss | ev.Race) -> None:
        """Execute a stage; its resources are read now, and its branches' windows open."""
        w = self._workflows[c.workflow]
        if w.closing:
            return
        view = w.views[c.stage]
        w.views[c.stage] = replace(view, read_set=self.resources.read(self._views.rendering.reads[c.stage]))
        w.started[c.stage] = self._world.now()
        self._open(c.stage, c.workflow, w.history, -1)
        self._world.execute(c.stage)

    def _hold(self, c: ev.Join) -> None:
        """The stage waits for a fill; `Promote` or `Miss` follows."""

    def _promote(self, c: ev.Promote) -> None:
        w = self._workflows[c.workflow]
        fill = self._fills.get(c.fill)
        if fill is not None:
            self._fill_rows.promoted(fill, c.position)
            self._check_readable(fill, c)
        self._decided("speculation", "promoted", c.stage, c.fill)
        if c.stage in w.started:
            self._world.abandon(c.stage)
        self._splice(w, c.stage, c.value)
        self._tell(*self._resolve(w, c.stage))

    def _check_readable(self, fill: Fill, c: ev.Promote) -> None:
        """Count a result of an exclusive branch's loser as unsafe, whatever its value: nobody may read it."""
        row = self._views.branches[fill.branch]
        candidate = fill.launch.candidate
        if row.exclusive and ev.Choice(candidate.outcome, candidate.arguments) not in row.choices:
            self.unsafe += 1
            self._decided("speculation", "unsafe", c.stage, 2)

    def _serve(self, c: ev.Serve) -> None:
        w = self._workflows[c.workflow]
        stages = self._views.covered(c.stage, c.name.stages)
        for i, stage in enumerate(stages):
            self._decided("reuse", "served", stage, c.rank)
            self._splice(w, stage, c.values[i] if c.values else None)
            self._tell(*self._resolve(w, stage))

    def _splice(self, w: _Workflow, stage: int, value: int | None) -> None:
        """Give a stage a result that it did not compute, after a look at what it would have been."""
        rendering = self._views.rendering
        rendered = rendering.rendered(stage, w.values)
        truth = self._world.truth(stage, rendered, self.resources.read(rendering.reads[stage]))
        self.spliced += 1
        if value is None:
            value = truth
        elif truth is not None and value != truth:
            self.unsafe += 1
            self._decided("speculation", "unsafe", stage, 1)
        assert value is not None, f"stage {stage}: served by a result that nobody holds"
        if stage not in w.views:
            w.views[stage] = self._views.stage(stage, rendered, self.resources.read, w.values, w.prefixes)
        self._ended(w, stage, value)
        self._world.finish(stage)

    def _ended(self, w: _Workflow, stage: int, value: int) -> None:
        w.values[stage] = value
        for branch in self._views.at_stage.get(stage, ()):
            w.history.extend(c.outcome for c in self._views.branches[branch].choices)

    def _decided(self, family: str, action: str, stage: int, value: int) -> None:
        row = (self._now_ns, -1, family, action, self._views.workflow[stage], stage, value)
        self._rows.add("decisions", row)


def branch_row(branch: int, opened_ns: int, resolved_ns: int, o: BranchOutcome) -> tuple[int, ...]:
    """Return the row of the table `branches` of an entry that settled."""
    exact = [c for c in o.candidates if (c.outcome, c.arguments) == (o.chosen, o.arguments)]
    covered = 2 if exact else 1 if any(c.outcome == o.chosen for c in o.candidates) else 0
    filled = any(
        (f.option.candidate.outcome, f.option.candidate.arguments) == (o.chosen, o.arguments) for f in o.fills
    )
    return (
        o.branch.workflow, o.branch.stage, branch, opened_ns, resolved_ns, int(o.opened), len(o.candidates), covered,
        len(o.fills), int(filled), sum(f.end == "promoted" for f in o.fills), sum(f.promoted for f in o.fills),
        o.setup_ns, o.saved_ns, o.wasted_ns, o.stalled_ns,
    )  # fmt: skip
