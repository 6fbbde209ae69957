"""Lifecycle-aware eviction: what only finished workflows used leaves first."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from policies._history import History, Record
from policies._lazy_heap import LazyHeap
from policies.api import Access, CacheNode, Evictor, HostInfo


class LifecycleRecord(Record):
    """Workflows that used the node: those still active, and all there ever were."""

    __slots__ = ("active", "ever")

    def __init__(self, stamp: int) -> None:
        super().__init__(stamp)
        self.active: set[int] = set()
        self.ever: set[int] = set()

    def inherit(self, lower: Record) -> None:
        """Every workflow that used the whole used its head. Mutates both."""
        super().inherit(lower)
        assert isinstance(lower, LifecycleRecord)
        self.active = set(lower.active)
        self.ever = set(lower.ever)

    def absorb(self, child: Record) -> None:
        """Every workflow that used the child used this node. Mutates both (it may take the child's sets)."""
        super().absorb(child)
        assert isinstance(child, LifecycleRecord)
        if len(child.ever) > len(self.ever):
            self.ever, child.ever = child.ever, self.ever
        self.ever |= child.ever
        self.active |= child.active


class LifecycleState:
    """Evictable nodes: retired ones by (distinct workflows, recency), active ones by recency.

    nodes   resident nodes, by id, that each active workflow used (the deepest of its paths, as reported, and
            those that removed children passed it up to)
    """

    __slots__ = ("active", "history", "nodes", "retired")

    def __init__(self) -> None:
        self.history: History[LifecycleRecord] = History(LifecycleRecord)
        self.retired: LazyHeap[CacheNode] = LazyHeap()
        self.active: LazyHeap[CacheNode] = LazyHeap()
        self.nodes: dict[int, dict[int, CacheNode]] = {}

    def use(self, node: CacheNode, record: LifecycleRecord, workflow: int) -> None:
        """Tag the node with an active workflow. Mutates."""
        if workflow >= 0:
            record.active.add(workflow)
            record.ever.add(workflow)
            self.nodes.setdefault(workflow, {})[node.id] = node

    def rank(self, node: CacheNode, record: LifecycleRecord) -> None:
        """Enter the order of the active or of the retired. Mutates."""
        if record.active:
            self.retired.discard(node.id)
            self.active.set(node.id, record.stamp, node)
        else:
            self.active.discard(node.id)
            self.retired.set(node.id, (len(record.ever), record.stamp), node)


@dataclass(frozen=True)
class Lifecycle(Evictor[LifecycleState]):
    """Evicts retired nodes first, led by those the fewest workflows ever used; then active ones by LRU.

    A node is retired when every workflow that used it has finished. Ties among the retired go to the least
    recently used (the paper leaves them open). A workflow counts once however often it used the node.
    Requests without a workflow tag nothing. This is PBKV-LAE: PBKV without forecasts.
    Source: PBKV, section 4.2.1 (and 4.2.3 for the order of the two groups).
    """

    label = "lifecycle (PBKV-LAE)"
    source = "PBKV section 4.2.1"

    def new_state(self, host: HostInfo) -> LifecycleState:
        """Return an empty order; no workflow is active."""
        return LifecycleState()

    def insert(self, state: LifecycleState, node: CacheNode, access: Access) -> None:
        """Tag with the workflow. Mutates state."""
        state.use(node, state.history.insert(node), access.workflow)

    def hit(self, state: LifecycleState, node: CacheNode, access: Access) -> None:
        """Tag with the workflow; a retired node is active again. Mutates state."""
        record = state.history.hit(node)
        state.use(node, record, access.workflow)
        if node.id in state.active or node.id in state.retired:
            state.rank(node, record)

    def done(self, state: LifecycleState, node: CacheNode, now_ns: int) -> None:
        """Newest of its rank. Mutates state."""
        state.history.done(node)

    def release(self, state: LifecycleState, node: CacheNode, now_ns: int) -> None:
        """Enter the order. Mutates state."""
        state.rank(node, state.history.records[node.id])

    def pin(self, state: LifecycleState, node: CacheNode) -> None:
        """Leave the order. Mutates state."""
        state.active.discard(node.id)
        state.retired.discard(node.id)

    def split(self, state: LifecycleState, upper: CacheNode, lower: CacheNode) -> None:
        """Both parts have the tags of the whole. Mutates state."""
        for workflow in state.history.split(upper, lower).active:
            state.nodes[workflow][upper.id] = upper

    def remove(self, state: LifecycleState, node: CacheNode) -> None:
        """Pass the tags to the parent. Mutates state."""
        self.pin(state, node)
        record = state.history.remove(node)
        parent = node.parent
        for workflow in record.active:
            nodes = state.nodes[workflow]
            del nodes[node.id]
            if parent is not None and parent.id in state.history.records:
                nodes[parent.id] = parent

    def restore(self, state: LifecycleState, node: CacheNode, readers: Sequence[Access]) -> None:
        """Tag with the active workflows that had read it. Mutates state."""
        record = state.history.records[node.id]
        for access in readers:
            state.use(node, record, access.workflow)
        if node.id in state.active or node.id in state.retired:
            state.rank(node, record)

    def retired(self, state: LifecycleState, node: CacheNode) -> bool:
        """Say whether only finished workflows used the node. Does not mutate state."""
        return not state.history.records[node.id].active

    def workflow_finished(self, state: LifecycleState, workflow: int, now_ns: int) -> None:
        """Untag; nodes left without an active workflow are retired. Mutates state."""
        for id, node in state.nodes.pop(workflow, {}).items():
            record = state.history.records[id]
            record.active.discard(workflow)
            if not record.active and id in state.active:
                state.rank(node, record)

    def next_victim(self, state: LifecycleState, now_ns: int) -> CacheNode | None:
        """Return the first of the retired, else the oldest of the active. Drops stale heap entries only."""
        node = state.retired.peek()
        return state.active.peek() if node is None else node
