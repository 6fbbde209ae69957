"""Predictions in virtual time: what the predictor is told, and when its forecasts reach the replicas.

A forecast that costs nothing arrives at once. One that costs time is computed on a stream of its own, beside the
engines' steps: the stream takes all workflows that wait, computes one batch, and delivers it when it is done. A
workflow that moves on meanwhile waits for the next batch with its newest prefix. On the step (`charge`), what is
released at one instant is one batch, forecast at once, and lengthens the engine's next step.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import simpy

from policies.api import HostInfo, Predictor, WorkflowView
from policies.training.text import TextStream
from policies.views import Forecast
from sim.clock import PRIORITY_ARRIVAL, PRIORITY_PLAN, PS_PER_NS, Clock, call_after
from traces.schema import Workload


class ForecastStream:
    """One predictor for the whole run; `deliver(forecast)` hands each forecast on. Methods mutate.

    charge   None: forecasts that cost time arrive later; else called with (workflow, ps) for each workflow of a batch,
             which share its cost
    """

    def __init__(
        self,
        predictor: Predictor[Any],
        workload: Workload,
        host: HostInfo,
        deliver: Callable[[Forecast], None],
        charge: Callable[[int, int], None] | None = None,
    ) -> None:
        self._predictor = predictor
        self._state: Any = predictor.new_state(host)
        self._profile = host.profile
        self._deliver = deliver
        self._charge = charge
        self._text = TextStream(workload) if predictor.reads_text else None
        self._history: dict[int, list[int]] = {}
        self._waiting: dict[int, WorkflowView] = {}
        self._busy = False
        self._costs = predictor.cost_ps(host.profile, 1) > 0

    def released(self, env: Clock, workflow: int, stage: int, agent: int) -> None:
        """A workflow issues the request of `stage`, run by `agent`, now."""
        history = self._history.setdefault(workflow, [])
        history.append(agent)
        features = self._text.vector(stage) if self._text is not None else None
        view = WorkflowView(workflow, tuple(history), env.now // PS_PER_NS, features)
        self._predictor.observe(self._state, view)
        if not self._costs:
            self._deliver(Forecast(workflow, view.now_ns, self._predictor.forecast(self._state, view)))
            return
        self._waiting[workflow] = view
        if not self._busy:
            self._busy = True
            # Whatever else is released at this instant joins the batch.
            call_after(env, 0, PRIORITY_PLAN - 1, self._begin)

    def finished(self, workflow: int, now_ns: int) -> None:
        """No further request of `workflow` will come; a forecast on its way is dropped."""
        agents = self._history.pop(workflow, None)
        self._waiting.pop(workflow, None)
        if agents is not None:
            self._predictor.workflow_finished(self._state, WorkflowView(workflow, tuple(agents), now_ns))

    def _begin(self, event: simpy.Event) -> None:
        env: Any = event.env
        batch = list(self._waiting.values())
        self._waiting.clear()
        if not batch:
            self._busy = False
            return
        cost_ps = self._predictor.cost_ps(self._profile, len(batch))
        if self._charge is not None:
            for n, view in enumerate(batch):
                self._charge(view.workflow, cost_ps // len(batch) + (n < cost_ps % len(batch)))

        def done(_: simpy.Event) -> None:
            alive = [view for view in batch if view.workflow in self._history]
            forecasts = self._predictor.forecasts(self._state, alive) if alive else []
            for view, probability in zip(alive, forecasts, strict=True):
                self._deliver(Forecast(view.workflow, env.now // PS_PER_NS, probability))
            if self._waiting:
                call_after(env, 0, PRIORITY_PLAN - 1, self._begin)
            else:
                self._busy = False

        if self._charge is not None:
            done(event)
        else:
            call_after(env, cost_ps, PRIORITY_ARRIVAL, done)
