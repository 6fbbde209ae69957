"""Greedy-Dual-Size-Frequency: keep what is costly to recompute for its size, and age what is not used."""

from __future__ import annotations

from dataclasses import dataclass

from policies._history import History, Record
from policies._lazy_heap import LazyHeap
from policies.api import Access, CacheNode, Evictor, HostInfo


class GdsfRecord(Record):
    """`age` is the clock L of the last use, in ps a token."""

    __slots__ = ("age",)

    def __init__(self, stamp: int) -> None:
        super().__init__(stamp)
        self.age = 0

    def inherit(self, lower: Record) -> None:
        """The head is as old as the whole. Mutates both."""
        super().inherit(lower)
        assert isinstance(lower, GdsfRecord)
        self.age = lower.age

    def absorb(self, child: Record) -> None:
        """A use of the child was a use of this node. Mutates."""
        super().absorb(child)
        assert isinstance(child, GdsfRecord)
        self.age = max(self.age, child.age)


class GdsfState:
    """`inflation` is L, the priority of the last victim, in ps a token."""

    __slots__ = ("evictable", "history", "inflation", "linear_ps", "pair_as", "width_tokens")

    def __init__(self, host: HostInfo) -> None:
        self.history: History[GdsfRecord] = History(GdsfRecord)
        self.evictable: LazyHeap[CacheNode] = LazyHeap()
        self.inflation = 0
        # Recomputing happens in prefill chunks of full width, so a node pays its share of such a step, not a
        # whole step (whose fixed part would make small nodes look precious).
        self.width_tokens = host.max_num_batched_tokens
        self.linear_ps = host.profile.linear_ps_at(self.width_tokens)
        self.pair_as = host.profile.attention_as_per_pair

    def cost_per_token_ps(self, node: CacheNode) -> int:
        """Return the mean prefill cost (ps) of the node's tokens after its prefix. Does not mutate."""
        prefix_tokens = node.depth_tokens - node.tokens
        mean_context_tokens = prefix_tokens + node.tokens // 2
        return self.linear_ps // self.width_tokens + self.pair_as * mean_context_tokens // 1_000_000

    def rank(self, node: CacheNode, record: GdsfRecord) -> None:
        """Enter the order at H = L + frequency * cost / size. Mutates."""
        value = record.age + (1 + record.hits) * self.cost_per_token_ps(node)
        self.evictable.set(node.id, (value, record.stamp), node)


@dataclass(frozen=True)
class Gdsf(Evictor[GdsfState]):
    """Evicts the lowest H = L + frequency * cost / size; L rises to the H of each victim.

    cost is the prefill time of the node's tokens given its prefix, from the host's profile; frequency counts
    the insert and the hits. With equal costs and sizes this is LFU with ageing. Ties go to the least recently
    used. Source: Cherkasova 1998, "Improving WWW proxies performance with Greedy-Dual-Size-Frequency".
    """

    label = "GDSF"
    source = "Cherkasova 1998 (HPL-98-69R1)"

    def new_state(self, host: HostInfo) -> GdsfState:
        """Return an empty order that prices with the host's profile."""
        return GdsfState(host)

    def insert(self, state: GdsfState, node: CacheNode, access: Access) -> None:
        """Begin at the present L. Mutates state."""
        state.history.insert(node).age = state.inflation

    def hit(self, state: GdsfState, node: CacheNode, access: Access) -> None:
        """Count, and catch up with L. Mutates state."""
        record = state.history.hit(node)
        record.age = state.inflation
        if node.id in state.evictable:
            state.rank(node, record)

    def done(self, state: GdsfState, node: CacheNode, now_ns: int) -> None:
        """Newest of its rank. Mutates state."""
        state.history.done(node)

    def release(self, state: GdsfState, node: CacheNode, now_ns: int) -> None:
        """Enter the order. Mutates state."""
        state.rank(node, state.history.records[node.id])

    def pin(self, state: GdsfState, node: CacheNode) -> None:
        """Leave the order. Mutates state."""
        state.evictable.discard(node.id)

    def split(self, state: GdsfState, upper: CacheNode, lower: CacheNode) -> None:
        """Both parts have the past of the whole. Mutates state."""
        state.history.split(upper, lower)

    def remove(self, state: GdsfState, node: CacheNode) -> None:
        """Raise L to the victim's H, pass the past to the parent. Mutates state."""
        priority = state.evictable.priority(node.id)
        if priority is not None:
            state.inflation = max(state.inflation, priority[0])
        state.evictable.discard(node.id)
        state.history.remove(node)

    def next_victim(self, state: GdsfState, now_ns: int) -> CacheNode | None:
        """Return the node of lowest H. Drops stale heap entries only."""
        return state.evictable.peek()
