"""S3-FIFO: a small queue filters what is used once, a main queue keeps the rest, ghosts remember."""

from __future__ import annotations

from dataclasses import dataclass

from policies._ghosts import Ghosts
from policies._history import History, Record
from policies._lazy_heap import LazyHeap
from policies.api import Access, CacheNode, Evictor, HostInfo
from traces.errors import InputError

_FREQUENCY_MAX = 3  # two bits, section 4.1


class S3Record(Record):
    """`place` in its queue (oldest lowest), `frequency` 0..3, and the tokens counted for the queue."""

    __slots__ = ("frequency", "main", "place", "tokens")

    def __init__(self, stamp: int) -> None:
        super().__init__(stamp)
        self.place = stamp
        self.frequency = 0
        self.main = False
        self.tokens = 0

    def inherit(self, lower: Record) -> None:
        """The head stands where the whole stood. Mutates both."""
        super().inherit(lower)
        assert isinstance(lower, S3Record)
        self.place, self.frequency, self.main = lower.place, lower.frequency, lower.main

    def absorb(self, child: Record) -> None:
        """Hits of the child read this node too. Mutates."""
        super().absorb(child)
        self.frequency = min(_FREQUENCY_MAX, self.frequency + child.hits - child.base)


class S3State:
    """Tokens in the small queue, the evictable nodes of both queues by place, and the ghosts."""

    __slots__ = (
        "ghosts",
        "ghosts_max_tokens",
        "history",
        "main",
        "small",
        "small_target_tokens",
        "small_tokens",
    )

    def __init__(self, small_target_tokens: int, ghosts_max_tokens: int) -> None:
        self.history: History[S3Record] = History(S3Record)
        self.small: LazyHeap[CacheNode] = LazyHeap()
        self.main: LazyHeap[CacheNode] = LazyHeap()
        self.small_tokens = 0
        self.small_target_tokens = small_target_tokens
        self.ghosts = Ghosts()
        self.ghosts_max_tokens = ghosts_max_tokens

    def resize(self, record: S3Record, tokens: int) -> None:
        """Count `tokens` for the node from now on. Mutates."""
        if not record.main:
            self.small_tokens += tokens - record.tokens
        record.tokens = tokens


@dataclass(frozen=True)
class S3Fifo(Evictor[S3State]):
    """Evicts from the small queue while that holds more than its share, else from the main one.

    small_ratio     share of the cache's tokens for the small queue
    ghost_ratio     tokens remembered after leaving the small queue, over the cache's tokens
    promote_hits    hits in the small queue that move a node to the main one instead of out

    A node whose content the ghosts remember enters the main queue at once. In the main queue a node with hits
    goes round again with one hit less. Queues count tokens, since nodes differ in size; a node keeps its
    place while it is not evictable. Source: Yang et al. 2023, "FIFO queues are all you need" (SOSP), section
    4.1.
    """

    small_ratio: float = 0.1
    ghost_ratio: float = 0.9
    promote_hits: int = 2

    label = "S3-FIFO"
    source = "Yang et al., SOSP 2023"

    def __post_init__(self) -> None:
        if not 0 < self.small_ratio < 1:
            raise InputError(f"small_ratio={self.small_ratio}: expected more than 0 and less than 1")
        if not 0 <= self.ghost_ratio <= 100:
            raise InputError(f"ghost_ratio={self.ghost_ratio}: expected 0 to 100")
        if not 1 <= self.promote_hits <= _FREQUENCY_MAX:
            raise InputError(f"promote_hits={self.promote_hits}: expected 1 to {_FREQUENCY_MAX}")

    def new_state(self, host: HostInfo) -> S3State:
        """Return empty queues sized for the host's cache."""
        capacity = host.capacity_tokens
        return S3State(int(capacity * self.small_ratio), int(capacity * self.ghost_ratio))

    def insert(self, state: S3State, node: CacheNode, access: Access) -> None:
        """Join the small queue, or the main one when remembered. Mutates state."""
        record = state.history.insert(node)
        record.main = node.identity in state.ghosts
        state.ghosts.forget(node.identity)
        state.resize(record, node.tokens)

    def hit(self, state: S3State, node: CacheNode, access: Access) -> None:
        """Count up to three. Mutates state."""
        record = state.history.hit(node)
        record.frequency = min(_FREQUENCY_MAX, record.frequency + 1)

    def release(self, state: S3State, node: CacheNode, now_ns: int) -> None:
        """Return to the place in the queue. Mutates state."""
        record = state.history.records[node.id]
        (state.main if record.main else state.small).set(node.id, record.place, node)

    def pin(self, state: S3State, node: CacheNode) -> None:
        """Hide from both queues' ends. Mutates state."""
        state.main.discard(node.id)
        state.small.discard(node.id)

    def split(self, state: S3State, upper: CacheNode, lower: CacheNode) -> None:
        """Both parts stand where the whole stood. Mutates state."""
        state.resize(state.history.split(upper, lower), upper.tokens)
        state.resize(state.history.records[lower.id], lower.tokens)

    def shrink(self, state: S3State, node: CacheNode) -> None:
        """Count the tokens that are left. Mutates state."""
        state.resize(state.history.records[node.id], node.tokens)

    def remove(self, state: S3State, node: CacheNode) -> None:
        """Leave the queue; the small one's losses are remembered. Mutates state."""
        record = state.history.records[node.id]
        if not record.main:
            state.ghosts.add(node.identity, record.tokens)
            state.ghosts.trim(state.ghosts_max_tokens)
        state.resize(record, 0)
        self.pin(state, node)
        state.history.remove(node)

    def next_victim(self, state: S3State, now_ns: int) -> CacheNode | None:
        """Promote or send round again what was hit, return the first that was not. Mutates state."""
        history, small, main = state.history, state.small, state.main
        while True:
            over = state.small_tokens > state.small_target_tokens
            node = small.peek() if over or not len(main) else None
            if node is not None:
                record = history.records[node.id]
                if record.frequency < self.promote_hits:
                    return node
                small.discard(node.id)
                state.small_tokens -= record.tokens
                record.main, record.frequency = True, 0
            else:
                node = main.peek()
                if node is None:
                    return None
                record = history.records[node.id]
                if record.frequency == 0:
                    return node
                record.frequency -= 1
            history.clock += 1
            record.place = history.clock
            main.set(node.id, record.place, node)
