"""Who read each resident node: workflows and their agents, kept for evictors that rank by it.

A_w(c) of PBKV (section 4.2.2) with deepest-node events: a host reports the deepest node of a path, a removed child
passes its readers to its parent, and only leaves are ranked, so that at the moment a node is a candidate its record
holds every reader of itself and of all that was ever below it.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable
from typing import Any, Generic, Protocol, TypeVar

from policies._history import History, Record
from policies._lazy_heap import LazyHeap
from policies.api import Access, CacheNode


class ReadersRecord(Record):
    """Readers of one node.

    readers   active workflow -> bit mask of its agents that read the node
    ever      all workflows that ever did
    depth     tokens of the longest prefix read at the time of `stamp`. It moves with the stamp, so that a node and
              the blocks it consists of rank alike, whether the host trims it, splits it, or keeps blocks apart
    """

    __slots__ = ("depth", "ever", "readers")

    def __init__(self, stamp: int) -> None:
        super().__init__(stamp)
        self.readers: dict[int, int] = {}
        self.ever: set[int] = set()
        self.depth = 0

    def inherit(self, lower: Record) -> None:
        """Whoever read the whole read its head. Mutates both."""
        super().inherit(lower)
        assert isinstance(lower, ReadersRecord)
        self.readers = dict(lower.readers)
        self.ever = set(lower.ever)
        self.depth = lower.depth

    def absorb(self, child: Record) -> None:
        """Whoever read the child read this node. Mutates both (it may take the child's sets)."""
        assert isinstance(child, ReadersRecord)
        if child.stamp > self.stamp:
            self.depth = child.depth
        super().absorb(child)
        if len(child.ever) > len(self.ever):
            self.ever, child.ever = child.ever, self.ever
        self.ever |= child.ever
        readers = self.readers
        for workflow, agents in child.readers.items():
            readers[workflow] = readers.get(workflow, 0) | agents


R = TypeVar("R", bound=ReadersRecord)


class Order(Protocol):
    """What orders the evictable nodes: a `LazyHeap`, or something with its interface."""

    def __contains__(self, id: int) -> bool: ...

    def set(self, id: int, priority: Any, item: CacheNode) -> None:
        """Add a node, or change its place. Mutates."""

    def discard(self, id: int) -> None:
        """Drop a node, if it is there. Mutates."""

    def peek(self) -> CacheNode | None:
        """Return the node to leave first, None when there is none. May mutate."""


class ReadersState(ABC, Generic[R]):
    """Records of all resident nodes and the order of the evictable ones. Every method mutates.

    nodes    by active workflow, the resident nodes it is a recorded reader of
    leaves   the same for evictable nodes: those whose place depends on the workflow's forecast
    A subclass gives a node's place (`priority`, any totally ordered value; lowest leaves first).
    """

    __slots__ = ("evictable", "history", "leaves", "nodes")

    def __init__(self, make: type[R], order: Order | None = None) -> None:
        self.history: History[R] = History(make)
        self.evictable: Order = LazyHeap[CacheNode]() if order is None else order
        self.nodes: dict[int, dict[int, CacheNode]] = {}
        self.leaves: dict[int, dict[int, CacheNode]] = {}

    @abstractmethod
    def priority(self, record: R) -> tuple[Any, ...]:
        """Return the place of a node among the evictable; may note in the record what it is made of."""

    def noticed(self, record: R, access: Access) -> None:
        """A request is about to be recorded as a reader of a node; subclasses may learn from it."""

    def insert(self, node: CacheNode, access: Access) -> None:
        """A node became resident."""
        record = self.history.insert(node)
        record.depth = node.depth_tokens
        self._read(node, record, access)

    def hit(self, node: CacheNode, access: Access) -> None:
        """A request read down to the node."""
        record = self.history.hit(node)
        record.depth = node.depth_tokens
        self.noticed(record, access)
        self._read(node, record, access)
        if node.id in self.evictable:
            self._enter(node, record)

    def restore(self, node: CacheNode, readers: Iterable[Access]) -> None:
        """A node came back; these had read it before it left. No use."""
        record = self.history.records[node.id]
        for access in readers:
            self._read(node, record, access)
        if node.id in self.evictable:
            self._enter(node, record)

    def done(self, node: CacheNode) -> None:
        """A request on the node ended."""
        self.history.done(node)
        self.history.records[node.id].depth = node.depth_tokens

    def release(self, node: CacheNode) -> None:
        """The node is a candidate."""
        self._enter(node, self.history.records[node.id])

    def pin(self, node: CacheNode) -> None:
        """The node is no candidate any more."""
        id = node.id
        if id in self.evictable:
            self.evictable.discard(id)
            for workflow in self.history.records[id].readers:
                self.leaves[workflow].pop(id, None)

    def split(self, upper: CacheNode, lower: CacheNode) -> None:
        """A head was cut off a node."""
        for workflow in self.history.split(upper, lower).readers:
            self.nodes[workflow][upper.id] = upper

    def remove(self, node: CacheNode) -> None:
        """A node left; its readers were its parent's too."""
        self.pin(node)
        record = self.history.remove(node)
        parent = node.parent
        known = parent is not None and parent.id in self.history.records
        for workflow in record.readers:
            nodes = self.nodes[workflow]
            del nodes[node.id]
            if known:
                assert parent is not None
                nodes[parent.id] = parent

    def finish(self, workflow: int) -> None:
        """The workflow reads nothing any more."""
        records, evictable = self.history.records, self.evictable
        self.leaves.pop(workflow, None)
        for id, node in self.nodes.pop(workflow, {}).items():
            record = records[id]
            del record.readers[workflow]
            if id in evictable:
                evictable.set(id, self.priority(record), node)

    def rerank(self, workflow: int) -> None:
        """Something about the workflow changed: O(log n) for each of its evictable nodes."""
        records, evictable = self.history.records, self.evictable
        for id, node in self.leaves.get(workflow, {}).items():
            evictable.set(id, self.priority(records[id]), node)

    def rerank_all(self) -> None:
        """Something about all workflows changed."""
        for workflow in list(self.leaves):
            self.rerank(workflow)

    def _read(self, node: CacheNode, record: R, access: Access) -> None:
        workflow = access.workflow
        if workflow < 0:
            return
        bit = 1 << access.agent if access.agent >= 0 else 0
        record.readers[workflow] = record.readers.get(workflow, 0) | bit
        record.ever.add(workflow)
        self.nodes.setdefault(workflow, {})[node.id] = node

    def _enter(self, node: CacheNode, record: R) -> None:
        id = node.id
        for workflow in record.readers:
            self.leaves.setdefault(workflow, {})[id] = node
        self.evictable.set(id, self.priority(record), node)
