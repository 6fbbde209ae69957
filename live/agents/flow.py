"""Workflows in motion against a real server: a stage starts when its parents are done, so many workflows at once."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

import numpy as np

from live.agents.calls import Call, Caller
from live.agents.clock import Clock, ended, started
from policies.branch_hosting.resources import Resources
from policies.branch_hosting.world import Rows
from traces.arrivals import drawn_order
from traces.dataflow import children_of
from traces.rendering import Rendering
from traces.schema import StageKind, Workload
from traces.tables import REQUEST_STATUS

if TYPE_CHECKING:
    from live.agents.world import LiveBranches

_GONE_AFTER = 5  # workflows beside those in progress that fail with nothing answered in between
_STATUS = {name: i for i, name in enumerate(REQUEST_STATUS)}


class Flow:
    """Canonical flow. Methods mutate. `ended` is set when the last workflow has ended.

    host       decides what is executed; None (a host that failed): everything is
    failures   workflow -> why it ended without its result
    not_begun  workflows that the server's end left out
    """

    def __init__(
        self,
        workload: Workload,
        rendering: Rendering,
        caller: Caller,
        clock: Clock,
        rows: Rows,
        concurrency: int,
        seed: int,
        progress: Callable[[int, int], None],
    ) -> None:
        self._rendering, self._caller, self._clock, self._rows = rendering, caller, clock, rows
        self._concurrency = concurrency
        self._progress = progress
        self.host: LiveBranches | None = None
        self._resources = Resources()
        self._read: dict[int, tuple[tuple[int, int], ...]] = {}
        self.total = workload.n_workflows
        self._kind: list[int] = workload.stage_kind.tolist()
        self._duration_ns: list[int] = workload.stage_duration_ns.tolist()
        self._workflow: list[int] = workload.stage_workflow.tolist()
        self._agent: list[int] = workload.stage_agent.tolist()
        canonical = workload.canonical()
        # A stage of an option that was not taken waits for ever.
        self._waiting_for: list[int] = np.where(canonical, np.diff(workload.parent_ptr), 1 << 30).tolist()
        self._children_ptr, self._children = children_of(workload)
        self._first: list[int] = np.searchsorted(workload.stage_workflow, np.arange(self.total + 1)).tolist()
        self._stages: list[int] = np.bincount(
            workload.stage_workflow[canonical], minlength=self.total
        ).tolist()
        llm = (workload.stage_kind == StageKind.LLM) & canonical
        self._requests: list[int] = np.bincount(workload.stage_workflow[llm], minlength=self.total).tolist()
        self._left = list(self._stages)
        self._ready: deque[int] = deque()
        self._begun: set[int] = set()
        self._finished: set[int] = set()
        self._running: dict[int, Callable[[], None]] = {}  # stage -> stops its execution
        self._calls: dict[int, Call] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._started_ns: dict[int, int] = {}
        self._waited_ns: dict[int, int] = {}
        self._pumping = False
        self._order = drawn_order(self.total, seed)
        self._next = 0
        self.values: dict[int, dict[int, int]] = {}
        self.failures: dict[int, str] = {}
        self.completed = self.done = 0
        self._failed_in_a_row = 0
        self.not_begun = 0
        self.ended = asyncio.Event()

    def start(self) -> None:
        """Begin the first workflows."""
        if self.total == 0:
            self.ended.set()
        for workflow in [self._take() for _ in range(min(self._concurrency, self.total))]:
            self._begin(workflow)

    def stop(self) -> None:
        """Stop everything and write the rows of what is still open."""
        for cancel in list(self._running.values()):
            cancel()
        for stage in list(self._calls):
            self._call_row(stage, "incomplete", "stopped")
        for workflow in sorted(self._started_ns):
            self._row(workflow, -1)
        self._started_ns.clear()

    async def settle(self) -> None:
        """Wait until stopped requests have closed their connections."""
        await ended(self._tasks)

    # -- what the branch host asks for -------------------------------------------------------------------------

    def execute(self, stage: int) -> None:
        """Execute a canonical stage now."""
        if stage in self._running or stage in self._finished:
            return
        workflow = self._workflow[stage]
        if workflow in self.failures:
            return
        if self._kind[stage] == StageKind.LLM:
            call = self._calls[stage] = self._caller.call(
                stage, self.values[workflow], self._reads(stage), self._last_of(workflow)
            )
            task = started(self._called(stage, call))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)
            self._running[stage] = partial(_cancel, task)
        else:
            self._running[stage] = self._clock.later(self._duration_ns[stage], partial(self._over, stage))

    def finish(self, stage: int, value: int) -> None:
        """A canonical stage has a result that it did not compute; what follows is released by `pump`."""
        self._begun.add(stage)
        self.values[self._workflow[stage]][stage] = value
        self._stage_done(stage)

    def abandon(self, stage: int) -> None:
        """Stop the execution of a canonical stage: a fill was faster."""
        stop = self._running.pop(stage, None)
        if stop is not None:
            stop()
        if stage in self._calls:
            self._call_row(stage, "aborted", "overtaken")

    def pump(self) -> None:
        """Release what is ready, and what becomes ready of it at once."""
        if self._pumping:
            return
        self._pumping = True
        while self._ready:
            stage = self._ready.popleft()
            if stage in self._begun or self._workflow[stage] in self.failures:
                continue
            self._begun.add(stage)
            if self.host is None:
                self.execute(stage)
            else:
                self.host.demand(stage)
        self._pumping = False

    def resume(self, resources: Resources) -> None:
        """The host is gone: execute what it held, and go on from the resources' versions as it had them."""
        self._resources = resources
        for stage in self._running:
            self._read[stage] = self.host.view(stage).read_set if self.host is not None else ()
        self.host = None
        for workflow, since_ns in ((-1, 0), *self._started_ns.items()):
            self._schedule_writes(workflow, since_ns)
        for stage in sorted(self._begun - self._finished - self._running.keys()):
            workflow = self._workflow[stage]
            if workflow in self._started_ns and stage not in self.values[workflow]:
                self.execute(stage)
        self.pump()

    # -- the loop ----------------------------------------------------------------------------------------------

    def _take(self) -> int:
        self._next += 1
        return self._order[self._next - 1]

    def _begin(self, workflow: int) -> None:
        self._started_ns[workflow] = self._clock.now()
        self.values[workflow] = {}
        if self.host is not None:
            self.host.begin(workflow)
        else:
            self._schedule_writes(workflow, self._clock.now())
        first, last = self._first[workflow], self._first[workflow + 1]
        self._ready.extend(s for s in range(first, last) if self._waiting_for[s] == 0)
        if self._stages[workflow] == 0:
            self._end(workflow, self._clock.now())
        self.pump()

    async def _called(self, stage: int, call: Call) -> None:
        value = await self._caller.answer(call)
        if self._running.pop(stage, None) is None:
            return
        workflow = self._workflow[stage]
        if value is None:
            self._call_row(stage, "rejected", call.failure)
            self._fail(workflow, f"stage {stage}: {call.failure}")
        else:
            self._failed_in_a_row = 0
            self._call_row(stage, "finished", "")
            self._returned(stage, value)

    def _over(self, stage: int) -> None:
        """A tool or a wait is over."""
        if self._running.pop(stage, None) is None:
            return
        rendered = self._rendering.rendered(stage, self.values[self._workflow[stage]])
        self._returned(stage, self._rendering.value(stage, rendered, self._reads(stage)))

    def _returned(self, stage: int, value: int) -> None:
        self.values[self._workflow[stage]][stage] = value
        if self.host is not None:
            self.host.done(stage, value)
        else:
            for key in self._rendering.writes[stage]:
                self._resources.write(key)
        self._stage_done(stage)
        self.pump()

    def _reads(self, stage: int) -> tuple[tuple[int, int], ...]:
        """Return the versions that a stage in execution has read."""
        if self.host is not None:
            return self.host.view(stage).read_set
        return self._read.setdefault(stage, self._resources.read(self._rendering.reads[stage]))

    def _schedule_writes(self, workflow: int, since_ns: int) -> None:
        """Without a host: write what others write from now on, at their times after `since_ns`."""
        for time_ns, key in self._rendering.external.get(workflow, ()):
            left_ns = since_ns + time_ns - self._clock.now()
            if left_ns >= 0:
                self._clock.later(left_ns, partial(self._resources.write, key))

    def _last_of(self, workflow: int) -> bool:
        """Say whether a call is the last stage of its workflow: nothing more of it will come."""
        left: int = self._left[workflow]
        return left == 1

    def _stage_done(self, stage: int) -> None:
        workflow = self._workflow[stage]
        if stage in self._finished or workflow in self.failures:
            return
        self._finished.add(stage)
        self._left[workflow] -= 1
        if self._kind[stage] == StageKind.WAIT:
            self._waited_ns[workflow] = self._waited_ns.get(workflow, 0) + self._duration_ns[stage]
        for i in range(self._children_ptr[stage], self._children_ptr[stage + 1]):
            child = self._children[i]
            self._waiting_for[child] -= 1
            if self._waiting_for[child] == 0:
                self._ready.append(child)
        if self._left[workflow] == 0:
            self._end(workflow, self._clock.now())

    def _fail(self, workflow: int, reason: str) -> None:
        self.failures[workflow] = reason
        for stage in [s for s in self._running if self._workflow[s] == workflow]:
            self.abandon(stage)
        self._failed_in_a_row += 1
        if self._failed_in_a_row >= _GONE_AFTER + self._concurrency and self._next < self.total:
            self._give_up()
        self._end(workflow, -1)
        self.pump()

    def _give_up(self) -> None:
        """The server is gone: what has not begun never will."""
        self.not_begun = self.total - self._next
        self.done += self.not_begun
        self._next = self.total

    def _end(self, workflow: int, finished_ns: int) -> None:
        self._row(workflow, finished_ns)
        del self._started_ns[workflow]
        self.done += 1
        self.completed += finished_ns >= 0
        if self.host is not None:
            self.host.closed(workflow)
        self._progress(self.done, self.total)
        if self.done == self.total:
            self.ended.set()
        elif self._next < self.total:
            self._clock.later(0, partial(self._begin, self._take()))

    # -- rows --------------------------------------------------------------------------------------------------

    def _row(self, workflow: int, finished_ns: int) -> None:
        started = self._started_ns[workflow]
        self._rows.add(
            "workflows",
            (
                workflow, started, started, finished_ns, self._stages[workflow] - self._left[workflow],
                self._requests[workflow], int(workflow in self.failures), self._waited_ns.pop(workflow, 0),
            ),
        )  # fmt: skip

    def _call_row(self, stage: int, status: str, reason: str) -> None:
        call = self._calls.pop(stage)
        self._rows.add(
            "requests",
            (
                stage, self._workflow[stage], self._agent[stage], 0, call.prompt_tokens, call.output_tokens,
                call.sent_ns, call.sent_ns, call.first_token_ns, self._clock.now() if status == "finished" else -1,
                call.cached_tokens, 0, call.prompt_tokens - call.cached_tokens, 0, 0, 0, 0, _STATUS[status],
                reason[:200],
            ),
        )  # fmt: skip


def _cancel(task: asyncio.Task[None]) -> None:
    task.cancel()
