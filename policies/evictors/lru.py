"""Least recently used: the default of SGLang and vLLM."""

from __future__ import annotations

from dataclasses import dataclass

from policies._lazy_heap import LazyHeap
from policies.api import Access, CacheNode, Evictor, HostInfo


class LruState:
    """`stamp` is each resident node's place in the order of accesses (one counter, so no ties)."""

    __slots__ = ("clock", "evictable", "stamp")

    def __init__(self) -> None:
        self.clock = 0
        self.stamp: dict[int, int] = {}
        self.evictable: LazyHeap[CacheNode] = LazyHeap()


@dataclass(frozen=True)
class Lru(Evictor[LruState]):
    """Evicts the evictable node whose last use is longest ago.

    A use is an insert, a hit, and the end or preemption of a request that held the node: both engines refresh
    a prefix when its request lets go, also when others still hold it. Becoming evictable is no use. A use reads
    all above, so that a node has the recency of its removed descendants where that is newer.
    Source: SGLang's RadixCache (last access of a leaf) and vLLM's free-block queue (order of freeing).
    """

    label = "LRU"
    source = "SGLang RadixCache; vLLM free-block queue"

    def new_state(self, host: HostInfo) -> LruState:
        """Return an empty order."""
        return LruState()

    def insert(self, state: LruState, node: CacheNode, access: Access) -> None:
        """Newest in the order. Mutates state."""
        state.clock += 1
        state.stamp[node.id] = state.clock

    def hit(self, state: LruState, node: CacheNode, access: Access) -> None:
        """Newest in the order. Mutates state."""
        state.clock += 1
        state.stamp[node.id] = state.clock
        if node.id in state.evictable:
            state.evictable.set(node.id, state.clock, node)

    def done(self, state: LruState, node: CacheNode, now_ns: int) -> None:
        """Newest in the order. Mutates state."""
        state.clock += 1
        state.stamp[node.id] = state.clock

    def release(self, state: LruState, node: CacheNode, now_ns: int) -> None:
        """Enter the order at the last use. Mutates state."""
        id = node.id
        state.evictable.set(id, state.stamp[id], node)

    def pin(self, state: LruState, node: CacheNode) -> None:
        """Leave the order. Mutates state."""
        state.evictable.discard(node.id)

    def split(self, state: LruState, upper: CacheNode, lower: CacheNode) -> None:
        """Both parts were used when the whole was. Mutates state."""
        state.stamp[upper.id] = state.stamp[lower.id]

    def remove(self, state: LruState, node: CacheNode) -> None:
        """Leave the cache, and pass the recency to the parent. Mutates state."""
        state.evictable.discard(node.id)
        stamp = state.stamp.pop(node.id)
        parent = node.parent
        if parent is not None and stamp > state.stamp[parent.id]:
            state.stamp[parent.id] = stamp

    def next_victim(self, state: LruState, now_ns: int) -> CacheNode | None:
        """Return the oldest evictable node. Drops stale heap entries only."""
        return state.evictable.peek()
