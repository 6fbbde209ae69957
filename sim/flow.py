"""Workflows in motion: a stage starts when its parents are done, in a closed or an open loop."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

import numpy as np
import simpy

from sim.clock import PRIORITY_ARRIVAL, PS_PER_NS, Clock, call_after
from sim.cluster import Cluster
from sim.config import LoadConfig
from sim.log import RunLog
from sim.request import Request
from traces.arrivals import drawn_order, poisson
from traces.dataflow import children_of
from traces.errors import InputError
from traces.schema import StageKind, Workload

if TYPE_CHECKING:
    from sim.branches import SimulatedBranches


class Flow:
    """Releases stages and ends workflows. `ended` succeeds when the last workflow has. Methods mutate.

    host    decides which stages are executed, where the run speculates or reuses results; None: all of them

    A workflow with a rejected request ends there, as incomplete: what would have followed has no input.
    """

    def __init__(
        self,
        env: Clock,
        workload: Workload,
        load: LoadConfig,
        seed: int,
        cluster: Cluster,
        log: RunLog,
        progress: Callable[[int, int], None] | None,
    ) -> None:
        self._env = env
        self._load = load
        self._cluster = cluster
        self._log = log
        self._progress = progress
        self.total = workload.n_workflows
        self.host: SimulatedBranches | None = None
        self._kind: list[int] = workload.stage_kind.tolist()
        duration = workload.stage_duration_ns * PS_PER_NS
        if load.think_scale != 1.0:
            waits = workload.stage_kind == StageKind.WAIT
            duration = np.where(
                waits,
                np.rint(workload.stage_duration_ns * load.think_scale).astype(np.int64) * PS_PER_NS,
                duration,
            )
        self._duration_ps: list[int] = duration.tolist()
        self._workflow: list[int] = workload.stage_workflow.tolist()
        self._first: list[int] = np.searchsorted(workload.stage_workflow, np.arange(self.total + 1)).tolist()
        canonical = workload.canonical()
        # A stage of an option that was not taken waits for ever.
        self._waiting_for: list[int] = np.where(canonical, np.diff(workload.parent_ptr), 1 << 30).tolist()
        self._children_ptr, self._children = children_of(workload)
        stages = np.bincount(workload.stage_workflow[canonical], minlength=self.total)
        self._stages_left: list[int] = stages.tolist()
        self._stages: list[int] = stages.tolist()
        llm = (workload.stage_kind == StageKind.LLM) & canonical
        self._requests: list[int] = np.bincount(workload.stage_workflow[llm], minlength=self.total).tolist()
        self._started_ps: dict[int, int] = {}
        self._failed: set[int] = set()
        self._ready: deque[int] = deque()
        self._instant: deque[int] = deque()  # executed in no time, with a host
        self._pumping = False
        self._live: dict[int, Request] = {}  # requests by stage, with a host
        self._abandoned: set[int] = set()
        self._begun: set[int] = set()
        self._open_requests: dict[int, int] = {}
        self._rejected: dict[int, int] = {}
        self._waited_ps: dict[int, int] = {}
        self.completed = 0
        self.done = 0
        self.ended = env.event()
        self._order, self._arrival_ps = _arrivals(workload, load, seed)
        self._next = 0

    def start(self) -> None:
        """Begin the loop."""
        if self.total == 0:
            self.ended.succeed()
            return
        if self._arrival_ps is None:
            for workflow in [self._take() for _ in range(min(self._load.concurrency, self.total))]:
                self._begin(workflow)
        else:
            self._after(self._arrival_ps[0], self._arrive)

    def request_done(self, request: Request, finished: bool) -> None:
        """A replica ended a request: its children may start, or its workflow fails."""
        workflow, stage = request.workflow, request.stage
        self._live.pop(stage, None)
        self._open_requests[workflow] -= 1
        if not finished:
            self._rejected[workflow] = self._rejected.get(workflow, 0) + 1
            self._failed.add(workflow)
        if workflow in self._failed:
            if self._open_requests[workflow] == 0:
                self._end(workflow, -1)
            return
        if self.host is not None:
            self.host.done(stage)
        self._stage_done(stage)
        self._release_ready()

    def stop(self) -> None:
        """Write the rows of workflows that are still open."""
        for workflow in sorted(self._started_ps):
            self._row(workflow, -1)
        self._started_ps.clear()

    # -- what the branch host asks for --------------------------------------------------------------------------

    def duration_ps(self, stage: int) -> int:
        """Return how long a tool or wait stage takes."""
        return self._duration_ps[stage]

    def execute(self, stage: int) -> None:
        """Execute a canonical stage now."""
        workflow = self._workflow[stage]
        if workflow in self._failed:
            return
        self._abandoned.discard(stage)
        if self._kind[stage] == StageKind.LLM:
            self._open_requests[workflow] += 1
            self._live[stage] = request = self._cluster.request(stage, self._env.now)
            self._cluster.submit(request)
        elif self._duration_ps[stage] == 0:
            self._instant.append(stage)
        else:
            self._after(self._duration_ps[stage], partial(self._delay_over, stage))

    def finish(self, stage: int) -> None:
        """A canonical stage has a result that it did not compute; what follows is released by `pump`."""
        self._begun.add(stage)  # a part of a workflow is finished whole, before its inner stages are ready
        self._stage_done(stage)

    def abandon(self, stage: int) -> None:
        """Stop the execution of a canonical stage: a fill was faster."""
        request = self._live.pop(stage, None)
        if request is None:
            self._abandoned.add(stage)
        else:
            self._open_requests[self._workflow[stage]] -= 1
            self._cluster.abort(request)

    def pump(self) -> None:
        """Release what became ready at this instant."""
        if not self._pumping:
            self._release_ready()

    # -- the loop ----------------------------------------------------------------------------------------------

    def _take(self) -> int:
        workflow = self._order[self._next]
        self._next += 1
        return workflow

    def _arrive(self, _: simpy.Event) -> None:
        assert self._arrival_ps is not None
        now = self._env.now
        while self._next < self.total and self._arrival_ps[self._next] <= now:
            self._begin(self._take())
        if self._next < self.total:
            self._after(self._arrival_ps[self._next] - now, self._arrive)

    def _after(self, delay_ps: int, callback: Callable[[simpy.Event], None]) -> None:
        call_after(self._env, delay_ps, PRIORITY_ARRIVAL, callback)

    def _begin(self, workflow: int) -> None:
        self._started_ps[workflow] = self._env.now
        self._open_requests[workflow] = 0
        first, last = self._first[workflow], self._first[workflow + 1]
        if self.host is not None:
            self.host.begin(workflow)
        if self._stages[workflow] == 0:
            self._end(workflow, self._env.now)
            return
        waiting_for = self._waiting_for
        self._ready.extend(s for s in range(first, last) if waiting_for[s] == 0)
        self._release_ready()

    def _release_ready(self) -> None:
        """Release what is ready, and what becomes ready of it at this instant (a list: chains may be long)."""
        ready = self._ready
        if self.host is not None:
            self._offer_ready(self.host)
            return
        while ready:
            stage = ready.popleft()
            workflow = self._workflow[stage]
            if workflow in self._failed:
                continue  # a sibling released just before was rejected
            if self._kind[stage] == 0:
                self._open_requests[workflow] += 1
                self._cluster.submit(self._cluster.request(stage, self._env.now))
            elif self._duration_ps[stage] == 0:
                self._stage_done(stage)
            else:
                self._after(self._duration_ps[stage], partial(self._delay_over, stage))

    def _offer_ready(self, host: SimulatedBranches) -> None:
        """As `_release_ready`, where a host decides whether a stage is executed."""
        ready, instant = self._ready, self._instant
        self._pumping = True
        while ready or instant:
            if ready:
                stage = ready.popleft()
                if stage not in self._begun and self._workflow[stage] not in self._failed:
                    self._begun.add(stage)
                    host.demand(stage)
                continue
            stage = instant.popleft()
            if stage in self._abandoned:
                self._abandoned.discard(stage)
            elif self._workflow[stage] not in self._failed:
                host.done(stage)
                self._stage_done(stage)
        self._pumping = False

    def _delay_over(self, stage: int, _: simpy.Event) -> None:
        if self.host is not None:
            if self._workflow[stage] in self._failed:
                return
            if stage in self._abandoned:
                self._abandoned.discard(stage)
                return
            self.host.done(stage)
        self._stage_done(stage)
        self._release_ready()

    def _stage_done(self, stage: int) -> None:
        """Account the end of a stage; its children that wait for nothing else are ready."""
        workflow = self._workflow[stage]
        if workflow in self._failed:
            return
        self._stages_left[workflow] -= 1
        if self._kind[stage] == StageKind.WAIT:
            self._waited_ps[workflow] = self._waited_ps.get(workflow, 0) + self._duration_ps[stage]
        waiting_for, children = self._waiting_for, self._children
        for i in range(self._children_ptr[stage], self._children_ptr[stage + 1]):
            child = children[i]
            waiting_for[child] -= 1
            if waiting_for[child] == 0:
                self._ready.append(child)
        if self._stages_left[workflow] == 0:
            self._end(workflow, self._env.now)

    def _end(self, workflow: int, finished_ps: int) -> None:
        self._row(workflow, finished_ps)
        del self._started_ps[workflow]
        del self._open_requests[workflow]
        self.done += 1
        if finished_ps >= 0:
            self.completed += 1
        self._cluster.workflow_finished(workflow)
        if self.host is not None:
            self.host.closed(workflow)
        if self._progress is not None:
            self._progress(self.done, self.total)
        if self.done == self.total:
            self.ended.succeed()
        elif self._arrival_ps is None and self._next < self.total:
            # At this very instant, but after whatever ends now has been accounted.
            following = self._take()
            self._after(0, lambda _: self._begin(following))

    def _row(self, workflow: int, finished_ps: int) -> None:
        started = self._started_ps[workflow] // PS_PER_NS
        stages = self._stages[workflow] - self._stages_left[workflow]
        self._log.add(
            "workflows",
            (
                workflow, started, started, finished_ps // PS_PER_NS if finished_ps >= 0 else -1, stages,
                self._requests[workflow], self._rejected.get(workflow, 0),
                self._waited_ps.pop(workflow, 0) // PS_PER_NS,
            ),
        )  # fmt: skip


def _arrivals(workload: Workload, load: LoadConfig, seed: int) -> tuple[list[int], list[int] | None]:
    """Return (order of workflows, their arrival times in ps; None in a closed loop)."""
    n = workload.n_workflows
    if load.loop == "closed" or load.rate_per_s is not None:
        order = drawn_order(n, seed)
        if load.loop == "closed":
            return order, None
        assert load.rate_per_s is not None
        return order, (poisson(n, load.rate_per_s, seed) * PS_PER_NS).tolist()
    if workload.workflow_arrival_ns is None:
        raise InputError(
            f"load.loop=open: workload {workload.name!r} records no arrival times; "
            "give load.rate_per_s, or load.loop=closed"
        )
    by_arrival = np.argsort(workload.workflow_arrival_ns, kind="stable")
    return by_arrival.tolist(), (workload.workflow_arrival_ns[by_arrival] * PS_PER_NS).tolist()
