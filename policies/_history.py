"""What an evictor remembers of each resident node, and how it moves up the tree when children leave.

Hosts report an access on the deepest node of a path only, though everything above was read too. Since only
leaves are victims, that is enough: what is known of a child is passed to its parent when the child is
removed, and only then can the parent become a candidate.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Generic, TypeVar

from policies.views import CacheNode


class Record:
    """One node's past. Policies add fields in a subclass and say how they move.

    stamp   place of the last use in the order of uses (a counter, so that no two are equal)
    hits    hits of the node and of its removed descendants
    base    hits that its parent has counted already, being the head of what was one node when they happened
    """

    __slots__ = ("base", "hits", "stamp")

    def __init__(self, stamp: int) -> None:
        self.stamp = stamp
        self.hits = 0
        self.base = 0

    def inherit(self, lower: Record) -> None:
        """Become the head of `lower`'s node: all of its past was the head's too. Mutates both."""
        self.stamp = lower.stamp
        self.hits = lower.hits
        self.base = lower.base
        lower.base = lower.hits

    def absorb(self, child: Record) -> None:
        """Count a removed child's uses, which read this node too. Mutates."""
        if child.stamp > self.stamp:
            self.stamp = child.stamp
        self.hits += child.hits - child.base


R = TypeVar("R", bound=Record)


class History(Generic[R]):
    """Records of all resident nodes; an evictor forwards its events here first. Every method mutates.

    A use is an insert, a hit, and the end or preemption of a request (`done`). To become evictable is none: a
    policy then looks at `records` and ranks the node by what it was.
    """

    __slots__ = ("_make", "clock", "records")

    def __init__(self, make: Callable[[int], R]) -> None:
        self.clock = 0
        self.records: dict[int, R] = {}
        self._make = make

    def insert(self, node: CacheNode) -> R:
        """Begin a record; return it."""
        self.clock += 1
        record = self.records[node.id] = self._make(self.clock)
        return record

    def hit(self, node: CacheNode) -> R:
        """Count a hit; return the record."""
        record = self.records[node.id]
        self.clock += 1
        record.stamp = self.clock
        record.hits += 1
        return record

    def done(self, node: CacheNode) -> None:
        """Stamp the node that a request just left; no hit."""
        self.clock += 1
        self.records[node.id].stamp = self.clock

    def split(self, upper: CacheNode, lower: CacheNode) -> R:
        """Begin the record of `upper` as the head of `lower`; return it."""
        record = self.records[upper.id] = self._make(0)
        record.inherit(self.records[lower.id])
        return record

    def remove(self, node: CacheNode) -> R:
        """End a record and let the parent's absorb it; return it."""
        record = self.records.pop(node.id)
        parent = node.parent
        if parent is not None:
            above = self.records.get(parent.id)
            if above is not None:
                above.absorb(record)
        return record
