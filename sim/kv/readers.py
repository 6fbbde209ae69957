"""Which prefixes the agents of active workflows have read, on one replica: the host's half of PBKV's A_w(c).

A prefix keeps its readers while it moves between HBM and host memory, so they are kept by content, as the ends of the
paths read, and not by node.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

from policies.views import Access
from sim.kv.paths import PrefixPaths


class End(NamedTuple):
    """How far one agent of a workflow has read a path. `place`: of the workflow, the agent in it, the end; by age."""

    place: tuple[int, int, int]
    workflow: int
    agent: int
    segment: int
    blocks: int


@dataclass
class Change:
    """What has changed since someone looked, by place of the ends."""

    added: dict[tuple[int, int, int], End]
    dropped: set[tuple[int, int, int]]


class Readers:
    """Ends of paths by (workflow, agent), in the order of first reads. Mutated by `read`, `finish` and `changes`.

    watched   keep what changes for `changes`; without a reader it would grow
    """

    def __init__(self, paths: PrefixPaths) -> None:
        self._paths = paths
        self._ends: dict[int, dict[int, dict[int, End]]] = {}  # workflow -> agent -> segment
        self._place: dict[int, tuple[int, dict[int, int]]] = {}  # workflow -> its place, and its agents'
        self._stage: dict[int, int] = {}
        self._count = 0
        self._change = Change({}, set())
        self.watched = False

    def read(self, workflow: int, agent: int, stage: int, segment: int, blocks: int) -> None:
        """A request had the leading `blocks` of the path of `segment` as its prompt or output."""
        if segment < 0 or blocks <= 0:
            return
        self._stage[workflow] = stage
        ends = self._ends.setdefault(workflow, {}).setdefault(agent, {})
        self._count += 1
        place, agents = self._place.setdefault(workflow, (self._count, {}))
        before = ends.get(segment)
        if before is not None:
            blocks = max(blocks, before.blocks)
        at, parent = segment, self._paths.parent
        while at >= 0 and ends:
            gone = ends.pop(at, None)  # a path that the new one continues
            if gone is not None:
                self._drop(gone)
            at = parent[at]
        end = End(
            (place, agents.setdefault(agent, self._count), self._count), workflow, agent, segment, blocks
        )
        ends[segment] = end
        if self.watched:
            self._change.added[end.place] = end

    def finish(self, workflow: int) -> None:
        """The workflow reads nothing any more."""
        for ends in self._ends.pop(workflow, {}).values():
            for end in ends.values():
                self._drop(end)
        self._place.pop(workflow, None)
        self._stage.pop(workflow, None)

    def active(self, workflow: int) -> bool:
        """Say whether the workflow has read anything and goes on. Does not mutate."""
        return workflow in self._ends

    def paths(self) -> Iterator[End]:
        """Yield every path read, in the order of places. Does not mutate."""
        for agents in self._ends.values():
            for ends in agents.values():
                yield from ends.values()

    def changes(self) -> Change:
        """Return what has changed since the last call, and start anew."""
        change, self._change = self._change, Change({}, set())
        return change

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
            for at, read in ends.items():
                if read.blocks < end:
                    continue
                while at >= 0 and start[at] >= end:
                    at = parent[at]
                if at == segment:
                    out.append(self.access(workflow, agent, now_ns))
                    break
        return out

    def _drop(self, end: End) -> None:
        if self.watched and self._change.added.pop(end.place, None) is None:
            self._change.dropped.add(end.place)
