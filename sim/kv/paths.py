"""The workload's prefix tree on the engine's grid of KV blocks."""

from __future__ import annotations

from traces.prefix import Int32
from traces.schema import Workload


class PrefixPaths:
    """Segments in blocks, and where each stage's prompt and sequence end on them. Read-only once made.

    A block that straddles a divergence belongs to each branch below it, since its content differs there.
    parent[s], start[s], end[s]   nearest segment above that has a block; first block; one past the last block
                                  (start == end where a segment is shorter than a block: no walk meets it)
    prompt_segment[i], prompt_blocks[i]       deepest segment with a full block of stage i's prompt, and how
                                              many full blocks of it have an identity
    sequence_segment[i], sequence_blocks[i]   the same for prompt followed by output
    workflow[i], agent[i]   who sends stage i
    """

    def __init__(self, workload: Workload, block_tokens: int) -> None:
        tree = workload.prefix
        self.block_tokens = block_tokens
        self.workflow: list[int] = workload.stage_workflow.tolist()
        self.agent: list[int] = workload.stage_agent.tolist()
        start = tree.start_tokens // block_tokens
        end = tree.end_tokens // block_tokens
        self.parent: list[int] = tree.parent_segment.tolist()
        self.start: list[int] = start.tolist()
        self.end: list[int] = end.tolist()
        for s, above in enumerate(self.parent):
            if above >= 0 and self.start[above] == self.end[above]:
                self.parent[s] = self.parent[above]
        self.prompt_segment, self.prompt_blocks = self._ends(
            workload.prompt_segment, workload.prompt_shared_tokens // block_tokens
        )
        self.sequence_segment, self.sequence_blocks = self._ends(
            workload.sequence_segment, workload.sequence_shared_tokens // block_tokens
        )

    def _ends(self, segment: Int32, blocks: Int32) -> tuple[list[int], list[int]]:
        segments: list[int] = segment.tolist()
        counts: list[int] = blocks.tolist()
        start, parent = self.start, self.parent
        for i, s in enumerate(segments):
            while s >= 0 and start[s] >= counts[i]:
                s = parent[s]
            segments[i] = s
        return segments, counts
