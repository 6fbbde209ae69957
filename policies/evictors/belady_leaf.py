"""Belady's rule on leaves: an offline reference that knows the recorded future."""

from __future__ import annotations

from dataclasses import dataclass

from policies._history import History, Record
from policies._lazy_heap import LazyHeap
from policies.api import Access, CacheNode, Evictor, HostInfo
from policies.views import Oracle
from traces.errors import InputError


class BeladyState:
    """The oracle, and the evictable nodes by (farthest next use, recency)."""

    __slots__ = ("evictable", "history", "oracle")

    def __init__(self, oracle: Oracle) -> None:
        self.oracle = oracle
        self.history: History[Record] = History(Record)
        self.evictable: LazyHeap[CacheNode] = LazyHeap()

    def rank(self, node: CacheNode, record: Record) -> None:
        """Enter the order at the present next use. Mutates."""
        self.evictable.set(node.id, (-self.oracle.next_use(node), record.stamp), node)


@dataclass(frozen=True)
class BeladyLeaf(Evictor[BeladyState]):
    """Evicts the evictable node whose next use in the recorded order is farthest; ties go to the oldest use.

    Optimal for pages of one size without a tree. Here it is a reference, no bound: sizes differ, only leaves
    can leave, and in a closed loop the order of the future depends on the policy. A next use is asked for
    when the node becomes evictable or is hit; one that passes unused (on another replica) is not noticed
    until then. Source: Belady 1966, "A study of replacement algorithms for a virtual-storage computer" (MIN).
    """

    needs = frozenset({"oracle"})
    label = "Belady on leaves (offline reference)"
    source = "Belady 1966"

    def new_state(self, host: HostInfo) -> BeladyState:
        """Return an empty order. Raises InputError when the host has no oracle."""
        if host.oracle is None:
            raise InputError(
                "evictor=belady_leaf needs the oracle of a recorded workload; this host has none"
            )
        return BeladyState(host.oracle)

    def insert(self, state: BeladyState, node: CacheNode, access: Access) -> None:
        """Begin a record. Mutates state."""
        state.history.insert(node)

    def hit(self, state: BeladyState, node: CacheNode, access: Access) -> None:
        """Ask again for the next use. Mutates state."""
        record = state.history.hit(node)
        if node.id in state.evictable:
            state.rank(node, record)

    def done(self, state: BeladyState, node: CacheNode, now_ns: int) -> None:
        """Newest of its rank. Mutates state."""
        state.history.done(node)

    def release(self, state: BeladyState, node: CacheNode, now_ns: int) -> None:
        """Enter the order. Mutates state."""
        state.rank(node, state.history.records[node.id])

    def pin(self, state: BeladyState, node: CacheNode) -> None:
        """Leave the order. Mutates state."""
        state.evictable.discard(node.id)

    def split(self, state: BeladyState, upper: CacheNode, lower: CacheNode) -> None:
        """Both parts were used when the whole was. Mutates state."""
        state.history.split(upper, lower)

    def remove(self, state: BeladyState, node: CacheNode) -> None:
        """Pass the recency to the parent. Mutates state."""
        state.evictable.discard(node.id)
        state.history.remove(node)

    def next_victim(self, state: BeladyState, now_ns: int) -> CacheNode | None:
        """Return the node used again last. Drops stale heap entries only."""
        return state.evictable.peek()
