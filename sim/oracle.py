"""The truth, for offline references: the order in which a recorded run admitted requests.

The future shifts with the policy, so no exact future exists in a closed loop. The record is taken under LRU,
and a node's next use is the earliest recorded admission, among requests not admitted yet in this run, that
would read it ("Belady-leaf on the recorded LRU trace").
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from policies.views import CacheNode
from sim.kv.paths import PrefixPaths
from sim.kv.radix import Node
from traces.schema import StageKind, Workload

NEVER = 1 << 62


class RecordedOracle:
    """Next uses by recorded rank. Mutated by `admitted`."""

    def __init__(self, workload: Workload, paths: PrefixPaths, admission_order: list[int]) -> None:
        self._paths = paths
        self._admitted = bytearray(workload.n_stages)
        self._uses: dict[int, list[tuple[int, int]]] = {}
        self._next: dict[int, int] = {}
        for rank, stage in enumerate(admission_order):
            segment = paths.prompt_segment[stage]
            while segment >= 0:
                self._uses.setdefault(segment, []).append((rank, stage))
                segment = paths.parent[segment]
        self._away_ns = _away_ns(workload)
        self._agents_ahead = _agents_by_workflow(workload)
        self._n_agents = len(workload.agents)
        self._progress: dict[int, int] = {}
        self._workflow = workload.stage_workflow.tolist()
        self._output_ptr, self._output_ids = workload.output_ptr, workload.output_ids
        self._output_tokens = workload.output_tokens

    def admitted(self, stage: int) -> None:
        """A replica admitted the request of `stage`: it is no future use any more."""
        if not self._admitted[stage]:
            self._admitted[stage] = 1
            workflow = self._workflow[stage]
            self._progress[workflow] = self._progress.get(workflow, 0) + 1

    def next_use(self, node: CacheNode) -> int:
        """Return the recorded rank of the next admission that reads `node`, `NEVER` if none. Mutates."""
        assert isinstance(node, Node)
        uses = self._uses.get(node.segment)
        if node.segment < 0 or uses is None:
            return NEVER
        i = self._next.get(node.segment, 0)
        while i < len(uses) and self._admitted[uses[i][1]]:
            i += 1
        self._next[node.segment] = i
        blocks = self._paths.prompt_blocks
        for rank, stage in uses[i:]:
            if not self._admitted[stage] and blocks[stage] > node.start:
                return rank
        return NEVER

    def away_ns(self, stage: int) -> int:
        """Return the time from the end of a request to the next one that waits for it, `NEVER` where none does."""
        return self._away_ns[stage] if stage >= 0 else 0

    def forecast(self, workflow: int, steps: int, released: int | None = None) -> NDArray[np.float32]:
        """Return float32[steps, agents + 1], one-hot rows of the true next agents; the last column is END.

        Where stages of a workflow run at once, "next" follows the trace's order.
        """
        start = self._progress.get(workflow, 0) if released is None else released
        ahead = self._agents_ahead[workflow][start:][:steps]
        out = np.zeros((steps, self._n_agents + 1), dtype=np.float32)
        for k in range(steps):
            out[k, ahead[k] if k < len(ahead) and ahead[k] >= 0 else self._n_agents] = 1.0
        return out

    def output_tokens(self, stage: int, position: int, count: int) -> NDArray[np.uint32]:
        """Return at most `count` recorded output tokens of `stage` from `position` on; zeros without ids."""
        if self._output_ptr is None or self._output_ids is None:
            return np.zeros(max(min(count, int(self._output_tokens[stage]) - position), 0), dtype=np.uint32)
        start = int(self._output_ptr[stage]) + position
        return self._output_ids[start : min(start + count, int(self._output_ptr[stage + 1]))]


def _agents_by_workflow(workload: Workload) -> list[list[int]]:
    out: list[list[int]] = [[] for _ in range(workload.n_workflows)]
    llm = np.flatnonzero(workload.stage_kind == StageKind.LLM)
    for stage in llm.tolist():
        out[int(workload.stage_workflow[stage])].append(int(workload.stage_agent[stage]))
    return out


def _away_ns(workload: Workload) -> list[int]:
    """Return, by stage, the tools' and waits' time down to the nearest LLM stage below it; `NEVER` without one."""
    kind, duration = workload.stage_kind.tolist(), workload.stage_duration_ns.tolist()
    ptr, idx = workload.parent_ptr.tolist(), workload.parent_idx.tolist()
    away = [NEVER] * workload.n_stages
    for stage in range(workload.n_stages - 1, -1, -1):  # children before parents
        ahead = 0 if kind[stage] == StageKind.LLM else away[stage] + duration[stage]
        for parent in idx[ptr[stage] : ptr[stage + 1]]:
            away[parent] = min(away[parent], ahead)
    return away
