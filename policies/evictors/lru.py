"""Least recently used: the default of SGLang and vLLM."""

from __future__ import annotations

from dataclasses import dataclass

from policies._lazy_heap import LazyHeap
from policies.api import Access, CacheNode, Evictor, HostInfo


class LruState:
    """`stamp` is each resident node's place in the order of accesses (one counter, so no ties)."""

    __slots__ = ("bereaved", "clock", "evictable", "stamp")

    def __init__(self) -> None:
        self.clock = 0
        self.stamp: dict[int, int] = {}
        self.evictable: LazyHeap[CacheNode] = LazyHeap()
        self.bereaved = -1  # the node whose child has just been removed


@dataclass(frozen=True)
class Lru(Evictor[LruState]):
    """Evicts the evictable node whose last use is longest ago.

    A use is an insert, a hit, and the end of a request (the release): both engines refresh a prefix when its
    request finishes. A release that only follows the removal of the last child is no use; the node then has
    the recency of itself or of its removed descendants, whichever is newer: a use of a node reads all above.
    Source: SGLang's RadixCache (last access of a leaf) and vLLM's free-block queue (order of release).
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
        state.bereaved = -1

    def hit(self, state: LruState, node: CacheNode, access: Access) -> None:
        """Newest in the order. Mutates state."""
        state.clock += 1
        state.stamp[node.id] = state.clock
        state.bereaved = -1
        if node.id in state.evictable:
            state.evictable.set(node.id, state.clock, node)

    def release(self, state: LruState, node: CacheNode, now_ns: int) -> None:
        """Enter the order, as newest unless the release follows a child's removal. Mutates state."""
        id = node.id
        if id == state.bereaved:
            state.bereaved = -1
        else:
            state.clock += 1
            state.stamp[id] = state.clock
        state.evictable.set(id, state.stamp[id], node)

    def pin(self, state: LruState, node: CacheNode) -> None:
        """Leave the order. Mutates state."""
        state.evictable.discard(node.id)
        state.bereaved = -1

    def split(self, state: LruState, upper: CacheNode, lower: CacheNode) -> None:
        """Both parts were used when the whole was. Mutates state."""
        state.stamp[upper.id] = state.stamp[lower.id]

    def remove(self, state: LruState, node: CacheNode) -> None:
        """Leave the cache, and pass the recency to the parent. Mutates state."""
        state.evictable.discard(node.id)
        stamp = state.stamp.pop(node.id)
        parent = node.parent
        if parent is not None:
            state.bereaved = parent.id
            if stamp > state.stamp.get(parent.id, -1):
                state.stamp[parent.id] = stamp

    def next_victim(self, state: LruState, now_ns: int) -> CacheNode | None:
        """Return the oldest evictable node. Drops stale heap entries only."""
        return state.evictable.peek()
