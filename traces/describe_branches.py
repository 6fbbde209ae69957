"""What the branches of a workload hold: candidates, coverage, overlap, recurrence, and what was not taken."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

import numpy as np

from traces.branches import StageFlag
from traces.coverage import coverage
from traces.overlap import Nominal, durations_ns, overlap
from traces.rendering import Rendering
from traces.schema import StageKind, Workload


def describe_branches(workload: Workload) -> dict[str, Any] | None:
    """Return the description as plain data, None where there are no branches. Does not mutate."""
    b = workload.branches
    if b is None:
        return None
    lost = ~workload.canonical()
    cost = Nominal()
    return coverage(b) | {
        "overlap": asdict(overlap(workload, cost)) | {"costs": asdict(cost)},
        "repeated_inputs": repeated_inputs(workload, cost),
        "not_taken": {
            "llm": int(np.count_nonzero(lost & (workload.stage_kind == StageKind.LLM))),
            "tool": int(np.count_nonzero(lost & (workload.stage_kind == StageKind.TOOL))),
        },
        "speculable_stages": int(np.count_nonzero((b.stage_flags & StageFlag.SPECULABLE) != 0)),
        "mutating_stages": int(np.count_nonzero(((b.stage_flags & StageFlag.MUTATING) != 0) & ~lost)),
        "writes_from_outside": len(b.external_key),
        "subgraphs": len(b.subgraph_first),
    }


def repeated_inputs(workload: Workload, cost: Nominal) -> dict[str, Any]:
    """Return how much of the recorded run has inputs that an earlier stage had, workflows in their order.

    Inputs are rendered with nothing ever written, so that it is what a cache without end or invalidation could
    serve, stage by stage. Per agent and in all: share of stages, and share of the time of all stages but waits.
    """
    b = workload.branches
    assert b is not None
    rendering = Rendering(workload)
    took = durations_ns(workload, cost)
    values: dict[int, int] = {}
    seen: set[tuple[int, int, int]] = set()
    again = np.zeros(workload.n_stages, dtype=bool)
    canonical = np.flatnonzero(workload.canonical() & (workload.stage_kind != StageKind.WAIT))
    for s in np.flatnonzero(workload.canonical()).tolist():
        rendered = rendering.rendered(s, values)
        values[s] = rendering.value(s, rendered, tuple((k, 0) for k in rendering.reads[s]))
        name = (rendering.fingerprint[s], rendered, rendering.params[s])
        again[s] = rendering.speculable[s] and name in seen
        seen.add(name)

    def shares(stages: np.ndarray[Any, np.dtype[np.int64]]) -> dict[str, float]:
        time = float(took[stages].sum())
        return {
            "stages": round(float(again[stages].mean()), 4) if len(stages) else 0.0,
            "time": round(float(took[stages][again[stages]].sum()) / time, 4) if time else 0.0,
        }

    agents = workload.stage_agent[canonical]
    return shares(canonical) | {
        "by_agent": {
            name: shares(canonical[agents == i])
            for i, name in enumerate(workload.agents)
            if np.any(agents == i)
        }
    }
