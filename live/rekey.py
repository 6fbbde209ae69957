"""A workload's prompts as tokens of a tiny vocabulary: equal identity, equal tokens; lengths divided by a scale.

A workload has no text, only the identity of what is shared. Every segment of its prefix tree gets tokens from a
source, private tails too, and what a stage answered takes the place that the workload says its answer has in later
prompts: the model's own tokens, not recorded ones.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from traces.draws import bits
from traces.errors import InputError
from traces.schema import StageKind, Workload

TokenSource = Callable[[int, int, int], Sequence[int]]
_SEGMENT, _PRIVATE = 0, 1


class TokenPaths:
    """Token ids of a workload's prompts. Mutated by `prompt` and `answered`.

    source(kind, id, n)   n tokens for a segment (kind 0) or a stage's private tail (kind 1)
    scale                 tokens of the workload to one token here
    block_tokens          no prompt is a whole number of blocks: a token is left out where it would be
    """

    def __init__(self, workload: Workload, source: TokenSource, scale: int, block_tokens: int) -> None:
        if scale < 1:
            raise InputError(f"scale={scale}, expected at least 1")
        self._workload = workload
        self._source = source
        self._scale = scale
        self._block_tokens = block_tokens
        tree = workload.prefix
        self._start = (tree.start_tokens // scale).tolist()
        self._end = (tree.end_tokens // scale).tolist()
        self._parent: list[int] = tree.parent_segment.tolist()
        self._drawn: dict[int, Sequence[int]] = {}
        self._known: dict[tuple[int, int], int] = {}

    def output_tokens(self, stage: int) -> int:
        """Return how many tokens the stage answers, at least 1. Does not mutate."""
        return max(1, int(self._workload.output_tokens[stage]) // self._scale)

    def prompt(self, stage: int) -> list[int]:
        """Return the stage's prompt."""
        w = self._workload
        total = max(1, int(w.prompt_tokens[stage]) // self._scale)
        if total % self._block_tokens == 0:
            total -= 1
        shared = min(total, int(w.prompt_shared_tokens[stage]) // self._scale)
        places = self._path(int(w.sequence_segment[stage]), total)[: max(shared, 0)]
        tokens = [self._token(segment, position) for segment, position in places]
        tail = total - len(tokens)
        return tokens + list(self._source(_PRIVATE, stage, tail))

    def answered(self, stage: int, prompt_tokens: int, output: Sequence[int]) -> None:
        """Put a stage's answer where later prompts that contain it find it."""
        w = self._workload
        end = min(prompt_tokens + len(output), int(w.sequence_shared_tokens[stage]) // self._scale)
        for place in self._path(int(w.sequence_segment[stage]), end):
            at = place[1] - prompt_tokens
            if at >= 0:
                self._known.setdefault(place, output[at])

    def _path(self, segment: int, end: int) -> list[tuple[int, int]]:
        """Return (segment, position) for the leading positions below `end` that the path has."""
        places: list[tuple[int, int]] = []
        while segment >= 0:
            top = min(self._end[segment], end)
            places += [(segment, p) for p in range(top - 1, self._start[segment] - 1, -1)]
            segment = self._parent[segment]
        return places[::-1]

    def _token(self, segment: int, position: int) -> int:
        place = (segment, position)
        known = self._known.get(place)
        if known is None:
            drawn = self._drawn.get(segment)
            if drawn is None:
                length = self._end[segment] - self._start[segment]
                drawn = self._drawn[segment] = self._source(_SEGMENT, segment, length)
            known = self._known[place] = int(drawn[position - self._start[segment]])
        return known


def serial_order(workload: Workload, at_once: int, seed: int) -> list[int]:
    """Return the LLM stages one after the other: `at_once` workflows are open, a drawn one sends its next stage."""
    stages: dict[int, list[int]] = {}
    for stage, workflow in enumerate(workload.stage_workflow.tolist()):
        if workload.stage_kind[stage] == StageKind.LLM:
            stages.setdefault(workflow, []).append(stage)
    waiting = list(stages)
    open_workflows: list[int] = []
    order: list[int] = []
    while waiting or open_workflows:
        while waiting and len(open_workflows) < at_once:
            open_workflows.append(waiting.pop(0))
        workflow = open_workflows[bits(seed, "serial order", len(order)) % len(open_workflows)]
        order.append(stages[workflow].pop(0))
        if not stages[workflow]:
            open_workflows.remove(workflow)
    return order
