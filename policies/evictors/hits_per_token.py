"""Least hits per token held: frequency with the size taken into account."""

from __future__ import annotations

from dataclasses import dataclass

from policies._history import History, Record
from policies._lazy_heap import LazyHeap
from policies.api import Access, CacheNode, Evictor, HostInfo

_SCALE = 1 << 32


class DensityRecord(Record):
    """`tokens` is the size at the last use: it divides the hits, so that a trimmed node keeps its place."""

    __slots__ = ("tokens",)

    def __init__(self, stamp: int) -> None:
        super().__init__(stamp)
        self.tokens = 1

    def inherit(self, lower: Record) -> None:
        """The head keeps the density of the whole until it is used again. Mutates both."""
        super().inherit(lower)
        assert isinstance(lower, DensityRecord)
        self.tokens = lower.tokens


class DensityState:
    """Past of every resident node, and the evictable ones by (uses a token, recency)."""

    __slots__ = ("evictable", "history")

    def __init__(self) -> None:
        self.history: History[DensityRecord] = History(DensityRecord)
        self.evictable: LazyHeap[CacheNode] = LazyHeap()

    def rank(self, node: CacheNode, record: DensityRecord) -> None:
        """Enter the order at uses per token, in units of 2^-32. Mutates."""
        density = (1 + record.hits) * _SCALE // record.tokens
        self.evictable.set(node.id, (density, record.stamp), node)


@dataclass(frozen=True)
class HitsPerToken(Evictor[DensityState]):
    """Evicts the evictable node with the fewest uses (insert and hits) per token; ties go to the oldest use.

    One eviction of a long node frees more than one of a short node with as many hits: the greedy rule of the
    fractional knapsack, as in caches of files. Unlike GDSF it neither prices recomputation nor ages.
    """

    label = "hits per token"
    source = "density rule of non-uniform caching"

    def new_state(self, host: HostInfo) -> DensityState:
        """Return an empty order."""
        return DensityState()

    def insert(self, state: DensityState, node: CacheNode, access: Access) -> None:
        """Begin with one use. Mutates state."""
        state.history.insert(node).tokens = max(node.tokens, 1)

    def hit(self, state: DensityState, node: CacheNode, access: Access) -> None:
        """Count. Mutates state."""
        record = state.history.hit(node)
        record.tokens = max(node.tokens, 1)
        if node.id in state.evictable:
            state.rank(node, record)

    def done(self, state: DensityState, node: CacheNode, now_ns: int) -> None:
        """Newest of its rank. Mutates state."""
        state.history.done(node)

    def release(self, state: DensityState, node: CacheNode, now_ns: int) -> None:
        """Enter the order. Mutates state."""
        state.rank(node, state.history.records[node.id])

    def pin(self, state: DensityState, node: CacheNode) -> None:
        """Leave the order. Mutates state."""
        state.evictable.discard(node.id)

    def split(self, state: DensityState, upper: CacheNode, lower: CacheNode) -> None:
        """Both parts keep the density of the whole. Mutates state."""
        state.history.split(upper, lower)

    def remove(self, state: DensityState, node: CacheNode) -> None:
        """Pass the hits to the parent. Mutates state."""
        state.evictable.discard(node.id)
        state.history.remove(node)

    def next_victim(self, state: DensityState, now_ns: int) -> CacheNode | None:
        """Return the node with the fewest uses per token. Drops stale heap entries only."""
        return state.evictable.peek()
