"""Continuum: the cache of an agent that went off to a tool is held for a time to live."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from policies._history import History, Record
from policies._lazy_heap import LazyHeap
from policies._pbkv_ttl import GapStatistics
from policies.api import Access, CacheNode, Evictor, HostInfo, Profile
from policies.views import Oracle
from traces.errors import InputError

FOREVER = 1 << 62
_UNUSED = 1 << 60  # oracles give a rank at least this large to what is never used again


class HeldRecord(Record):
    """`deadline_ns`: until when the node is held (0: it is not); `workflow`, `stage`, `agent`: who read it last."""

    __slots__ = ("agent", "deadline_ns", "stage", "workflow")

    def __init__(self, stamp: int) -> None:
        super().__init__(stamp)
        self.deadline_ns = 0
        self.workflow = -1
        self.stage = -1
        self.agent = -1

    def inherit(self, lower: Record) -> None:
        """What holds the whole holds its head. Mutates both."""
        super().inherit(lower)
        assert isinstance(lower, HeldRecord)
        self.deadline_ns, self.workflow = lower.deadline_ns, lower.workflow
        self.stage, self.agent = lower.stage, lower.agent

    def absorb(self, child: Record) -> None:
        """A path is held down to its deepest node, so a head is held as long as any of its tails was. Mutates."""
        assert isinstance(child, HeldRecord)
        if child.deadline_ns > self.deadline_ns:
            self.deadline_ns, self.workflow = child.deadline_ns, child.workflow
            self.stage, self.agent = child.stage, child.agent
        super().absorb(child)


class ContinuumState:
    """Evictable nodes: expired ones by recency, held ones by deadline. Methods mutate.

    held     workflow -> nodes held for it
    left     workflow -> (when its last request ended, agent of that request), until it returns
    """

    __slots__ = ("expired", "gaps", "held", "history", "left", "oracle", "pinned", "profile")

    def __init__(self, profile: Profile, gaps: GapStatistics, oracle: Oracle | None) -> None:
        self.profile = profile
        self.gaps = gaps
        self.oracle = oracle
        self.history: History[HeldRecord] = History(HeldRecord)
        self.expired: LazyHeap[CacheNode] = LazyHeap()
        self.pinned: LazyHeap[CacheNode] = LazyHeap()
        self.held: dict[int, dict[int, CacheNode]] = {}
        self.left: dict[int, tuple[int, int]] = {}

    def came(self, record: HeldRecord, access: Access) -> None:
        """A request reads the node: note who, and how long its workflow was away."""
        record.workflow, record.stage, record.agent = access.workflow, access.stage, access.agent
        away = self.left.pop(access.workflow, None)
        if away is not None:
            self.gaps.observe(away[1], max(access.now_ns - away[0], 0))

    def reload_ns(self, node: CacheNode) -> int:
        """Return what prefilling the path down to the node anew would take, in ns."""
        tokens = node.depth_tokens
        return (self.profile.linear_ps_at(tokens) + self.profile.chunk_attention_ps(tokens, 0)) // 1000

    def hold(self, node: CacheNode, record: HeldRecord, deadline_ns: int) -> None:
        """Set until when the node is held."""
        self.unhold(node, record)
        record.deadline_ns = deadline_ns
        if deadline_ns and record.workflow >= 0:
            self.held.setdefault(record.workflow, {})[node.id] = node

    def unhold(self, node: CacheNode, record: HeldRecord) -> None:
        """Forget that a workflow holds the node."""
        nodes = self.held.get(record.workflow)
        if nodes is not None and nodes.pop(node.id, None) is not None and not nodes:
            del self.held[record.workflow]

    def rank(self, node: CacheNode, record: HeldRecord) -> None:
        """Enter the order of the held or of the expired; time moves nodes from one to the other."""
        if record.deadline_ns:
            self.expired.discard(node.id)
            self.pinned.set(node.id, (record.deadline_ns, record.stamp), node)
        else:
            self.pinned.discard(node.id)
            self.expired.set(node.id, record.stamp, node)

    def expire(self, now_ns: int) -> None:
        """Move what is due by now to the expired."""
        records = self.history.records
        while (node := self.pinned.peek()) is not None:
            record = records[node.id]
            if record.deadline_ns > now_ns:
                return
            self.hold(node, record, 0)
            self.rank(node, record)


@dataclass(frozen=True)
class Continuum(Evictor[ContinuumState]):
    """Holds the path of a request that ended for a time to live; expired paths leave by LRU, then held ones.

    Held nodes leave by the earliest deadline when nothing else is left, so that a request at the head of the queue
    that needs their room gets it. A path is let go when its workflow finishes, and when it is read again; the end of
    that request holds it anew. "Tool" is the agent whose request ended: an evictor hears of no tool. The scheduling
    half of Continuum (programs first come first served) is a host's.

    ttl        fixed: `ttl_s` for all; empirical: the time tau that maximises P(gap <= tau) * benefit - tau over the
               last `window` gaps of the agent, benefit being the prefill saved and `queue_s`; oracle: held without
               end when the recorded run reads the path again, else not at all; oracle_time: the true gap is known, by
               the trace, and the path held until the workflow is back and has queued `queue_s`, if that pays
    ttl_s      fixed time to live; with empirical, until `samples_min` gaps were seen
    samples_min   gaps of an agent before its own distribution is used; before, that of all agents
    window     gaps kept for an agent
    queue_s    queueing a returning program is spared, Continuum's mean wait times its learned factor
    Source: Continuum (arXiv 2511.02230), the time-to-live rule.
    """

    ttl: Literal["fixed", "empirical", "oracle", "oracle_time"] = "empirical"
    ttl_s: float = 2.0
    samples_min: int = 8
    window: int = 256
    queue_s: float = 0.0
    label = "Continuum TTL"
    source = "Continuum (arXiv 2511.02230)"

    def __post_init__(self) -> None:
        for name, low, high in (
            ("ttl_s", 0, 1e6), ("queue_s", 0, 1e6), ("samples_min", 1, 10_000), ("window", 1, 10_000),
        ):  # fmt: skip
            if not low <= getattr(self, name) <= high:
                raise InputError(f"{name}={getattr(self, name)}, allowed: {low} to {high:g}")
        if self.ttl in ("oracle", "oracle_time"):
            object.__setattr__(self, "needs", frozenset({"oracle"}))

    def new_state(self, host: HostInfo) -> ContinuumState:
        """Return an empty order. Raises InputError when ttl=oracle and the host has none."""
        if self.needs and host.oracle is None:
            raise InputError(f"evictor=continuum with ttl={self.ttl}: this host has no oracle")
        gaps = GapStatistics(self.window, self.samples_min, round(self.ttl_s * 1e9))
        return ContinuumState(host.profile, gaps, host.oracle if self.needs else None)

    def insert(self, state: ContinuumState, node: CacheNode, access: Access) -> None:
        """Note the reader. Mutates state."""
        state.came(state.history.insert(node), access)

    def hit(self, state: ContinuumState, node: CacheNode, access: Access) -> None:
        """Note the reader; nothing holds the node now but the request. Mutates state."""
        record = state.history.hit(node)
        if record.workflow == access.workflow:
            state.hold(node, record, 0)
        else:
            state.unhold(node, record)  # the other workflow's deadline stays, without its name
        state.came(record, access)
        if node.id in state.pinned or node.id in state.expired:
            state.rank(node, record)

    def done(self, state: ContinuumState, node: CacheNode, now_ns: int) -> None:
        """Hold the path the request leaves, no shorter than it is held already. Mutates state."""
        state.history.done(node)
        record = state.history.records[node.id]
        if record.workflow < 0:
            return
        state.left[record.workflow] = (now_ns, record.agent)
        state.hold(node, record, max(record.deadline_ns, self._deadline_ns(state, node, record, now_ns)))

    def _deadline_ns(self, state: ContinuumState, node: CacheNode, record: HeldRecord, now_ns: int) -> int:
        benefit_ns = state.reload_ns(node) + round(self.queue_s * 1e9)
        if self.ttl == "oracle_time":
            assert state.oracle is not None
            away_ns = state.oracle.away_ns(record.stage)
            return now_ns + away_ns + round(self.queue_s * 1e9) if away_ns < benefit_ns else 0
        if state.oracle is not None:
            return FOREVER if state.oracle.next_use(node) < _UNUSED else 0
        ttl_ns = state.gaps.cold_ttl_ns
        if self.ttl == "empirical":
            ttl_ns = state.gaps.best_ttl_ns(record.agent, benefit_ns)
        return now_ns + ttl_ns if ttl_ns else 0

    def release(self, state: ContinuumState, node: CacheNode, now_ns: int) -> None:
        """Enter the order. Mutates state."""
        state.rank(node, state.history.records[node.id])

    def pin(self, state: ContinuumState, node: CacheNode) -> None:
        """Leave the order. Mutates state."""
        state.pinned.discard(node.id)
        state.expired.discard(node.id)

    def split(self, state: ContinuumState, upper: CacheNode, lower: CacheNode) -> None:
        """Both parts are held as the whole was. Mutates state."""
        record = state.history.split(upper, lower)
        state.hold(upper, record, record.deadline_ns)

    def remove(self, state: ContinuumState, node: CacheNode) -> None:
        """Pass the deadline to the parent. Mutates state."""
        self.pin(state, node)
        parent = node.parent
        records = state.history.records
        state.unhold(node, records[node.id])
        above = records.get(parent.id) if parent is not None else None
        if above is not None:
            assert parent is not None
            state.unhold(parent, above)
        state.history.remove(node)
        if above is not None:
            assert parent is not None
            state.hold(parent, above, above.deadline_ns)

    def workflow_finished(self, state: ContinuumState, workflow: int, now_ns: int) -> None:
        """Let go what is held for the workflow. Mutates state."""
        state.left.pop(workflow, None)
        for id, node in state.held.pop(workflow, {}).items():
            record = state.history.records[id]
            record.deadline_ns = 0
            if id in state.pinned:
                state.rank(node, record)

    def next_victim(self, state: ContinuumState, now_ns: int) -> CacheNode | None:
        """Return the oldest expired node, else the one whose deadline is nearest. Mutates state: time passed."""
        state.expire(now_ns)
        node = state.expired.peek()
        return state.pinned.peek() if node is None else node

    def next_deadline(self, state: ContinuumState) -> int | None:
        """Return the earliest deadline (ns) among evictable nodes, None when none is held. Drops stale entries."""
        node = state.pinned.peek()
        deadline = FOREVER if node is None else state.history.records[node.id].deadline_ns
        return None if deadline >= FOREVER else deadline
