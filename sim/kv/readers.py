"""Which prefixes the agents of active workflows have read, on one replica: the host's half of PBKV's A_w(c).

A prefix keeps its readers while it moves between HBM and host memory, so they are kept by content, as the ends of the
paths read, and not by node.
"""

from __future__ import annotations

from collections.abc import Iterator

from policies.views import Access
from sim.kv.paths import PrefixPaths


class Readers:
    """Ends of paths by (workflow, agent), in the order of first reads. Mutated by `read` and `finish`."""

    def __init__(self, paths: PrefixPaths) -> None:
        self._paths = paths
        self._ends: dict[int, dict[int, dict[int, int]]] = {}  # workflow -> agent -> segment -> blocks
        self._stage: dict[int, int] = {}

    def read(self, workflow: int, agent: int, stage: int, segment: int, blocks: int) -> None:
        """A request had the leading `blocks` of the path of `segment` as its prompt or output."""
        if segment < 0 or blocks <= 0:
            return
        self._stage[workflow] = stage
        ends = self._ends.setdefault(workflow, {}).setdefault(agent, {})
        blocks = max(blocks, ends.get(segment, 0))
        at, parent = segment, self._paths.parent
        while at >= 0 and ends:
            ends.pop(at, None)  # a path that the new one continues
            at = parent[at]
        ends[segment] = blocks

    def finish(self, workflow: int) -> None:
        """The workflow reads nothing any more."""
        self._ends.pop(workflow, None)
        self._stage.pop(workflow, None)

    def active(self, workflow: int) -> bool:
        """Say whether the workflow has read anything and goes on. Does not mutate."""
        return workflow in self._ends

    def paths(self) -> Iterator[tuple[int, int, int, int]]:
        """Yield (workflow, agent, segment, blocks) of every path read. Does not mutate."""
        for workflow, agents in self._ends.items():
            for agent, ends in agents.items():
                for segment, blocks in ends.items():
                    yield workflow, agent, segment, blocks

    def access(self, workflow: int, agent: int, now_ns: int) -> Access:
        """Return a reader as an access. Does not mutate."""
        return Access(now_ns, workflow, self._stage[workflow], agent)

    def of(self, workflow: int, segment: int, end: int, now_ns: int) -> list[Access]:
        """Return the agents of one workflow that have read block `end` - 1 of the path of `segment`."""
        start, parent = self._paths.start, self._paths.parent
        while segment >= 0 and start[segment] >= end:
            segment = parent[segment]
        out = []
        for agent, ends in self._ends.get(workflow, {}).items():
            for at, blocks in ends.items():
                if blocks < end:
                    continue
                while at >= 0 and start[at] >= end:
                    at = parent[at]
                if at == segment:
                    out.append(self.access(workflow, agent, now_ns))
                    break
        return out
