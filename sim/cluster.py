"""The replicas behind one router, and the policies whose state belongs to the whole run."""

from __future__ import annotations

from typing import Any

from policies.api import HostInfo, RequestView
from policies.branch_events import Launch
from policies.registry import PolicySet
from policies.views import Forecast
from sim.engine import Engine
from sim.forecasts import ForecastStream
from sim.log import RunLog
from sim.request import Request
from traces.dataflow import depths
from traces.schema import Workload

_NS = 1_000


class Cluster:
    """Routes released LLM stages to replicas; tells predictors and evictors what happens. Methods mutate.

    on_step   forecasts are paid by the step of the engine that got the request
    """

    def __init__(
        self,
        workload: Workload,
        policies: PolicySet,
        host: HostInfo,
        log: RunLog,
        engines: list[Engine],
        *,
        on_step: bool = False,
    ) -> None:
        self.engines = engines
        self._prompt: list[int] = workload.prompt_tokens.tolist()
        self._output: list[int] = workload.output_tokens.tolist()
        self._workflow: list[int] = workload.stage_workflow.tolist()
        self._agent: list[int] = workload.stage_agent.tolist()
        self._log = log
        self._router = policies.router
        self._router_state: Any = policies.router.new_state(host)
        self._forecasts: ForecastStream | None = None
        if policies.predictor.active():
            self._forecasts = ForecastStream(
                policies.predictor, workload, host, self._forecast, self._charge if on_step else None
            )
        self._depth = depths(workload) if policies.router.reads_dataflow else None
        self._home: dict[int, int] = {}  # workflow -> replica of its newest request

    def request(self, stage: int, now_ps: int) -> Request:
        """Return the request of `stage`, which its workflow issues now, with the replica that gets it."""
        workflow, agent = self._workflow[stage], self._agent[stage]
        view: RequestView | None = None
        replica = 0
        if len(self.engines) > 1:
            view = self._view(stage, stage, now_ps)
            replica = self._router.pick(self._router_state, view, self.engines)
            self._log.add("decisions", (now_ps // _NS, replica, "routers", "pick", workflow, stage, replica))
        engine = self.engines[replica]
        priority = 0
        if engine.config.queue == "priority":
            view = view or self._view(stage, stage, now_ps)
            priority = self._router.priority(self._router_state, view)
        self._home[workflow] = replica
        if self._forecasts is not None:
            self._forecasts.released(engine.env, workflow, stage, agent)
        request = Request(stage, workflow, agent, self._prompt[stage], self._output[stage], now_ps, priority)
        request.replica = replica
        return request

    def fill(self, stage: int, number: int, launch: Launch, now_ps: int) -> Request:
        """Return the request `number` of a fill's stage, with the replica that gets it.

        Routing "affine" takes the replica with most of the prompt in its cache, "other" the least loaded one that is
        not the workflow's own, if there is one.
        """
        workflow, agent = self._workflow[stage], self._agent[stage]
        request = Request(
            stage,
            workflow,
            agent,
            self._prompt[stage],
            self._output[stage],
            now_ps,
            0,
            number=number,
            fill=True,
            low=launch.priority == "low",
        )
        request.replica = self._place(self._view(number, stage, now_ps), launch.routing)
        return request

    def cached(self, stage: int, routing: str, now_ps: int) -> int:
        """Return the prompt tokens of `stage` resident on the replica that a fill of it would get now."""
        view = self._view(-1, stage, now_ps)
        return self.engines[self._place(view, routing)].cached_tokens(view)

    def _place(self, view: RequestView, routing: str) -> int:
        home = self._home.get(view.workflow, 0)

        def burden(engine: Engine) -> tuple[int, int, int]:
            first = -engine.cached_tokens(view) if routing == "affine" else int(engine.index == home)
            return first, engine.running + engine.waiting, engine.index

        return min(self.engines, key=burden).index if len(self.engines) > 1 else 0

    def _view(self, number: int, stage: int, now_ps: int) -> RequestView:
        depth = 0 if self._depth is None else self._depth[stage]
        workflow, agent, prompt = self._workflow[stage], self._agent[stage], self._prompt[stage]
        return RequestView(number, stage, workflow, agent, now_ps // _NS, prompt, depth=depth)

    def submit(self, request: Request) -> None:
        """Hand a request to its replica."""
        self.engines[request.replica].submit(request)

    def abort(self, request: Request) -> None:
        """Stop a request."""
        self.engines[request.replica].abort(request)

    def lend(self, workflow: int, time_ps: int) -> None:
        """Take `time_ps` of the replica that a workflow is on, for a drafter beside it; idle, it lends freely."""
        engine = self.engines[self._home.get(workflow, 0)]
        if engine.stepping:
            engine.owe(time_ps)

    def workflow_finished(self, workflow: int) -> None:
        """No further request of `workflow` will come."""
        self._home.pop(workflow, None)
        for engine in self.engines:
            engine.workflow_finished(workflow)
        if self._forecasts is not None:
            self._forecasts.finished(workflow, self.engines[0].env.now // _NS)

    def _charge(self, workflow: int, cost_ps: int) -> None:
        self.engines[self._home[workflow]].owe(cost_ps)

    def _forecast(self, forecast: Forecast) -> None:
        for engine in self.engines:
            engine.forecast(forecast)
