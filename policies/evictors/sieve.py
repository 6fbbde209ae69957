"""SIEVE: first in, first out, with one bit of mercy and a hand that remembers where it was."""

from __future__ import annotations

from dataclasses import dataclass

from policies._history import History, Record
from policies._lazy_heap import LazyHeap
from policies.api import Access, CacheNode, Evictor, HostInfo


class SieveRecord(Record):
    """`place` in the queue (oldest lowest); `seen` is the number of hits when the hand last passed."""

    __slots__ = ("place", "seen")

    def __init__(self, stamp: int) -> None:
        super().__init__(stamp)
        self.place = stamp
        self.seen = 0

    def inherit(self, lower: Record) -> None:
        """The head stands where the whole stood. Mutates both."""
        super().inherit(lower)
        assert isinstance(lower, SieveRecord)
        self.place = lower.place
        self.seen = lower.seen


class SieveState:
    """Evictable nodes from the hand on and behind it, by place; all resident ones, newest first."""

    __slots__ = ("ahead", "behind", "hand", "history", "newest")

    def __init__(self) -> None:
        self.history: History[SieveRecord] = History(SieveRecord)
        self.ahead: LazyHeap[CacheNode] = LazyHeap()
        self.behind: LazyHeap[CacheNode] = LazyHeap()
        self.newest: LazyHeap[int] = LazyHeap()
        self.hand = 0

    def start_again(self) -> None:
        """Move the hand from the newest end to the oldest. Mutates."""
        self.ahead, self.behind = self.behind, self.ahead
        self.hand = 0


@dataclass(frozen=True)
class Sieve(Evictor[SieveState]):
    """Evicts the first evictable node at or after the hand that was not hit since the hand last passed it.

    The hand moves from the oldest insert to the newest, clears the mark of the nodes it spares, leaves them
    in place, and starts again. A node keeps its place while it is not evictable. A removed child's hits mark
    its parent, which they read. Every spared node pays with a hit, so a victim costs O(log n) amortised.
    Source: Zhang et al. 2024, "SIEVE is simpler than LRU" (NSDI), algorithm 1.
    """

    label = "SIEVE"
    source = "Zhang et al., NSDI 2024"

    def new_state(self, host: HostInfo) -> SieveState:
        """Return an empty queue with the hand at its oldest end."""
        return SieveState()

    def insert(self, state: SieveState, node: CacheNode, access: Access) -> None:
        """Take the newest place. Mutates state."""
        place = state.history.insert(node).place
        state.newest.set(node.id, -place, place)

    def hit(self, state: SieveState, node: CacheNode, access: Access) -> None:
        """Mark. Mutates state."""
        state.history.hit(node)

    def release(self, state: SieveState, node: CacheNode, now_ns: int) -> None:
        """Return to the place in the queue. Mutates state."""
        place = state.history.records[node.id].place
        (state.ahead if place >= state.hand else state.behind).set(node.id, place, node)

    def pin(self, state: SieveState, node: CacheNode) -> None:
        """Hide from the hand. Mutates state."""
        state.ahead.discard(node.id)
        state.behind.discard(node.id)

    def split(self, state: SieveState, upper: CacheNode, lower: CacheNode) -> None:
        """Both parts stand where the whole stood. Mutates state."""
        place = state.history.split(upper, lower).place
        state.newest.set(upper.id, -place, place)

    def remove(self, state: SieveState, node: CacheNode) -> None:
        """Leave the queue, mark the parent if the node was hit. Mutates state."""
        state.ahead.discard(node.id)
        state.behind.discard(node.id)
        state.newest.discard(node.id)
        state.history.remove(node)
        # The hand moves to the next newer node; behind the newest there is none, and it starts again.
        if (state.newest.peek() or 0) < state.hand:
            state.start_again()

    def next_victim(self, state: SieveState, now_ns: int) -> CacheNode | None:
        """Move the hand to the next unmarked node and return it. Mutates state."""
        records = state.history.records
        while True:
            node = state.ahead.peek()
            if node is None:
                if not len(state.behind):
                    return None
                state.start_again()
                continue
            record = records[node.id]
            state.hand = record.place
            if record.hits <= record.seen:
                return node
            record.seen = record.hits
            state.ahead.discard(node.id)
            state.behind.set(node.id, record.place, node)
