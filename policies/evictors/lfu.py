"""Least frequently used."""

from __future__ import annotations

from dataclasses import dataclass

from policies._history import History, Record
from policies._lazy_heap import LazyHeap
from policies.api import Access, CacheNode, Evictor, HostInfo


class LfuState:
    """Past of every resident node, and the evictable ones by (hits, recency)."""

    __slots__ = ("evictable", "history")

    def __init__(self) -> None:
        self.history: History[Record] = History(Record)
        self.evictable: LazyHeap[CacheNode] = LazyHeap()


@dataclass(frozen=True)
class Lfu(Evictor[LfuState]):
    """Evicts the evictable node hit least often while resident; ties go to the least recently used.

    Hits of removed descendants count for the node, which they read. There is no ageing (GDSF has it).
    Source: Aho, Denning and Ullman 1971, "Principles of optimal page replacement", section 5.
    """

    label = "LFU"
    source = "textbook; ties by recency"

    def new_state(self, host: HostInfo) -> LfuState:
        """Return an empty order."""
        return LfuState()

    def insert(self, state: LfuState, node: CacheNode, access: Access) -> None:
        """Begin with no hit. Mutates state."""
        state.history.insert(node)

    def hit(self, state: LfuState, node: CacheNode, access: Access) -> None:
        """Count. Mutates state."""
        record = state.history.hit(node)
        if node.id in state.evictable:
            state.evictable.set(node.id, (record.hits, record.stamp), node)

    def done(self, state: LfuState, node: CacheNode, now_ns: int) -> None:
        """Newest of its rank. Mutates state."""
        state.history.done(node)

    def release(self, state: LfuState, node: CacheNode, now_ns: int) -> None:
        """Enter the order. Mutates state."""
        record = state.history.records[node.id]
        state.evictable.set(node.id, (record.hits, record.stamp), node)

    def pin(self, state: LfuState, node: CacheNode) -> None:
        """Leave the order. Mutates state."""
        state.evictable.discard(node.id)

    def split(self, state: LfuState, upper: CacheNode, lower: CacheNode) -> None:
        """Every hit of the whole was a hit of both parts. Mutates state."""
        state.history.split(upper, lower)

    def remove(self, state: LfuState, node: CacheNode) -> None:
        """Pass the hits to the parent. Mutates state."""
        state.evictable.discard(node.id)
        state.history.remove(node)

    def next_victim(self, state: LfuState, now_ns: int) -> CacheNode | None:
        """Return the node with the fewest hits. Drops stale heap entries only."""
        return state.evictable.peek()
