"""A small prefix cache that drives an evictor and checks every answer, for the conformance laws.

It follows the contract to the letter and nothing more: nodes show what `CacheNode` promises, read-only, and
every read is counted. Requests depend on (seed, index) alone, so that two policies meet the same ones.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from policies.api import Access, CacheNode, Evictor, Forecast
from traces import draws

AGENTS = 3
NEVER = 1 << 60
_REQUESTS_PER_WORKFLOW = 16


class Meter:
    """Counts reads of nodes."""

    __slots__ = ("reads",)

    def __init__(self) -> None:
        self.reads = 0


class ToyNode:
    """A cache node as a policy sees it: seven properties, nothing to write."""

    __slots__ = (
        "_children",
        "_created_ns",
        "_id",
        "_last_ns",
        "_meter",
        "_parent",
        "_path",
        "_refs",
        "_units",
    )

    def __init__(
        self, id: int, parent: ToyNode | None, units: tuple[int, ...], now_ns: int, meter: Meter
    ) -> None:
        self._id = id
        self._parent = parent
        self._units = units
        self._path: tuple[int, ...] = (parent._path if parent is not None else ()) + units
        self._created_ns = now_ns
        self._last_ns = now_ns
        self._meter = meter
        self._children: dict[int, ToyNode] = {}
        self._refs = 0

    @property
    def id(self) -> int:
        """Unique, never reused."""
        self._meter.reads += 1
        return self._id

    @property
    def identity(self) -> int:
        """Equal for equal paths."""
        self._meter.reads += 1
        return draws.bits(0, "toy identity", *self._path)

    @property
    def tokens(self) -> int:
        """16 a unit."""
        self._meter.reads += 1
        return 16 * len(self._units)

    @property
    def depth_tokens(self) -> int:
        """Prefix tokens down to the end of this node."""
        self._meter.reads += 1
        return 16 * len(self._path)

    @property
    def parent(self) -> CacheNode | None:
        """Node above, None at the top."""
        self._meter.reads += 1
        return self._parent

    @property
    def created_ns(self) -> int:
        """When it became resident."""
        self._meter.reads += 1
        return self._created_ns

    @property
    def last_access_ns(self) -> int:
        """Last insert or hit of this node."""
        self._meter.reads += 1
        return self._last_ns

    def __repr__(self) -> str:
        blocks, children = len(self._units), len(self._children)
        return f"node {self._id} ({blocks} blocks, {children} children, {self._refs} holders)"


def request(seed: int, index: int) -> tuple[int, tuple[int, ...]]:
    """Return (workflow, units) of a request: a shared head, its workflow's history, a tail of its own."""
    bits = draws.bits(seed, "toy request", index)
    workflow = index // _REQUESTS_PER_WORKFLOW + bits % 3
    head = [1 << 40 | bits >> 8 & 1, 2 << 40 | bits >> 8 & 1]
    history = [3 << 40 | workflow << 8 | k for k in range(bits >> 16 & 7)]
    tail = [4 << 40 | index << 8 | k for k in range(bits >> 24 & 3)]
    return workflow, tuple(head + history + tail)


class ToyOracle:
    """Knows all requests of a seed."""

    def __init__(self, seed: int, requests: int) -> None:
        self.now = 0
        self._uses: dict[tuple[int, ...], list[int]] = {}
        for i in range(requests):
            units = request(seed, i)[1]
            for n in range(1, len(units) + 1):
                self._uses.setdefault(units[:n], []).append(i)

    def away_ns(self, stage: int) -> int:
        """Return a gap that differs by stage."""
        return stage % 7 * 1000

    def next_use(self, node: CacheNode) -> int:
        """Return the index of the next request that reads the node."""
        assert isinstance(node, ToyNode)
        uses = self._uses.get(node._path, [])
        at = bisect_right(uses, self.now)
        return uses[at] if at < len(uses) else NEVER

    def forecast(self, workflow: int, steps: int, released: int | None = None) -> NDArray[np.float32]:
        """Return float32[steps, AGENTS + 1], one-hot."""
        rows = np.zeros((steps, AGENTS + 1), dtype=np.float32)
        rows[:, workflow % (AGENTS + 1)] = 1
        return rows

    def output_tokens(self, stage: int, position: int, count: int) -> NDArray[np.uint32]:
        """Return uint32[count] made-up tokens."""
        return (np.arange(position, position + count) % 7 + max(stage, 0)).astype(np.uint32)


class ToyTree:
    """The cache. `step` serves one request, `drain` empties it; both raise AssertionError on a broken law.

    id_stride spreads the node ids without changing their order. `victims` logs (path, blocks freed).
    """

    def __init__(
        self,
        policy: Evictor[Any],
        state: Any,
        seed: int,
        *,
        blocks: int,
        oracle: ToyOracle,
        id_stride: int = 1,
    ) -> None:
        self.policy = policy
        self.state = state
        self.seed = seed
        self.blocks = blocks
        self.oracle = oracle
        self.meter = Meter()
        self.victims: list[tuple[tuple[int, ...], int]] = []
        self.whole_leaves = seed % 2 == 0
        self._stride = id_stride
        self._made = 0
        self._resident = 0
        self._index = 0
        self._workflow = 0  # the first that has not finished
        self._top: dict[int, ToyNode] = {}
        self._evictable: dict[int, ToyNode] = {}
        self._running: list[tuple[ToyNode, Access]] = []

    def step(self) -> None:
        """Serve the next request and let some running ones end. Mutates."""
        index, self._index = self._index, self._index + 1
        now_ns = index * 1000
        self.oracle.now = index
        workflow, units = request(self.seed, index)
        access = Access(now_ns, workflow, index, index % AGENTS)
        if draws.uniform(self.seed, "toy forecast", index) < 0.1:
            rows = self.oracle.forecast(workflow, 2)
            self.policy.forecast(self.state, Forecast(workflow, now_ns, rows))
        self._start(units, access)
        turn = 0
        while self._running and (
            len(self._running) > 4 or draws.uniform(self.seed, "toy end", index, turn) < 0.5
        ):
            at = draws.bits(self.seed, "toy which", index, turn) % len(self._running)
            node, by = self._running.pop(at)
            if draws.uniform(self.seed, "toy grows", index, turn) < 0.3:
                grown = (5 << 40 | index << 8 | turn,)
                if self._room(len(grown), now_ns):
                    child = self._insert(node, grown, Access(now_ns, by.workflow, by.stage, by.agent))
                    self._unpin(node, now_ns)
                    node = child
            self._end(node, now_ns)
            turn += 1
        self._finish_workflows(index // _REQUESTS_PER_WORKFLOW, now_ns)

    def drain(self) -> None:
        """Let all requests and workflows end and evict everything. Mutates."""
        now_ns = self._index * 1000
        while self._running:
            self._end(self._running.pop()[0], now_ns)
        self._finish_workflows(NEVER, now_ns)
        self._room(self.blocks, now_ns)
        assert self._resident == 0, f"the cache did not empty: {self._resident} blocks are left"
        assert self._victim(now_ns) is None

    def _end(self, node: ToyNode, now_ns: int) -> None:
        self.policy.done(self.state, node, now_ns)
        self._unpin(node, now_ns)

    def _finish_workflows(self, before: int, now_ns: int) -> None:
        """Say which of the workflows below `before` have no request left to come or to end."""
        last = min(before, self._index // _REQUESTS_PER_WORKFLOW + 3)
        while self._workflow < last and all(by.workflow != self._workflow for _, by in self._running):
            self.policy.workflow_finished(self.state, self._workflow, now_ns)
            self._workflow += 1

    def _start(self, units: tuple[int, ...], access: Access) -> None:
        deepest, matched = None, 0
        children = self._top
        while matched < len(units) and units[matched] in children:
            node = children[units[matched]]
            same = _common(node._units, units[matched:])
            matched += same
            deepest = node if same == len(node._units) else self._split(node, same)
            if same < len(node._units) or deepest is not node:
                break
            children = node._children
        if deepest is not None:
            deepest._last_ns = access.now_ns
            if draws.uniform(self.seed, "toy copy", access.stage) < 0.1:
                self.policy.hit(self.state, deepest, access)  # a tier that copies out holds nothing
                return
            self._pin(deepest)
            self.policy.hit(self.state, deepest, access)
        rest = units[matched:]
        if not self._room(len(rest), access.now_ns):
            if deepest is not None:
                self._end(deepest, access.now_ns)
            return
        if rest:
            node = self._insert(deepest, rest, access)
            if deepest is not None:
                self._unpin(deepest, access.now_ns)
            deepest = node
        assert deepest is not None
        self._running.append((deepest, access))

    def _room(self, blocks: int, now_ns: int) -> bool:
        while self._resident + blocks > self.blocks:
            victim = self._victim(now_ns)
            if victim is None:
                return False
            size = len(victim._units)
            over = self._resident + blocks - self.blocks
            if over < size and not self.whole_leaves:
                victim._units = victim._units[:-over]
                victim._path = victim._path[:-over]
                self._freed(victim, over)
                self.policy.shrink(self.state, victim)
            else:
                self._freed(victim, size)
                self._remove(victim, now_ns)
        return True

    def _freed(self, victim: ToyNode, blocks: int) -> None:
        self._resident -= blocks
        self.victims.append((victim._path, blocks))

    def _victim(self, now_ns: int) -> ToyNode | None:
        victim = self.policy.next_victim(self.state, now_ns)
        if victim is None:
            assert not self._evictable, (
                f"next_victim returned None, but {next(iter(self._evictable.values()))} is evictable"
            )
            return None
        assert isinstance(victim, ToyNode), f"next_victim returned {victim!r}, which is no node of this cache"
        assert self._evictable.get(victim._id) is victim, (
            f"next_victim named {victim}, which is not evictable now"
        )
        if not self.policy.retired(self.state, victim):
            for node in self._evictable.values():
                assert not self.policy.retired(self.state, node), (
                    f"next_victim named {victim} while {node}, which retired() gives away, is left"
                )
        return victim

    def _new(self, parent: ToyNode | None, units: tuple[int, ...], now_ns: int) -> ToyNode:
        self._made += 1
        node = ToyNode(self._made * self._stride, parent, units, now_ns, self.meter)
        (self._top if parent is None else parent._children)[units[0]] = node
        return node

    def _insert(self, parent: ToyNode | None, units: tuple[int, ...], access: Access) -> ToyNode:
        node = self._new(parent, units, access.now_ns)
        self._resident += len(units)
        self.policy.insert(self.state, node, access)
        node._refs = 1
        if parent is not None:
            parent._refs += 1
        return node

    def _split(self, lower: ToyNode, at: int) -> ToyNode:
        upper = self._new(lower._parent, lower._units[:at], lower._created_ns)
        upper._last_ns = lower._last_ns
        upper._refs = 1 if lower._refs else 0
        lower._parent = upper
        lower._units = lower._units[at:]
        upper._children[lower._units[0]] = lower
        self.policy.split(self.state, upper, lower)
        return upper

    def _pin(self, node: ToyNode) -> None:
        at: ToyNode | None = node
        while at is not None:
            at._refs += 1
            if at._refs > 1:
                return
            if self._evictable.pop(at._id, None) is not None:
                self.policy.pin(self.state, at)
            at = at._parent

    def _unpin(self, node: ToyNode, now_ns: int) -> None:
        at: ToyNode | None = node
        while at is not None:
            at._refs -= 1
            if at._refs:
                return
            self._release(at, now_ns)
            at = at._parent

    def _release(self, node: ToyNode, now_ns: int) -> None:
        if not node._children:
            self._evictable[node._id] = node
            self.policy.release(self.state, node, now_ns)

    def _remove(self, node: ToyNode, now_ns: int) -> None:
        del self._evictable[node._id]
        parent = node._parent
        (self._top if parent is None else parent._children).pop(
            node._path[len(node._path) - len(node._units)]
        )
        self.policy.remove(self.state, node)
        if parent is not None and parent._refs == 0:
            self._release(parent, now_ns)


def _common(a: Sequence[int], b: Sequence[int]) -> int:
    n = 0
    for x, y in zip(a, b, strict=False):
        if x != y:
            break
        n += 1
    return n
