"""The simulator as a host of the speculation controller: it tells what happens and carries out what it is told.

Canonical flow asks here before it executes a stage (`demand`) and says when one is done. Fills are requests in the same
engines and timers for tools. What a stage returns is computed by the workload's truth function from what was really
rendered and read, and whatever is served in its place is checked against that: `unsafe` counts what would differ.
"""

from __future__ import annotations

from collections import ChainMap, deque
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING, Any

import simpy

from policies import branch_events as ev
from policies.branching import Controller
from policies.views import BranchOutcome, StageView
from sim.branch_views import BranchViews
from sim.canonical_load import CanonicalLoad
from sim.clock import PRIORITY_ARRIVAL, PS_PER_NS, Clock, call_after
from sim.fills import OPEN, UNUSED, Fill, FillRows, FillStage
from sim.log import RunLog
from sim.request import Request
from traces.schema import StageKind, Workload

if TYPE_CHECKING:
    from sim.cluster import Cluster
    from sim.flow import Flow


@dataclass
class _Workflow:
    """What is known of a workflow in progress: values returned, views of stages that began, branches resolved."""

    values: dict[int, int] = field(default_factory=dict)
    views: dict[int, StageView] = field(default_factory=dict)
    prefixes: dict[int, int] = field(default_factory=dict)
    started_ps: dict[int, int] = field(default_factory=dict)
    entries: dict[int, int] = field(default_factory=dict)  # branch -> entry, canonical ones
    history: list[int] = field(default_factory=list)
    closing: bool = False


@dataclass
class _Entry:
    branch: int
    workflow: int
    opened_ps: int
    parent: int
    fills: list[int] = field(default_factory=list)
    resolved_ps: int = -1


class BranchHost:
    """Drives the controller in virtual time. Every method mutates."""

    def __init__(
        self,
        env: Clock,
        workload: Workload,
        views: BranchViews,
        controller: Controller,
        cluster: Cluster,
        flow: Flow,
        log: RunLog,
        *,
        colocated: bool,
    ) -> None:
        self._env = env
        self._views = views
        self.controller = controller
        self._cluster = cluster
        self._flow = flow
        self._log = log
        self._colocated = colocated
        self._load = CanonicalLoad(cluster.engines)
        self.rows = FillRows(log)
        self._versions: dict[int, int] = {}
        self._workflows: dict[int, _Workflow] = {}
        self._entries: dict[int, _Entry] = {}
        self._next_entry = 0
        self._fills: dict[int, Fill] = {}
        self._requests: dict[int, tuple[Fill, int]] = {}
        self._next_request = workload.n_stages
        self._queue: deque[ev.Event] = deque()
        self._handling = False
        self._tick_ns: int | None = None
        self.spliced = self.unsafe = self.filled = 0
        self._writes: dict[int, list[tuple[int, int]]] = {}
        b = views.rendering.branches
        for w, t, k in zip(
            b.external_workflow.tolist(), b.external_time_ns.tolist(), b.external_key.tolist(), strict=True
        ):
            self._writes.setdefault(w, []).append((t, k))
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
            self._probe(period_ns * PS_PER_NS)

    def begin(self, workflow: int) -> None:
        """A workflow starts."""
        self._workflows[workflow] = _Workflow()
        self._schedule_writes(workflow)

    def demand(self, stage: int) -> None:
        """A stage's parents are done: it will be executed, finished or held (`Flow.execute`, `Flow.finish`)."""
        w = self._workflows[self._views.workflow[stage]]
        option = self._views.rendering.path[stage]
        entry = w.entries.get(self._views.option_branch[option], -1) if option >= 0 else -1
        rendered = self._views.rendering.rendered(stage, w.values)
        view = self._views.stage(stage, rendered, self._reads, w.values, w.prefixes, w.views.__contains__)
        w.views[stage] = view
        self._tell(ev.Demanded(self._now_ns, view, entry))

    def done(self, stage: int) -> None:
        """A canonical execution ended well."""
        w = self._workflows[self._views.workflow[stage]]
        view = w.views[stage]
        value = self._views.rendering.value(stage, view.rendered_input, view.read_set)
        events: list[ev.Event] = [self._written(key) for key in self._views.rendering.writes[stage]]
        took_ns = (self._env.now - w.started_ps[stage]) // PS_PER_NS
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
                    self.rows.ended(fill, position, "incomplete", -1)
            self.rows.settled(fill, OPEN)

    # -- what engines say --------------------------------------------------------------------------------------

    def fill_ended(self, request: Request, finished_ps: int, status: str) -> None:
        """An engine is done with a fill, in whatever way."""
        fill, position = self._requests[request.number]
        self.rows.ended(fill, position, status, self._env.now if status != "incomplete" else -1)
        if status == "aborted":
            del self._requests[request.number]
            self._forget(fill)

    def fill_done(self, request: Request, finished: bool) -> None:
        """An engine finished a fill's stage, or refused it."""
        fill, position = self._requests.pop(request.number)
        engine_ns = (self._env.now - max(request.admitted_ps, 0)) // PS_PER_NS if finished else 0
        if finished:
            self._fill_stage_done(fill, position, engine_ns)
        elif fill.live:
            self._tell(ev.FillFailed(self._now_ns, fill.id, "rejected"))

    # -- the loop ----------------------------------------------------------------------------------------------

    @property
    def _now_ns(self) -> int:
        return self._env.now // PS_PER_NS

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
        self._flow.pump()

    def _schedule_tick(self) -> None:
        due = self.controller.next_deadline_ns()
        if due is None or (self._tick_ns is not None and self._tick_ns <= due):
            return
        self._tick_ns = due

        def tick(_: simpy.Event) -> None:
            if self._tick_ns == due:
                self._tick_ns = None
                self._tell(ev.Ticked(due))

        call_after(self._env, max(due * PS_PER_NS - self._env.now, 0), PRIORITY_ARRIVAL, tick)

    def _probe(self, period_ps: int) -> None:
        def probed(_: simpy.Event) -> None:
            self._tell(ev.Probed(self._now_ns, self._load.now(self._env.now)))
            self._probe(period_ps)

        call_after(self._env, period_ps, PRIORITY_ARRIVAL, probed)

    # -- resources ---------------------------------------------------------------------------------------------

    def _reads(self, keys: tuple[int, ...]) -> tuple[tuple[int, int], ...]:
        return tuple((k, self._versions.get(k, 0)) for k in keys)

    def _written(self, key: int) -> ev.Written:
        self._versions[key] = version = self._versions.get(key, 0) + 1
        return ev.Written(self._now_ns, key, version)

    def _schedule_writes(self, workflow: int) -> None:
        for time_ns, key in self._writes.get(workflow, ()):
            call_after(
                self._env, time_ns * PS_PER_NS, PRIORITY_ARRIVAL,
                partial(lambda key, _: self._tell(self._written(key)), key),
            )  # fmt: skip

    # -- branches ----------------------------------------------------------------------------------------------

    def _open(self, stage: int, workflow: int, history: list[int], parent: int) -> None:
        for branch in self._views.at_stage.get(stage, ()):
            entry = self._next_entry
            self._next_entry += 1
            self._entries[entry] = _Entry(branch, workflow, self._env.now, parent)
            if parent < 0:
                self._workflows[workflow].entries[branch] = entry
            view = self._views.branch(branch, self._now_ns, tuple(history))
            load = self._load.now(self._env.now)
            row = self._views.branches[branch]
            self._tell(ev.Opened(self._now_ns, entry, view, load, row.exclusive, parent))

    def _resolve(self, w: _Workflow, stage: int) -> list[ev.Event]:
        entries = [w.entries.get(branch, -1) for branch in self._views.at_stage.get(stage, ())]
        return self._resolved([e for e in entries if e in self._entries])

    def _resolved(self, entries: list[int]) -> list[ev.Event]:
        """Return the events of entries whose outcome is known from now on; none for those that have one."""
        out: list[ev.Event] = []
        for number in entries:
            at = self._entries[number]
            if at.resolved_ps < 0:
                at.resolved_ps = self._env.now
                out.append(ev.Resolved(self._now_ns, number, self._views.branches[at.branch].choices))
        return out

    def _draft(self, c: ev.Draft) -> None:
        at = self._entries[c.entry]
        cost_ns = self._views.branches[at.branch].setup_ns if c.cost_ns is None else c.cost_ns
        if cost_ns == 0:
            self._tell(ev.Drafted(self._now_ns, c.entry, 0))
            return
        if self._colocated:
            self._cluster.lend(at.workflow, cost_ns * PS_PER_NS)

        def drafted(_: simpy.Event) -> None:
            self._tell(ev.Drafted(self._now_ns, c.entry, cost_ns))

        call_after(self._env, cost_ns * PS_PER_NS, PRIORITY_ARRIVAL, drafted)

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
        self._tell(ev.Planned(self._now_ns, c.entry, plans, self._load.now(self._env.now)))

    def _placed(self, plan: ev.FillPlan | None) -> ev.FillPlan | None:
        """Return the plan with what is resident of its first prompt where it would run now."""
        calls = [s for s in plan.stages if self._views.kind[s] == StageKind.LLM] if plan is not None else []
        if plan is None or not calls:
            return plan
        cached = self._cluster.cached(calls[0], self.controller.config.routing, self._env.now)
        return replace(plan, cached_tokens=min(cached, plan.prompt_tokens))

    def _adopt(self, c: ev.Adopt) -> None:
        at = self._entries[c.entry]
        at.parent = -1
        if c.workflow in self._workflows:  # a result may outlive the workflow that it was made for
            self._workflows[c.workflow].entries[at.branch] = c.entry

    def _settle(self, c: ev.Settle) -> None:
        at = self._entries.pop(c.entry)
        outcome = c.outcome
        assert isinstance(outcome, BranchOutcome)
        fates = [UNUSED if f.end == "promoted" else f.end for f in outcome.fills]
        for number, fate in zip(at.fills, fates, strict=True):
            fill = self._fills[number]
            self.rows.settled(fill, fate)
            self._forget(fill)
        self._log.add("branches", branch_row(at.branch, at.opened_ps, at.resolved_ps, outcome))

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
        view = self._views.stage(stage, rendered, self._reads, fill.values)
        assert position == len(fill.stages)
        fill.stages.append(FillStage(stage, view, self._env.now))
        self._tell(ev.FillStarted(self._now_ns, fill.id, position, view))

    def _run_fill(self, c: ev.RunFill) -> None:
        fill = self._fills[c.fill]
        at = fill.stages[c.position]
        self._open(at.stage, fill.workflow, self._history(fill), fill.id)
        if self._views.kind[at.stage] == StageKind.LLM:
            number = self._next_request
            self._next_request += 1
            at.request = self._cluster.fill(at.stage, number, fill.launch, self._env.now)
            self._requests[number] = fill, c.position
            self._cluster.submit(at.request)
            return
        duration_ps = self._flow.duration_ps(at.stage)

        def over(_: simpy.Event) -> None:
            if fill.live and not at.status:
                self.rows.ended(fill, c.position, "finished", self._env.now)
                self._fill_stage_done(fill, c.position, 0)

        call_after(self._env, duration_ps, PRIORITY_ARRIVAL, over)

    def _history(self, fill: Fill) -> list[int]:
        outcome = fill.launch.candidate.outcome
        if fill.parent >= 0 and fill.parent in self._fills:
            return [*self._history(self._fills[fill.parent]), outcome]
        return [*self._workflows[fill.workflow].history, outcome]

    def _skip_fill(self, c: ev.SkipFill) -> None:
        fill = self._fills[c.fill]
        at = fill.stages[c.position]
        fill.values[at.stage] = c.value
        self.rows.ended(fill, c.position, "finished", self._env.now)
        self._tell(ev.FillStageDone(self._now_ns, fill.id, c.position, c.value, 0))

    def _fill_stage_done(self, fill: Fill, position: int, engine_ns: int) -> None:
        at = fill.stages[position]
        value = self._views.rendering.value(at.stage, at.view.rendered_input, at.view.read_set)
        fill.values[at.stage] = value
        if fill.live:
            nested = [
                n
                for n, e in self._entries.items()
                if e.parent == fill.id and self._views.branches[e.branch].stage == at.stage
            ]
            done = ev.FillStageDone(self._now_ns, fill.id, position, value, engine_ns)
            self._tell(done, *self._resolved(nested))

    def _cancel(self, c: ev.Cancel) -> None:
        fill = self._fills[c.fill]
        fill.live = False
        for position, at in enumerate(fill.stages):
            if at.request is not None:
                self._cluster.abort(at.request)
            elif not at.status:
                self.rows.ended(fill, position, "aborted", self._env.now)

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
        w.views[c.stage] = replace(view, read_set=self._reads(self._views.rendering.reads[c.stage]))
        w.started_ps[c.stage] = self._env.now
        self._open(c.stage, c.workflow, w.history, -1)
        self._flow.execute(c.stage)

    def _hold(self, c: ev.Join) -> None:
        """The stage waits for a fill; `Promote` or `Miss` follows."""

    def _promote(self, c: ev.Promote) -> None:
        w = self._workflows[c.workflow]
        fill = self._fills.get(c.fill)
        if fill is not None:
            self.rows.promoted(fill, c.position)
            self._check_readable(fill, c)
        row = (self._now_ns, -1, "speculation", "promoted", c.workflow, c.stage, c.fill)
        self._log.add("decisions", row)
        if c.stage in w.started_ps:
            self._flow.abandon(c.stage)
        self._splice(w, c.stage, c.value)
        self._tell(*self._resolve(w, c.stage))

    def _check_readable(self, fill: Fill, c: ev.Promote) -> None:
        """Count a result of an exclusive branch's loser as unsafe, whatever its value: nobody may read it."""
        row = self._views.branches[fill.branch]
        candidate = fill.launch.candidate
        if row.exclusive and ev.Choice(candidate.outcome, candidate.arguments) not in row.choices:
            self.unsafe += 1
            self._log.add("decisions", (self._now_ns, -1, "speculation", "unsafe", c.workflow, c.stage, 2))

    def _serve(self, c: ev.Serve) -> None:
        w = self._workflows[c.workflow]
        stages = self._views.covered(c.stage, c.name.stages)
        for i, stage in enumerate(stages):
            self._log.add("decisions", (self._now_ns, -1, "reuse", "served", c.workflow, stage, c.rank))
            self._splice(w, stage, c.values[i] if c.values else None)
            self._tell(*self._resolve(w, stage))

    def _splice(self, w: _Workflow, stage: int, value: int | None) -> None:
        """Give a stage a result that it did not compute, after a look at what it would have been."""
        rendering = self._views.rendering
        rendered = rendering.rendered(stage, w.values)
        truth = rendering.value(stage, rendered, self._reads(rendering.reads[stage]))
        self.spliced += 1
        if value is not None and value != truth:
            self.unsafe += 1
            self._log.add(
                "decisions",
                (self._now_ns, -1, "speculation", "unsafe", self._views.workflow[stage], stage, 1),
            )
        if stage not in w.views:
            w.views[stage] = self._views.stage(stage, rendered, self._reads, w.values, w.prefixes)
        self._ended(w, stage, truth if value is None else value)
        self._flow.finish(stage)

    def _ended(self, w: _Workflow, stage: int, value: int) -> None:
        w.values[stage] = value
        for branch in self._views.at_stage.get(stage, ()):
            w.history.extend(c.outcome for c in self._views.branches[branch].choices)


def branch_row(branch: int, opened_ps: int, resolved_ps: int, o: BranchOutcome) -> tuple[int, ...]:
    """Return the row of the table `branches` of an entry that settled."""
    exact = [c for c in o.candidates if (c.outcome, c.arguments) == (o.chosen, o.arguments)]
    covered = 2 if exact else 1 if any(c.outcome == o.chosen for c in o.candidates) else 0
    filled = any(
        (f.option.candidate.outcome, f.option.candidate.arguments) == (o.chosen, o.arguments) for f in o.fills
    )
    return (
        o.branch.workflow, o.branch.stage, branch, opened_ps // PS_PER_NS,
        resolved_ps // PS_PER_NS if resolved_ps >= 0 else -1, int(o.opened), len(o.candidates), covered, len(o.fills),
        int(filled), sum(f.end == "promoted" for f in o.fills), sum(f.promoted for f in o.fills), o.setup_ns,
        o.saved_ns, o.wasted_ns, o.stalled_ns,
    )  # fmt: skip
