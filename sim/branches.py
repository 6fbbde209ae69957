"""The simulator as a world of the speculation controller: its engines and its clock execute what the host is told.

What a stage returns is computed by the workload's truth function from what was really rendered and read.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from policies.branch_events import HostLoad
from policies.branch_hosting.fills import EngineColumns, Fill
from policies.branch_hosting.host import BranchHost
from policies.branch_hosting.views import BranchViews
from policies.branching import Controller
from sim.canonical_load import CanonicalLoad
from sim.clock import PRIORITY_ARRIVAL, PS_PER_NS, Clock, call_after
from sim.log import RunLog
from sim.request import Request
from traces.schema import StageKind, Workload

if TYPE_CHECKING:
    from sim.cluster import Cluster
    from sim.flow import Flow


class SimulatedBranches:
    """A `World` in virtual time, and what flow and engines tell its host. Every method mutates."""

    ticks_per_ns = PS_PER_NS

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
        self._cluster = cluster
        self._flow = flow
        self._colocated = colocated
        self._load = CanonicalLoad(cluster.engines)
        self._requests: dict[int, tuple[Fill, int]] = {}
        self._next_request = workload.n_stages
        self.host = BranchHost(self, views, controller, log)

    # -- what canonical flow says ----------------------------------------------------------------------------

    def begin(self, workflow: int) -> None:
        """A workflow starts."""
        self.host.begin(workflow)

    def demand(self, stage: int) -> None:
        """A stage's parents are done."""
        self.host.demand(stage)

    def done(self, stage: int) -> None:
        """A canonical execution ended well."""
        view = self.host.view(stage)
        self.host.done(stage, self._views.rendering.value(stage, view.rendered_input, view.read_set))

    def closed(self, workflow: int) -> None:
        """A workflow ended, well or badly."""
        self.host.closed(workflow)

    # -- what engines say --------------------------------------------------------------------------------------

    def fill_ended(self, request: Request, finished_ps: int, status: str) -> None:
        """An engine is done with a fill, in whatever way."""
        fill, position = self._requests[request.number]
        if status == "aborted":
            del self._requests[request.number]
        self.host.fill_over(fill, position, status)

    def fill_done(self, request: Request, finished: bool) -> None:
        """An engine finished a fill's stage, or refused it."""
        fill, position = self._requests.pop(request.number)
        if finished:
            engine_ns = (self._env.now - max(request.admitted_ps, 0)) // PS_PER_NS
            self._returned(fill, position, engine_ns)
        else:
            self.host.fill_failed(fill, "rejected")

    def _returned(self, fill: Fill, position: int, engine_ns: int) -> None:
        at = fill.stages[position]
        value = self._views.rendering.value(at.stage, at.view.rendered_input, at.view.read_set)
        self.host.fill_done(fill, position, value, engine_ns)

    # -- what the host asks for --------------------------------------------------------------------------------

    def now(self) -> int:
        """Return the time in ps."""
        return self._env.now

    def later(self, ticks: int, call: Callable[[], None]) -> None:
        """Call back in virtual time."""
        call_after(self._env, ticks, PRIORITY_ARRIVAL, lambda _: call())

    def load(self) -> HostLoad:
        """Return canonical demand as of now."""
        return self._load.now(self._env.now)

    def resident_tokens(self, stage: int, routing: str) -> int:
        """Return how much of the prompt is resident on the replica that a fill would go to."""
        return self._cluster.cached(stage, routing, self._env.now)

    def draft(self, workflow: int, cost_ns: int) -> None:
        """A drafter on the engines' own devices takes its time from them."""
        if self._colocated:
            self._cluster.lend(workflow, cost_ns * PS_PER_NS)

    def truth(self, stage: int, rendered: int, reads: tuple[tuple[int, int], ...]) -> int:
        """Return what the stage would return."""
        return self._views.rendering.value(stage, rendered, reads)

    def run_fill(self, fill: Fill, position: int) -> None:
        """Submit a request, or wait for a tool."""
        at = fill.stages[position]
        if self._views.kind[at.stage] == StageKind.LLM:
            number = self._next_request
            self._next_request += 1
            at.work = self._cluster.fill(at.stage, number, fill.launch, self._env.now)
            self._requests[number] = fill, position
            self._cluster.submit(at.work)
            return

        def over() -> None:
            if fill.live and not at.status:
                self.host.fill_over(fill, position, "finished")
                self._returned(fill, position, 0)

        self.later(self._flow.duration_ps(at.stage), over)

    def stop_fill(self, fill: Fill, position: int) -> bool:
        """Abort the request, if there is one."""
        request = fill.stages[position].work
        if request is None:
            return False
        self._cluster.abort(request)
        return True

    def engine_columns(self, work: Any) -> EngineColumns:
        """Return what the engine knows of a fill's request."""
        r: Request = work
        return EngineColumns(
            r.replica, r.admitted_ps, r.first_token_ps, r.prompt_tokens, r.generated, r.gpu_hit_tokens,
            r.host_hit_tokens, r.prefilled_tokens, r.recomputed_tokens, r.preemptions, r.share_ps // PS_PER_NS,
        )  # fmt: skip

    def execute(self, stage: int) -> None:
        """Execute a canonical stage."""
        self._flow.execute(stage)

    def finish(self, stage: int) -> None:
        """A canonical stage has a result."""
        self._flow.finish(stage)

    def abandon(self, stage: int) -> None:
        """Stop the execution of a canonical stage."""
        self._flow.abandon(stage)

    def pump(self) -> None:
        """Release what became ready at this instant."""
        self._flow.pump()
