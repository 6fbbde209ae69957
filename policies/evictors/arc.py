"""ARC: two recency lists, of nodes used once and used again, whose shares adapt to what left too early."""

from __future__ import annotations

from dataclasses import dataclass

from policies._ghosts import Ghosts
from policies._history import History, Record
from policies._lazy_heap import LazyHeap
from policies.api import Access, CacheNode, Evictor, HostInfo


class ArcRecord(Record):
    """`often` says that the node is in T2; `tokens` are counted for its list."""

    __slots__ = ("often", "tokens")

    def __init__(self, stamp: int) -> None:
        super().__init__(stamp)
        self.often = False
        self.tokens = 0

    def inherit(self, lower: Record) -> None:
        """The head is in the list of the whole. Mutates both."""
        super().inherit(lower)
        assert isinstance(lower, ArcRecord)
        self.often = lower.often


class ArcState:
    """T1 and T2: tokens resident in each and their evictable nodes by recency. B1 and B2: their ghosts.

    target_tokens   p, the tokens that T1 should hold
    """

    __slots__ = (
        "b1",
        "b2",
        "capacity_tokens",
        "history",
        "t1",
        "t1_tokens",
        "t2",
        "t2_tokens",
        "target_tokens",
    )

    def __init__(self, capacity_tokens: int) -> None:
        self.history: History[ArcRecord] = History(ArcRecord)
        self.t1: LazyHeap[CacheNode] = LazyHeap()
        self.t2: LazyHeap[CacheNode] = LazyHeap()
        self.t1_tokens = 0
        self.t2_tokens = 0
        self.b1 = Ghosts()
        self.b2 = Ghosts()
        self.capacity_tokens = capacity_tokens
        self.target_tokens = 0

    def count(self, record: ArcRecord, tokens: int) -> None:
        """Count `tokens` for the node from now on. Mutates."""
        if record.often:
            self.t2_tokens += tokens - record.tokens
        else:
            self.t1_tokens += tokens - record.tokens
        record.tokens = tokens

    def promote(self, record: ArcRecord) -> None:
        """Move the node to T2. Mutates."""
        if not record.often:
            self.t1_tokens -= record.tokens
            self.t2_tokens += record.tokens
            record.often = True

    def drop(self, id: int) -> None:
        """Take a node out of the evictable ones. Mutates."""
        self.t1.discard(id)
        self.t2.discard(id)

    def rank(self, node: CacheNode, record: ArcRecord) -> None:
        """Enter the list's order of evictable nodes. Mutates."""
        (self.t2 if record.often else self.t1).set(node.id, record.stamp, node)


@dataclass(frozen=True)
class Arc(Evictor[ArcState]):
    """Evicts the least recently used of T1 (used once) while that exceeds its target p, else of T2.

    An insert whose content was evicted from T1 not long ago raises p, one from T2 lowers it, by its tokens
    times the ratio of the ghost lists where the other is longer. Lists count tokens, since nodes differ in
    size. A child's hits read its parent, so that a removed child with hits takes its parent to T2. Source:
    Megiddo and Modha 2003, "ARC: a self-tuning, low overhead replacement cache" (FAST), figure 4.
    """

    label = "ARC"
    source = "Megiddo and Modha, FAST 2003"

    def new_state(self, host: HostInfo) -> ArcState:
        """Return empty lists, p = 0."""
        return ArcState(host.capacity_tokens)

    def insert(self, state: ArcState, node: CacheNode, access: Access) -> None:
        """Join T1, or adapt p and join T2 when remembered (cases II to IV). Mutates state."""
        record = state.history.insert(node)
        b1, b2, identity, tokens = state.b1, state.b2, node.identity, node.tokens
        if identity in b1:
            step = tokens * max(1, b2.tokens // max(1, b1.tokens))
            state.target_tokens = min(state.capacity_tokens, state.target_tokens + step)
            b1.forget(identity)
            record.often = True
        elif identity in b2:
            step = tokens * max(1, b1.tokens // max(1, b2.tokens))
            state.target_tokens = max(0, state.target_tokens - step)
            b2.forget(identity)
            record.often = True
        state.count(record, tokens)

    def hit(self, state: ArcState, node: CacheNode, access: Access) -> None:
        """Move to T2, newest (case I). Mutates state."""
        record = state.history.hit(node)
        evictable = node.id in state.t1 or node.id in state.t2
        state.promote(record)
        if evictable:
            state.drop(node.id)
            state.rank(node, record)

    def done(self, state: ArcState, node: CacheNode, now_ns: int) -> None:
        """Newest of its rank. Mutates state."""
        state.history.done(node)

    def release(self, state: ArcState, node: CacheNode, now_ns: int) -> None:
        """Enter the list's order. Mutates state."""
        state.rank(node, state.history.records[node.id])

    def pin(self, state: ArcState, node: CacheNode) -> None:
        """Leave the list's order. Mutates state."""
        state.drop(node.id)

    def split(self, state: ArcState, upper: CacheNode, lower: CacheNode) -> None:
        """Both parts are in the list of the whole. Mutates state."""
        state.count(state.history.split(upper, lower), upper.tokens)
        state.count(state.history.records[lower.id], lower.tokens)

    def shrink(self, state: ArcState, node: CacheNode) -> None:
        """Count the tokens that are left. Mutates state."""
        state.count(state.history.records[node.id], node.tokens)

    def remove(self, state: ArcState, node: CacheNode) -> None:
        """Leave the list for its ghosts, and pass hits to the parent. Mutates state."""
        record = state.history.records[node.id]
        ghosts = state.b2 if record.often else state.b1
        ghosts.add(node.identity, record.tokens)
        state.count(record, 0)
        state.drop(node.id)
        # |T1| + |B1| <= c and |T1| + |T2| + |B1| + |B2| <= 2c (section II.B, conditions A.2 and A.3).
        resident = state.t1_tokens + state.t2_tokens
        state.b1.trim(max(0, state.capacity_tokens - state.t1_tokens))
        state.b2.trim(max(0, 2 * state.capacity_tokens - resident - state.b1.tokens))
        state.history.remove(node)
        parent = node.parent
        above = None if parent is None else state.history.records.get(parent.id)
        if above is not None and record.hits > record.base:
            state.promote(above)

    def next_victim(self, state: ArcState, now_ns: int) -> CacheNode | None:
        """Return the oldest of T1 when T1 exceeds p, else of T2; of the other where that has none."""
        first, second = (
            (state.t1, state.t2) if state.t1_tokens > state.target_tokens else (state.t2, state.t1)
        )
        node = first.peek()
        return second.peek() if node is None else node
