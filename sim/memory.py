"""The KV memory of a replica: what requests hold themselves, and the prefix tree they share.

Every block is free, held by one request, or in the tree; the tree's blocks are protected (at or above a pinned node)
or evictable. A request reserves its whole prompt at admission, hands full blocks that have an identity to the tree as
they are scheduled or computed, and gives the rest back when it ends.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from policies.api import Evictor, HostInfo
from policies.views import Access
from sim.clock import PS_PER_NS, Clock
from sim.config import EngineConfig
from sim.kv.paths import PrefixPaths
from sim.kv.radix import Node, RadixCache
from sim.kv.readers import Readers
from sim.kv.tiers import HostTier
from sim.log import RunLog
from sim.request import Request
from traces.tables import CACHE_EVENTS

if TYPE_CHECKING:
    from sim.prefetch import Prefetch

_HIT, _INSERT, _EVICT = (CACHE_EVENTS.index(e) for e in ("hit", "insert", "evict"))


class Memory:
    """KV blocks of one replica. Every method but `lookup` and the property mutates, requests included.

    total_blocks     the pool
    private_blocks   held by requests, outside the tree
    radix, caching   the cache's semantics (`EngineConfig.prefix_cache`)
    watermark_blocks left free by admission
    prefetch         set by the engine where there is one; told of hits and evictions
    drops_last_block a hit is shortened by its last block (`Speculator.drops_last_block`)
    """

    def __init__(
        self,
        env: Clock,
        index: int,
        config: EngineConfig,
        evictor: Evictor[Any],
        host: HostInfo,
        paths: PrefixPaths,
        total_blocks: int,
        host_tier: HostTier | None,
        log: RunLog,
    ) -> None:
        self._env = env
        self._index = index
        self._log = log
        self._paths = paths
        self._block_tokens = config.block_tokens
        self.watermark_blocks = int(config.watermark_blocks_ratio * total_blocks)
        self.radix = config.prefix_cache == "radix"
        self.caching = config.prefix_cache != "none"
        self.total_blocks = total_blocks
        self.private_blocks = 0
        self.evictor = evictor
        if host_tier is not None:
            host = replace(
                host, hosted_tokens=host_tier.hosted, host_bytes_per_s=host_tier.to_device.bytes_per_s
            )
        self.tree = RadixCache(paths, evictor, evictor.new_state(host), whole_leaves=self.radix)
        self.host_tier = host_tier
        self.readers: Readers | None = None
        self.prefetch: Prefetch | None = None
        self.drops_last_block = False

    @property
    def free_blocks(self) -> int:
        """Blocks that hold nothing."""
        return self.total_blocks - self.private_blocks - self.tree.resident_blocks

    def fits(self, blocks: int) -> bool:
        """Say whether a request of `blocks` could ever be served. Does not mutate."""
        return blocks <= self.total_blocks - self.watermark_blocks

    def evict(self, blocks: int) -> None:
        """Free at least `blocks` blocks now, in the evictor's order."""
        self.tree.evict(blocks, self._env.now // PS_PER_NS, self.evicted)

    def lookup(self, request: Request) -> tuple[Node | None, int]:
        """Return the deepest resident node of the request's prefix that may be used, and the blocks matched.

        At most n - 1 tokens match, and one block less with a drafter that needs the last one recomputed.
        """
        node, matched = self._resident(request)
        if self.drops_last_block and matched:
            matched -= 1
            while node is not None and node.start >= matched:
                node = node.parent
        return node, matched

    def _resident(self, request: Request) -> tuple[Node | None, int]:
        if not self.caching:
            return None, 0
        stage = request.stage
        shared = self._paths.prompt_blocks[stage]
        segment = self._paths.prompt_segment[stage]
        cap = (request.target_tokens - 1) // self._block_tokens
        if request.preemptions:
            # What it generated before is part of its prompt now, and may still be resident.
            shared = min(self._paths.sequence_blocks[stage], request.target_tokens // self._block_tokens)
            segment = self._paths.sequence_segment[stage]
        node, matched = self.tree.find(segment, min(shared, cap))
        if request.preemptions and matched == shared < cap:
            tail = self.tree.private(request.number)
            while tail is not None and tail.segment < 0 and tail.start >= cap:
                tail = tail.parent
            if tail is not None and tail.segment < 0:
                return tail, min(tail.end, cap)
        return node, matched

    def reserve(self, request: Request) -> bool:
        """Reserve KV for the whole prompt, reusing what is resident; False when it does not fit now."""
        tree = self.tree
        node, matched = self.lookup(request)
        blocks = -(-request.target_tokens // self._block_tokens)
        need = blocks - matched
        available = self.free_blocks + tree.evictable_blocks - tree.unprotected_above(node, matched)
        if need + self.watermark_blocks > available:
            return False
        now_ns = self._env.now // PS_PER_NS
        if node is not None:
            node = tree.cut_at(node, matched, now_ns)
            tree.pin(node)
            tree.touch(node, Access(now_ns, request.workflow, request.stage, request.agent))
            self._log.add(
                "blocks", (now_ns, self._index, _HIT, node.id, matched, request.workflow, request.stage)
            )
            if self.prefetch is not None:
                self.prefetch.used(node)
            if self.host_tier is not None and node.segment >= 0:
                self.host_tier.on_hit(node.segment, request.stage, matched, self._env.now)
        if self.readers is not None:
            stage = request.stage
            segment, read = self._paths.prompt_segment[stage], self._paths.prompt_blocks[stage]
            self.readers.read(request.workflow, request.agent, stage, segment, read)
        short = need - self.free_blocks
        if short > 0:
            tree.evict(short, now_ns, self.evicted)
        request.node = node
        request.node_blocks = matched
        request.private_blocks = need
        self.private_blocks += need
        request.computed_tokens = matched * self._block_tokens
        if request.preemptions == 0:
            request.gpu_hit_tokens = request.computed_tokens
        else:
            again = request.target_tokens - request.computed_tokens - request.unreached_tokens
            request.recomputed_tokens += again
            if request.recomputed_tokens < 0:  # others published more of the prompt than it had computed
                request.gpu_hit_tokens -= request.recomputed_tokens
                request.recomputed_tokens = 0
        return True

    def publish(self, request: Request, blocks: int, now_ns: int, *, with_output: bool = False) -> None:
        """Put the leading full blocks that have an identity into the tree; duplicates are freed."""
        if not self.caching:
            return
        paths, stage = self._paths, request.stage
        if with_output or request.preemptions:
            segment, shared = paths.sequence_segment[stage], paths.sequence_blocks[stage]
        else:
            segment, shared = paths.prompt_segment[stage], paths.prompt_blocks[stage]
        shared = min(shared, blocks)
        if shared <= request.node_blocks:
            return
        while segment >= 0 and paths.start[segment] >= shared:
            segment = paths.parent[segment]
        tree = self.tree
        found, matched = tree.find(segment, shared)
        old = request.node
        node = old
        if matched > request.node_blocks:
            assert found is not None
            node = tree.cut_at(found, matched, now_ns)
            tree.pin(node)
            if old is not None:
                tree.unpin(old, now_ns)
        if shared > matched:
            parent = node
            node = tree.insert(
                parent, segment, stage, shared, Access(now_ns, request.workflow, stage, request.agent)
            )
            if parent is not None:
                tree.unpin(parent, now_ns)
            self._log.add(
                "blocks", (now_ns, self._index, _INSERT, node.id, shared - matched, request.workflow, stage)
            )
            if self.host_tier is not None:
                self.host_tier.on_insert(segment, stage, shared, self._env.now)
        taken = shared - request.node_blocks
        request.node = node
        request.node_blocks = shared
        request.private_blocks -= taken
        self.private_blocks -= taken

    def restore(self, request: Request) -> None:
        """Tell the evictor which agents of the workflow had read what was just loaded back."""
        node, readers = request.node, self.readers
        if readers is not None and node is not None and node.segment >= 0:
            accesses = readers.of(request.workflow, node.segment, node.end, self._env.now // PS_PER_NS)
            self.evictor.restore(self.tree.state, node, accesses)

    def give_back(self, request: Request, *, keep: bool) -> None:
        """Give the request's blocks back: full blocks stay cached when `keep`, the rest becomes free."""
        size = self._block_tokens
        now_ns = self._env.now // PS_PER_NS
        held = (
            max(-(-request.computed_tokens // size), -(-request.target_tokens // size)) - request.node_blocks
        )
        request.private_blocks = held
        if keep and self.caching:
            full = request.computed_tokens // size
            self.publish(request, full, now_ns, with_output=True)
            tail = full - request.node_blocks
            if tail > 0:
                parent = request.node
                node = self.tree.insert(
                    parent,
                    -1,
                    request.stage,
                    full,
                    Access(now_ns, request.workflow, request.stage, request.agent),
                    request.number,
                )
                if parent is not None:
                    self.tree.unpin(parent, now_ns)
                self._log.add(
                    "blocks", (now_ns, self._index, _INSERT, node.id, tail, request.workflow, request.stage)
                )
                request.node = node
                request.node_blocks = full
                request.private_blocks -= tail
                self.private_blocks -= tail
        self.private_blocks -= request.private_blocks
        request.private_blocks = 0
        if request.node is not None:
            self.evictor.done(self.tree.state, request.node, now_ns)
            self.tree.unpin(request.node, now_ns)
            request.node = None
        request.node_blocks = 0

    def evicted(self, node: Node, blocks: int, _: int) -> None:
        """The last of a node's `blocks` left HBM now."""
        self.evict_row(node, blocks, self._env.now)

    def evict_row(self, node: Node, blocks: int, time_ps: int) -> None:
        """The last of a node's `blocks` left HBM at `time_ps`: log it, tell who keeps books on it."""
        self._log.add("blocks", (time_ps // PS_PER_NS, self._index, _EVICT, node.id, blocks, -1, node.stage))
        if self.prefetch is not None:
            self.prefetch.evicted(node, blocks)
        if self.host_tier is not None:
            self.host_tier.on_evict(node, time_ps)
