"""The live host as a world of the speculation controller: real requests, timers for tools, the event loop's clock.

A controller, policy or host that raises is left behind: its fills are cancelled, and from then on every stage is
executed. Serving goes on, and the run says what happened.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

from live.agents.calls import Call, Caller
from live.agents.clock import Clock, ended, started
from live.agents.flow import Flow
from live.agents.load import ServerLoad
from policies.branch_events import HostLoad
from policies.branch_hosting.fills import EngineColumns, Fill
from policies.branch_hosting.host import BranchHost
from policies.branch_hosting.views import BranchViews
from policies.branch_hosting.world import Rows
from policies.branching import Controller
from policies.views import StageView
from traces.schema import StageKind, Workload


@dataclass
class _Work:
    """A fill's request in the server."""

    call: Call
    task: asyncio.Task[None]


class LiveBranches:
    """A `World` in real time, and what flow tells its host. Methods mutate, unless they say otherwise.

    broken   why the host was left behind, "" while it works
    fill_failures   what the server said to fills that failed, and how often
    """

    ticks_per_ns = 1

    def __init__(
        self,
        workload: Workload,
        views: BranchViews,
        controller: Controller,
        caller: Caller,
        flow: Flow,
        clock: Clock,
        load: ServerLoad,
        rows: Rows,
    ) -> None:
        self._views, self._caller, self._flow, self._clock, self._load = views, caller, flow, clock, load
        self._duration_ns: list[int] = workload.stage_duration_ns.tolist()
        self._works: dict[tuple[int, int], _Work] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self.broken = ""
        self.fill_output_tokens = 0
        self.fill_failures: Counter[str] = Counter()
        self.host = BranchHost(self, views, controller, rows)

    # -- what canonical flow says, and what may go wrong -------------------------------------------------------

    def start(self) -> None:
        """Begin the run."""
        self._try(self.host.start)

    def begin(self, workflow: int) -> None:
        """A workflow starts."""
        self._try(self.host.begin, workflow)

    def demand(self, stage: int) -> None:
        """A stage's parents are done."""
        self._try(self.host.demand, stage)

    def view(self, stage: int) -> StageView:
        """Return a demanded stage with the versions that it read. Does not mutate."""
        return self.host.view(stage)

    def done(self, stage: int, value: int) -> None:
        """A canonical execution ended well."""
        self._try(self.host.done, stage, value)

    def closed(self, workflow: int) -> None:
        """A workflow ended, well or badly."""
        self._try(self.host.closed, workflow)

    def stop(self) -> None:
        """Cancel what is running; write the rows of what is open."""
        self._try(self.host.stop)
        for work in list(self._works.values()):
            work.task.cancel()

    async def settle(self) -> None:
        """Wait until cancelled requests have closed their connections."""
        await ended(self._tasks)

    def _try(self, call: Callable[..., None], *args: Any) -> None:
        if self.broken:
            return
        try:
            call(*args)
        except Exception as e:  # whatever a policy raises
            self.broken = f"{type(e).__name__}: {e}" if str(e) else type(e).__name__
            for work in list(self._works.values()):
                work.task.cancel()
            with contextlib.suppress(Exception):
                self.host.stop()  # the rows of what it had launched
            self._flow.resume(self.host.resources)

    # -- what the host asks for --------------------------------------------------------------------------------

    def now(self) -> int:
        """Return the time in ns."""
        return self._clock.now()

    def later(self, ticks: int, call: Callable[[], None]) -> None:
        """Call back, unless the host was left behind by then."""
        self._clock.later(ticks, lambda: self._try(call))

    def load(self) -> HostLoad:
        """Return canonical demand as of the last poll."""
        return self._load.now()

    def resident_tokens(self, stage: int, routing: str) -> int:
        """Return 0: a client cannot see into a server's prefix cache."""
        return 0

    def draft(self, workflow: int, cost_ns: int) -> None:
        """Drafting runs in the policy, or (a trace's own time) beside the server."""

    def truth(self, stage: int, rendered: int, reads: tuple[tuple[int, int], ...]) -> int | None:
        """Return what a tool would return; nobody knows what a model would."""
        if self._views.kind[stage] == StageKind.LLM:
            return None
        return self._views.rendering.value(stage, rendered, reads)

    def run_fill(self, fill: Fill, position: int) -> None:
        """Send a request, or wait for a tool."""
        at = fill.stages[position]
        if self._views.kind[at.stage] == StageKind.LLM:
            call = self._caller.call(
                at.stage, fill.values, at.view.read_set, fill=True, low=fill.launch.priority == "low"
            )
            task = started(self._filled(fill, position, call))
            at.work = self._works[fill.id, position] = _Work(call, task)
            self._tasks.add(task)
            task.add_done_callback(partial(self._over, fill.id, position))
            return

        def over() -> None:
            if fill.live and not at.status:
                self.host.fill_over(fill, position, "finished")
                value = self._views.rendering.value(at.stage, at.view.rendered_input, at.view.read_set)
                self.host.fill_done(fill, position, value, 0)

        self.later(self._duration_ns[at.stage], over)

    async def _filled(self, fill: Fill, position: int, call: Call) -> None:
        value = await self._caller.answer(call)
        if fill.stages[position].status:
            return
        self._try(self._answered, fill, position, call, value)

    def _over(self, fill: int, position: int, task: asyncio.Task[None]) -> None:
        """A request is over; one that was cancelled before it began never ran a line of its own."""
        self._works.pop((fill, position), None)
        self._tasks.discard(task)

    def _answered(self, fill: Fill, position: int, call: Call, value: int | None) -> None:
        took_ns = self._clock.now() - call.sent_ns
        if value is None:
            self.fill_failures[call.failure] += 1
            self.host.fill_over(fill, position, "rejected")
            self.host.fill_failed(fill, call.failure, took_ns)
            return
        self.fill_output_tokens += call.output_tokens
        self.host.fill_over(fill, position, "finished")
        self.host.fill_done(fill, position, value, took_ns)

    def stop_fill(self, fill: Fill, position: int) -> bool:
        """Close the connection of a fill's request, if there is one."""
        at = fill.stages[position]
        if at.work is None:
            return False
        if not at.status:
            at.work.task.cancel()
            self.host.fill_over(fill, position, "aborted")
        return True

    def engine_columns(self, work: Any) -> EngineColumns:
        """Return what the server said of a fill's request."""
        c: Call = work.call
        return EngineColumns(
            0, c.sent_ns, c.first_token_ns, c.prompt_tokens, c.output_tokens, c.cached_tokens,
            prefilled_tokens=c.prompt_tokens - c.cached_tokens,
        )  # fmt: skip

    def execute(self, stage: int) -> None:
        """Execute a canonical stage."""
        self._flow.execute(stage)

    def finish(self, stage: int) -> None:
        """A canonical stage has a result."""
        value = self.host.values(self._views.workflow[stage])[stage]
        self._flow.finish(stage, value)

    def abandon(self, stage: int) -> None:
        """Stop the execution of a canonical stage."""
        self._flow.abandon(stage)

    def pump(self) -> None:
        """Release what became ready."""
        self._flow.pump()
