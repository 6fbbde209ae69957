"""Another predictor's forecasts, given to the wrong workflows: a control whose gain must vanish."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from policies.api import HostInfo, Predictor, Profile, WorkflowView
from policies.training.inner import load_inner
from traces.errors import InputError


class Shuffle:
    """The inner predictor's state, and how far each workflow in progress has got. Mutated by its owner.

    views   workflow -> its newest view
    """

    def __init__(self, inner: Any, host: HostInfo) -> None:
        self.inner = inner
        self.host = host
        self.views: dict[int, WorkflowView] = {}

    def other(self, workflow: WorkflowView) -> WorkflowView:
        """Return the view of a workflow in progress that is not this one, drawn; its own where it is alone."""
        others = [w for w in self.views if w != workflow.workflow]
        if not others:
            return workflow
        luck = self.host.draw("shuffled forecast", workflow.workflow, len(workflow.agents))
        return self.views[others[int(luck * len(others))]]


@dataclass(frozen=True)
class Shuffled(Predictor[Shuffle]):
    """What the inner predictor says of another workflow in progress, drawn anew at each step.

    All that is left of a forecast is how often each agent runs in general.

    inner   the predictor whose forecasts are shuffled, built in or installed: `markov`, `markov(order=1)`
    agents  also exchange the agents within each forecast, one exchange for each workflow and step, END where it
            was: then nothing is left but how sure the forecasts are
    """

    inner: str = "markov"
    agents: bool = False
    label = "shuffled forecast"
    source = "a negative control: protocol P-9"

    def __post_init__(self) -> None:
        inner = load_inner(self.inner, self)
        if "oracle" in inner.needs:
            raise InputError(
                f"inner={self.inner}: an oracle answers for a workflow as it is, not for a prefix"
            )
        object.__setattr__(self, "reads_text", inner.reads_text)

    def files(self) -> tuple[Path, ...]:
        """Return the inner predictor's files."""
        return load_inner(self.inner, self).files()

    def active(self) -> bool:
        """Say what the inner predictor says."""
        return load_inner(self.inner, self).active()

    def new_state(self, host: HostInfo) -> Shuffle:
        """Return the inner predictor's state, no workflow seen."""
        return Shuffle(load_inner(self.inner, self).new_state(host), host)

    def observe(self, state: Shuffle, workflow: WorkflowView) -> None:
        """Note how far the workflow is; pass the event on. Mutates state."""
        state.views[workflow.workflow] = workflow
        load_inner(self.inner, self).observe(state.inner, workflow)

    def workflow_finished(self, state: Shuffle, workflow: WorkflowView) -> None:
        """Forget the workflow; pass the event on. Mutates state."""
        state.views.pop(workflow.workflow, None)
        load_inner(self.inner, self).workflow_finished(state.inner, workflow)

    def forecast(self, state: Shuffle, workflow: WorkflowView) -> NDArray[np.float32]:
        """Return float32[K, agents + 1], K as the inner predictor's."""
        p = load_inner(self.inner, self).forecast(state.inner, state.other(workflow))
        if not self.agents:
            return p
        width = p.shape[1] - 1
        place = (workflow.workflow, len(workflow.agents))
        order = np.argsort(
            [state.host.draw("shuffled agents", *place, a) for a in range(width)], kind="stable"
        )
        return p[:, [*order.tolist(), width]]

    def cost_ps(self, profile: Profile, workflows: int) -> int:
        """Return the inner predictor's cost in ps."""
        return load_inner(self.inner, self).cost_ps(profile, workflows)
