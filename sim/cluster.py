"""The replicas behind one router, and the policies whose state belongs to the whole run."""

from __future__ import annotations

from typing import Any

from policies.api import HostInfo, RequestView, WorkflowView
from policies.registry import PolicySet
from policies.views import Forecast
from sim.engine import Engine
from sim.log import RunLog
from sim.request import Request
from traces.schema import Workload

_NS = 1_000


class Cluster:
    """Routes released LLM stages to replicas; tells predictors and evictors what workflows do. Methods mutate."""

    def __init__(
        self,
        workload: Workload,
        policies: PolicySet,
        host: HostInfo,
        log: RunLog,
        engines: list[Engine],
    ) -> None:
        self.engines = engines
        self._prompt: list[int] = workload.prompt_tokens.tolist()
        self._output: list[int] = workload.output_tokens.tolist()
        self._workflow: list[int] = workload.stage_workflow.tolist()
        self._agent: list[int] = workload.stage_agent.tolist()
        self._log = log
        self._router = policies.router
        self._router_state: Any = policies.router.new_state(host)
        self._predictor = policies.predictor
        self._predicts = policies.predictor.active()
        self._predictor_state: Any = policies.predictor.new_state(host) if self._predicts else None
        self._history: dict[int, list[int]] = {}

    def release(self, stage: int, now_ps: int) -> None:
        """A workflow issues the request of `stage` now."""
        workflow, agent = self._workflow[stage], self._agent[stage]
        view: RequestView | None = None
        replica = 0
        if len(self.engines) > 1:
            view = RequestView(stage, workflow, agent, now_ps // _NS, self._prompt[stage])
            replica = self._router.pick(self._router_state, view, self.engines)
            self._log.add("decisions", (now_ps // _NS, replica, "routers", "pick", workflow, stage, replica))
        engine = self.engines[replica]
        priority = 0
        if engine.config.queue == "priority":
            view = view or RequestView(stage, workflow, agent, now_ps // _NS, self._prompt[stage])
            priority = self._router.priority(self._router_state, view)
        if self._predicts:
            self._forecast(workflow, agent, now_ps // _NS)
        engine.submit(
            Request(stage, workflow, agent, self._prompt[stage], self._output[stage], now_ps, priority)
        )

    def workflow_finished(self, workflow: int) -> None:
        """No further request of `workflow` will come."""
        for engine in self.engines:
            engine.workflow_finished(workflow)
        self._history.pop(workflow, None)

    def _forecast(self, workflow: int, agent: int, now_ns: int) -> None:
        history = self._history.setdefault(workflow, [])
        history.append(agent)
        view = WorkflowView(workflow, tuple(history), now_ns)
        self._predictor.observe(self._predictor_state, view)
        probability = self._predictor.forecast(self._predictor_state, view)
        forecast = Forecast(workflow, now_ns, probability)
        for engine in self.engines:
            engine.forecast(forecast)
