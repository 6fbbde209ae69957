"""How much of a workload's prompts an infinite prefix cache would have held already."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from traces.schema import StageKind, Workload

Int64 = NDArray[np.int64]


@dataclass(frozen=True)
class Reuse:
    """Per LLM stage, in replay order: int64[n] each, in tokens.

    stage           the stage
    prompt_tokens   its prompt
    hit_tokens      leading prompt tokens that some earlier stage's prompt or output held
    own_hit_tokens  leading prompt tokens that an earlier stage of the same workflow held; at most hit_tokens
    """

    stage: Int64
    prompt_tokens: Int64
    hit_tokens: Int64
    own_hit_tokens: Int64

    def block_rate(self, hits: Int64, block_tokens: int) -> float:
        """Return hit blocks over prompt blocks, a partial last block counting as one."""
        blocks = int(np.sum(-(-self.prompt_tokens // block_tokens)))
        return float(np.sum(-(-hits // block_tokens))) / blocks if blocks else 0.0

    def token_rate(self, hits: Int64) -> float:
        """Return hit tokens over prompt tokens."""
        total = int(self.prompt_tokens.sum())
        return float(hits.sum()) / total if total else 0.0


def prefix_reuse(workload: Workload) -> Reuse:
    """Replay all LLM stages, workflows by arrival, against a cache that never evicts.

    A stage's prompt and output are in the cache once it has been replayed. One visit a segment and one a
    request: no cost per token.
    """
    order = _replay_order(workload)
    prompt = workload.prompt_tokens[order].astype(np.int64)
    if not len(workload.prefix):
        none = np.zeros(len(order), np.int64)
        return Reuse(order, prompt, none, none)
    everywhere = _hits(workload, order, by_workflow=False)
    own = _hits(workload, order, by_workflow=True)
    return Reuse(order, prompt, everywhere, own)


def _replay_order(workload: Workload) -> Int64:
    """Return LLM stages of the recorded run, workflows by arrival (file order where there is none)."""
    stages = np.flatnonzero((workload.stage_kind == StageKind.LLM) & workload.canonical())
    if workload.workflow_arrival_ns is None:
        return stages
    arrival = workload.workflow_arrival_ns[workload.stage_workflow[stages]]
    # Equal arrivals keep the order of workflows, so that stages of one workflow stay together.
    return stages[np.argsort(arrival, kind="stable")]


def _hits(workload: Workload, order: Int64, *, by_workflow: bool) -> Int64:
    parent = workload.prefix.parent_segment.tolist()
    end = workload.prefix.end_tokens.tolist()
    workflow = workload.stage_workflow.tolist()
    prompts = (workload.prompt_segment.tolist(), workload.prompt_shared_tokens.tolist())
    sequences = (workload.sequence_segment.tolist(), workload.sequence_shared_tokens.tolist())
    held: dict[int, int] = {}  # segment -> depth up to which it is in the cache; its ancestors are in whole
    hits = np.zeros(len(order), dtype=np.int64)
    current = -1
    for i, stage in enumerate(order.tolist()):
        if by_workflow and workflow[stage] != current:
            current = workflow[stage]
            held.clear()
        segment, depth = prompts[0][stage], prompts[1][stage]
        while segment >= 0 and segment not in held:
            segment = parent[segment]
            depth = end[segment] if segment >= 0 else 0
        hits[i] = min(depth, held[segment]) if segment >= 0 else 0
        for segments, depths in (prompts, sequences):
            segment, depth = segments[stage], depths[stage]
            while segment >= 0 and held.get(segment, 0) < depth:
                held[segment] = depth
                segment = parent[segment]
                depth = end[segment] if segment >= 0 else 0
    return hits
