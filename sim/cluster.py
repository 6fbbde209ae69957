"""The replicas behind one router, and the policies whose state belongs to the whole run."""

from __future__ import annotations

from typing import Any

import numpy as np

from policies.api import HostInfo, RequestView
from policies.registry import PolicySet
from policies.views import Forecast, ReuseName, StageView
from sim.engine import Engine
from sim.forecasts import ForecastStream
from sim.log import RunLog
from sim.request import Request
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
        self._engine_of: dict[int, Engine] = {}  # workflow -> where its newest request went
        self._reuse = policies.reuse
        self._reuses = policies.reuse.active()
        self._reuse_state: Any = policies.reuse.new_state(host) if self._reuses else None
        self._results: set[ReuseName] = set()
        self._inputs = _inputs(workload) if self._reuses else []

    def release(self, stage: int, now_ps: int) -> None:
        """A workflow issues the request of `stage` now."""
        workflow, agent = self._workflow[stage], self._agent[stage]
        view: RequestView | None = None
        replica = 0
        if len(self.engines) > 1:
            view = RequestView(stage, stage, workflow, agent, now_ps // _NS, self._prompt[stage])
            replica = self._router.pick(self._router_state, view, self.engines)
            self._log.add("decisions", (now_ps // _NS, replica, "routers", "pick", workflow, stage, replica))
        engine = self.engines[replica]
        priority = 0
        if engine.config.queue == "priority":
            view = view or RequestView(stage, stage, workflow, agent, now_ps // _NS, self._prompt[stage])
            priority = self._router.priority(self._router_state, view)
        if self._forecasts is not None:
            self._engine_of[workflow] = engine
            self._forecasts.released(engine.env, workflow, stage, agent)
        engine.submit(
            Request(stage, workflow, agent, self._prompt[stage], self._output[stage], now_ps, priority)
        )

    def served(self, stage: int, now_ps: int) -> bool:
        """Say whether a finished result serves `stage`, outermost name first; it then issues no request."""
        if not self._reuses:
            return False
        for rank, name in enumerate(self._reuse.names(self._reuse_state, self._stage_view(stage))):
            if name in self._results:
                row = (now_ps // _NS, -1, "reuse", "served", self._workflow[stage], stage, rank)
                self._log.add("decisions", row)
                return True
        return False

    def stage_finished(self, stage: int) -> None:
        """The request of `stage` ended well: its result exists under its names."""
        if self._reuses:
            self._results.update(self._reuse.names(self._reuse_state, self._stage_view(stage)))

    def _stage_view(self, stage: int) -> StageView:
        agent = self._agent[stage]
        return StageView(self._workflow[stage], stage, agent, agent, self._inputs[stage])

    def workflow_finished(self, workflow: int) -> None:
        """No further request of `workflow` will come."""
        for engine in self.engines:
            engine.workflow_finished(workflow)
        self._engine_of.pop(workflow, None)
        if self._forecasts is not None:
            self._forecasts.finished(workflow, self.engines[0].env.now // _NS)

    def _charge(self, workflow: int, cost_ps: int) -> None:
        self._engine_of[workflow].owe(cost_ps)

    def _forecast(self, forecast: Forecast) -> None:
        for engine in self.engines:
            engine.forecast(forecast)


def _inputs(workload: Workload) -> list[int]:
    """Return a fingerprint of each stage's realised input: equal only where the trace proves equality.

    A prompt whose every token has an identity is the same as another when both end at the same place of the
    same segment; any other prompt equals none.
    """
    whole = workload.prompt_shared_tokens == workload.prompt_tokens
    known = (workload.prompt_segment.astype(np.int64) << 32) | workload.prompt_tokens
    return np.where(whole, known, -1 - np.arange(workload.n_stages)).tolist()  # type: ignore[no-any-return]
