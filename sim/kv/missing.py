"""What the host tier has and HBM lacks of the prefixes that active workflows have read: a prefetcher's candidates.

Kept by what changes: both trees mark the segments where blocks came, left or were divided, the readers say which paths
are new or gone, and only the paths through those are looked at again.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from sim.kv.paths import PrefixPaths
from sim.kv.radix import Node, RadixCache
from sim.kv.readers import End, Readers

Place = tuple[int, int, int]


@dataclass(eq=False, slots=True)
class HostRun:
    """Blocks `[start, end)` of a host node that HBM lacks; a `HostNode` to prefetchers."""

    node: Node
    parent: HostRun | None
    start: int
    end: int
    segment: int
    readers: list[tuple[int, int]]

    @property
    def id(self) -> int:
        """Number of the host's node."""
        return self.node.id

    @property
    def identity(self) -> int:
        """Number of its content."""
        return self.node.identity + self.start - self.node.start

    @property
    def tokens(self) -> int:
        """KV tokens to copy."""
        return (self.end - self.start) * self.node.block_tokens

    @property
    def depth_tokens(self) -> int:
        """Prefix tokens down to its end."""
        return self.end * self.node.block_tokens

    @property
    def created_ns(self) -> int:
        """When the host got it."""
        return self.node.created_ns

    @property
    def last_access_ns(self) -> int:
        """When the host last stored or loaded it."""
        return self.node.last_access_ns

    def leading(self, blocks: int, paths: PrefixPaths) -> HostRun:
        """Return the run's first `blocks` as a run of its own; a copy of all of it when it is not longer."""
        end, segment = min(self.end, self.start + blocks), self.segment
        while segment >= 0 and paths.start[segment] >= end:
            segment = paths.parent[segment]
        return HostRun(self.node, self.parent, self.start, end, segment, self.readers)


class HostBlock(HostRun):
    """One block of a host node: a page of PBKV's."""

    __slots__ = ()

    @property
    def id(self) -> int:
        """Number of the host's node and of the block."""
        return self.node.id << 24 | self.start


def blocks_of(runs: Iterable[HostRun], paths: PrefixPaths) -> list[HostBlock]:
    """Return runs, parents before children, block by block."""
    last: dict[int, HostBlock] = {}
    out: list[HostBlock] = []
    for run in runs:
        parent = last[run.parent.id] if run.parent is not None else None
        for block in range(run.start, run.end):
            segment = run.segment
            while segment >= 0 and paths.start[segment] > block:
                segment = paths.parent[segment]
            parent = HostBlock(run.node, parent, block, block + 1, segment, run.readers)
            out.append(parent)
        assert parent is not None
        last[run.id] = parent
    return out


@dataclass(slots=True)
class _Path:
    """A path read, and the host's nodes that HBM lacks of it from `resident` on, from the top down."""

    end: End
    resident: int = 0
    chain: list[Node] = field(default_factory=list)


@dataclass(slots=True)
class _Shared:
    """A run, and the paths that go through it."""

    run: HostRun
    order: tuple[int, ...]
    paths: dict[Place, _Path]


class Missing:
    """The runs of one replica, by id. `refresh` mutates, and divides host nodes where a reader's path ends."""

    def __init__(self, device: RadixCache, host: RadixCache, readers: Readers) -> None:
        self._device, self._host, self._readers = device, host, readers
        self._paths: dict[Place, _Path] = {}
        self._through: dict[int, set[Place]] = {}  # segment -> paths through it
        self._runs: dict[int, _Shared] = {}
        for tree in (device, host):
            tree.changed = set()
        readers.watched = True

    def __len__(self) -> int:
        return len(self._runs)

    def runs(self) -> list[HostRun]:
        """Return the runs, those of older readers first, parents before children. Does not mutate."""
        return [s.run for s in sorted(self._runs.values(), key=lambda s: s.order)]

    def order(self, id: int) -> tuple[int, ...]:
        """Return the place of a run among `runs`."""
        return self._runs[id].order

    def refresh(self, now_ns: int) -> tuple[list[int], list[HostRun]]:
        """Bring the runs up to date; return the ids of those that are gone and the runs that are new or changed.

        Parents come before children, and a run whose parent changed is among the changed.
        """
        touched: dict[int, None] = {}
        stale = self._stale(touched)
        lacking = []
        for place in stale:
            path = self._paths[place]
            self._leave(path, touched)
            end = path.end
            path.resident = self._device.find(end.segment, end.blocks)[1]
            if path.resident == end.blocks:
                continue
            node, matched = self._host.find(end.segment, end.blocks)
            if node is not None and path.resident < matched:
                self._host.cut_at(node, matched, now_ns)  # readers are those of whole nodes
                lacking.append((place, matched))
        # What was just divided changes the chains of other paths, too.
        reached = dict(lacking)
        for segment in self._drained(self._host):
            for place in self._through.get(segment, ()):
                path = self._paths[place]
                if place not in reached and path.chain:
                    reached[place] = path.chain[-1].end
                    self._leave(path, touched)
        for place in sorted(reached):
            self._enter(self._paths[place], reached[place], touched)
        return self._settle(touched)

    def _stale(self, touched: dict[int, None]) -> list[Place]:
        change = self._readers.changes()
        stale: set[Place] = set()
        for tree in (self._device, self._host):
            for segment in self._drained(tree):
                stale.update(self._through.get(segment, ()))
        for place in change.dropped:
            path = self._paths.pop(place)
            self._leave(path, touched)
            stale.discard(place)
            for segment in self._segments(path.end.segment):
                through = self._through[segment]
                through.discard(place)
                if not through:
                    del self._through[segment]
        for place, end in change.added.items():
            self._paths[place] = _Path(end)
            stale.add(place)
            for segment in self._segments(end.segment):
                self._through.setdefault(segment, set()).add(place)
        return sorted(stale)

    @staticmethod
    def _drained(tree: RadixCache) -> set[int]:
        changed, tree.changed = tree.changed, set()
        assert changed is not None
        return changed

    def _segments(self, segment: int) -> Iterable[int]:
        parent = self._device.paths.parent
        while segment >= 0:
            yield segment
            segment = parent[segment]

    def _leave(self, path: _Path, touched: dict[int, None]) -> None:
        for node in path.chain:
            touched[node.id] = None
            self._runs[node.id].paths.pop(path.end.place, None)
        path.chain = []

    def _enter(self, path: _Path, matched: int, touched: dict[int, None]) -> None:
        at = self._host.find(path.end.segment, matched)[0]
        chain = []
        while at is not None and at.end > path.resident:
            chain.append(at)
            at = at.parent
        chain.reverse()
        path.chain = chain
        for node in chain:
            shared = self._runs.get(node.id)
            if shared is None:
                shared = self._runs[node.id] = _Shared(
                    HostRun(node, None, node.start, node.end, node.segment, []), (), {}
                )
            shared.paths[path.end.place] = path
            touched[node.id] = None

    def _settle(self, touched: dict[int, None]) -> tuple[list[int], list[HostRun]]:
        gone = [id for id in touched if not self._runs[id].paths]
        for id in gone:
            del self._runs[id]
        changed = []
        for id in touched:
            shared = self._runs.get(id)
            if shared is None:
                continue
            run, node = shared.run, shared.run.node
            places = sorted(shared.paths)
            ends = [shared.paths[place].end for place in places]
            run.start = max(node.start, shared.paths[places[0]].resident)
            run.end, run.segment = node.end, node.segment
            run.readers = list(dict.fromkeys((end.workflow, end.agent) for end in ends))
            above = node.parent if run.start == node.start else None
            known = None if above is None else self._runs.get(above.id)
            run.parent = None if known is None else known.run
            shared.order = (*places[0], run.start)
            changed.append(shared)
        changed.sort(key=lambda s: s.order)
        return gone, [s.run for s in changed]
