"""Prefetching from the host tier in vLLM: the simulator's rules (`sim/prefetch.py`), a block at a time.

Asked when a step that decodes only has been scheduled, while no earlier copy is under way. Blocks are taken from the
pool in the evictor's order, free ones and retired ones first; they become known to the cache when the worker has said
that they hold what they should.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

from live.vllm.blocks import BlockTree, Node
from live.vllm.copies import LoadReport
from live.vllm.guard import PolicyGuard
from live.vllm.readers import Path, PathReaders
from live.vllm.tier import HostTier
from policies.api import Evictor
from policies.views import BatchShape, Forecast, HostInfo

_UNBOUNDED = 1 << 40


class PoolHands(Protocol):
    """What prefetching does with the pool."""

    def take(self) -> Any:
        """Return a block in the order of reuse, held."""

    def hold(self, content: bytes) -> Any:
        """Return a block with a content, held."""

    def know(self, block: Any, path: Path) -> None:
        """Make a held block known as the last content of `path`, its parent being resident."""

    def give(self, blocks: list[Any]) -> None:
        """Let go of blocks."""


@dataclass(eq=False)
class HostBlock:
    """A content that the host has and the pool lacks; a `HostNode` to prefetchers."""

    id: int
    identity: int
    parent: HostBlock | None
    path: Path
    tokens: int
    depth_tokens: int
    created_ns: int
    last_access_ns: int
    readers: list[tuple[int, int]]


@dataclass
class _Flight:
    """A copy under way: candidates, the blocks they go to, and held blocks that they hang on."""

    wanted: list[HostBlock]
    blocks: list[Any]
    above: list[Any]


class LivePrefetch:
    """The prefetcher of one pool. Methods but `about` mutate.

    prefetched, used, dropped   blocks that arrived; that a request hit before they left; in vain
    """

    def __init__(
        self,
        guard: PolicyGuard,
        evictor: PolicyGuard,
        info: HostInfo,
        pool: BlockTree,
        tier: HostTier,
        readers: PathReaders,
        hands: PoolHands,
        bytes_per_s: int,
        arrived: Callable[[Node, int], None],
    ) -> None:
        self._guard = guard
        self._evictor = evictor
        self._info = info
        self._pool = pool
        self._tier = tier
        self._readers = readers
        self._hands = hands
        self._bytes_per_s = bytes_per_s
        self._arrived = arrived
        policy = evictor.policy
        self._knows_retired = isinstance(policy, Evictor) and type(policy).retired is not Evictor.retired
        self._flight: _Flight | None = None
        self._outstanding: set[int] = set()  # nodes that arrived and were neither used nor evicted
        self._decode_steps = 0
        self._decode_ns = 0
        self.prefetched = self.used_blocks = self.dropped = 0

    def forecast(self, forecast: Forecast) -> None:
        """Pass on a forecast."""
        self._guard.call("forecast", forecast)

    def workflow_finished(self, workflow: int, now_ns: int) -> None:
        """Pass on the end of a workflow."""
        self._guard.call("workflow_finished", workflow, now_ns)

    def ran(self, duration_ns: int) -> None:
        """A step that decodes only was followed by another: it counts in the running average."""
        self._decode_steps += 1
        self._decode_ns += duration_ns

    def used(self, node: Node) -> None:
        """A request hit the prefix that ends with `node`."""
        at: Node | None = node
        while at is not None and self._outstanding:
            if at.id in self._outstanding:
                self._outstanding.discard(at.id)
                self.used_blocks += 1
            at = at.parent

    def evicted(self, node: Node) -> None:
        """A node left the pool."""
        self._outstanding.discard(node.id)

    def plan(self, shape: BatchShape, now_ns: int) -> None:
        """Begin the copies of this step, if any are wished for and there is room."""
        if self._flight is not None or not self._guard.alive or not self._evictor.alive:
            return
        size = self._info.block_tokens
        given = self._guard.call("displaceable_tokens", len(self._outstanding) * size)
        displaceable = int(given or 0) // size
        if not self._pool.blank and displaceable <= 0 and not self._retired_next(now_ns):
            return
        nodes = self._candidates()
        chosen = self._choose(nodes, self._link_blocks(), shape) if nodes else []
        if not chosen:
            return
        for node in chosen:  # what a block that is taken for them leaves to the host must not push them out
            self._tier.pin(node.path, now_ns)
        above = [self._hands.hold(n.path[-2]) for n in chosen if n.parent is None and len(n.path) > 1]
        room: list[Any] = []
        while len(room) < len(chosen) and self._may_take(displaceable, now_ns):
            displaceable -= not self._pool.blank and not self._retired_next(now_ns)
            room.append(self._hands.take())
        if len(room) < len(chosen):
            others = self._choose(nodes, len(room), shape)
            chosen = [n for n in others if self._tier.matched(n.path) == len(n.path)]
        self._hands.give(room[len(chosen) :])
        blocks = room[: len(chosen)]
        if not chosen:
            self._hands.give(above)
            return
        for node, block in zip(chosen, blocks, strict=True):
            self._tier.pin(node.path, now_ns)
            access = self._readers.access(*node.readers[0], now_ns)
            self._tier.load(node.path, len(node.path) - 1, [block.block_id], access, requested=False)
        self._flight = _Flight(chosen, blocks, above)

    def landed(self, report: LoadReport, now_ns: int) -> None:
        """The worker ended the copies: sound ones, whose parent is there, become known to the cache."""
        flight, self._flight = self._flight, None
        if flight is None:
            return
        bad = {block for _, block in report.bad}
        for node, block in zip(flight.wanted, flight.blocks, strict=True):
            readers = [self._readers.access(w, a, now_ns) for w, a in node.readers if self._readers.active(w)]
            hangs = len(node.path) == 1 or node.path[-2] in self._pool.nodes
            if block.block_id in bad or not readers or not hangs or node.path[-1] in self._pool.nodes:
                self.dropped += 1
                continue
            self._hands.know(block, node.path)
            parent = [self._held(node.path[-2])] if len(node.path) > 1 else []
            self._pool.insert([*parent, block], len(parent), readers[0])
            made = self._pool.nodes[node.path[-1]]
            self._evictor.call("restore", made, readers)
            self._outstanding.add(made.id)
            self.prefetched += 1
            self._arrived(made, readers[0].stage)
        # Deepest first, as the engine gives back a request's blocks.
        self._hands.give([*reversed(flight.blocks), *flight.above])

    def about(self) -> dict[str, int]:
        """Return the counts."""
        return {"prefetched": self.prefetched, "used": self.used_blocks, "dropped": self.dropped}

    def _held(self, content: bytes) -> Any:
        """Stand in for the parent's block: the tree reads its hash alone."""
        return _Hash(content)

    def _candidates(self) -> list[HostBlock]:
        """Return the contents in the host that active workflows have read and the pool lacks, parents first."""
        found: dict[bytes, HostBlock] = {}
        size = self._info.block_tokens
        for workflow, agent, path in self._readers.paths():
            resident = next((i for i, c in enumerate(path) if c not in self._pool.nodes), len(path))
            parent: HostBlock | None = None
            for i in range(resident, self._tier.matched(path)):
                node = found.get(path[i])
                if node is None:
                    held = self._tier.tree.nodes[path[i]]
                    node = found[path[i]] = HostBlock(
                        held.id, held.identity, parent, path[: i + 1], size, (i + 1) * size, held.created_ns,
                        held.last_access_ns, [],
                    )  # fmt: skip
                if (workflow, agent) not in node.readers:
                    node.readers.append((workflow, agent))
                parent = node
        return list(found.values())

    def _choose(self, nodes: list[HostBlock], blocks: int, shape: BatchShape) -> list[HostBlock]:
        """Return what the policy chooses, checked: parents before children, within the budget."""
        if blocks <= 0:
            return []
        rows = self._guard.call("choose", nodes, blocks * self._info.block_tokens, shape)
        if not rows:
            return []
        taken: set[int] = set()
        out: list[HostBlock] = []
        for row in rows:
            sound = isinstance(row, int) and 0 <= row < len(nodes) and row not in taken
            if not sound or len(out) >= blocks:
                self._guard.refuse(f"choose answered {rows!r:.60}, of {len(nodes)} nodes and {blocks} blocks")
                return []
            node = nodes[row]
            if node.parent is not None and node.parent not in out:
                self._guard.refuse("choose answered a node whose parent is neither resident nor before it")
                return []
            taken.add(row)
            out.append(node)
        return out

    def _link_blocks(self) -> int:
        """Return the blocks an idle link moves during an average decode step."""
        if not self._decode_steps:
            return 0  # no step to average yet
        if not self._bytes_per_s:
            return _UNBOUNDED
        spare_ns = self._decode_ns // self._decode_steps
        block_bytes = self._info.block_tokens * self._info.profile.kv_bytes_per_token
        return spare_ns * self._bytes_per_s // 1_000_000_000 // block_bytes

    def _may_take(self, displaceable: int, now_ns: int) -> bool:
        if self._pool.blank:
            return True
        return bool(self._pool.evictable) and (displaceable > 0 or self._retired_next(now_ns))

    def _retired_next(self, now_ns: int) -> bool:
        if not self._knows_retired or not self._pool.evictable:
            return False
        victim = self._evictor.call("next_victim", now_ns)
        return victim is not None and bool(self._evictor.call("retired", victim))


@dataclass(frozen=True)
class _Hash:
    """A block of which only the content is known."""

    block_hash: bytes
    block_id: int = -1
