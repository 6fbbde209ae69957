"""Host memory behind HBM, in the manner of HiCache: a second prefix tree, and a link each way.

The copy in the host outlives the one in HBM. A prefix whose continuation is only there is loaded back when
that is predicted to be cheaper than recomputing it. Residency in the host is closed under prefixes too, so
storing a run stores what is missing above it.
"""

from __future__ import annotations

from policies.costs import Profile
from policies.views import Access, CacheNode, Forecast, HostInfo
from sim.clock import PS_PER_NS
from sim.config import HostTierConfig
from sim.kv.paths import PrefixPaths
from sim.kv.radix import Node, RadixCache
from sim.pcie import Link
from sim.request import Request


class HostTier:
    """The host tier of one replica. Every public method mutates; `capacity_blocks` bounds what it holds."""

    def __init__(
        self,
        config: HostTierConfig,
        capacity_blocks: int,
        block_bytes: int,
        profile: Profile,
        host: HostInfo,
        paths: PrefixPaths,
    ) -> None:
        self.config = config
        self.capacity_blocks = capacity_blocks
        self._block_bytes = block_bytes
        self._paths = paths
        self._evictor = evictor = config.load_evictor()
        self.tree = RadixCache(paths, evictor, evictor.new_state(host), whole_leaves=False)
        rate = config.pcie_bytes_per_s or profile.pcie_bytes_per_s
        self.to_host = Link(rate, profile.pcie_copy_overhead_ps)
        self.to_device = Link(rate, profile.pcie_copy_overhead_ps)
        self._seen: set[int] = set()
        self._ready_ps: dict[int, int] = {}  # segment -> when its last copy to the host ends

    def forecast(self, forecast: Forecast) -> None:
        """Pass a predictor's forecast to the host's evictor."""
        self._evictor.forecast(self.tree.state, forecast)

    def workflow_finished(self, workflow: int, now_ns: int) -> None:
        """No further request of the workflow will come."""
        self._evictor.workflow_finished(self.tree.state, workflow, now_ns)

    def load(self, request: Request, have_tokens: int, now_ps: int, profile: Profile) -> tuple[int, int]:
        """Return (end of the copy, tokens loaded beyond `have_tokens`); (now, 0) if recomputing is better."""
        paths, stage, size = self._paths, request.stage, self._paths.block_tokens
        cap = min(paths.prompt_blocks[stage], (request.target_tokens - 1) // size)
        node, matched = self.tree.find(paths.prompt_segment[stage], cap)
        tokens = matched * size - have_tokens
        if node is None or tokens < max(self.config.min_load_tokens, 1) or self.config.load_back == "never":
            return now_ps, 0
        size_bytes = tokens // size * self._block_bytes
        start_ps = max(now_ps, self.readable_at(paths.prompt_segment[stage]))
        if self.config.load_back == "predicted":
            wait_ps = max(self.to_device.free_at_ps, start_ps) - now_ps
            wait_ps += self.to_device.duration_ps(size_bytes)
            if wait_ps >= profile.linear_ps_at(tokens) + profile.chunk_attention_ps(tokens, have_tokens):
                return now_ps, 0
        self.tree.touch(node, Access(now_ps // PS_PER_NS, request.workflow, stage, request.agent))
        return self.to_device.transfer(size_bytes, start_ps), tokens

    def hosted(self, node: CacheNode) -> int:
        """Return the leading tokens of the path of an HBM node that are here once it has left. Does not mutate."""
        assert isinstance(node, Node)
        if node.segment < 0:
            return 0  # private content is never stored
        if self.config.write == "write_back":
            return node.depth_tokens
        return self.tree.find(node.segment, node.end)[1] * self._paths.block_tokens

    def readable_at(self, segment: int) -> int:
        """Return when the last copy to the host on the path of `segment` ends, in ps. Does not mutate."""
        ready, parent, latest = self._ready_ps, self._paths.parent, 0
        while segment >= 0:
            latest = max(latest, ready.get(segment, 0))
            segment = parent[segment]
        return latest

    def on_insert(self, segment: int, stage: int, blocks: int, now_ps: int) -> None:
        """HBM got the leading `blocks` of a path: write-through copies them, selective at second sight."""
        if self.config.write == "write_through" or (
            self.config.write == "write_through_selective" and segment in self._seen
        ):
            self._store(segment, stage, blocks, now_ps)

    def on_hit(self, segment: int, stage: int, blocks: int, now_ps: int) -> None:
        """HBM served the leading `blocks` of a path."""
        if self.config.write == "write_through_selective":
            self._seen.add(segment)
            self._store(segment, stage, blocks, now_ps)

    def on_evict(self, node: Node, now_ps: int) -> None:
        """`node` left HBM; write-back copies it and what is missing above it."""
        if self.config.write == "write_back" and node.segment >= 0:
            self._store(node.segment, node.stage, node.end + node.evicted, now_ps)

    def _store(self, segment: int, stage: int, blocks: int, now_ps: int) -> None:
        tree, now_ns = self.tree, now_ps // PS_PER_NS
        blocks = min(blocks, self._paths.end[segment])
        node, matched = tree.find(segment, blocks)
        missing = blocks - matched
        if missing <= 0 or missing > self.capacity_blocks:
            return
        access = Access(now_ns, self._paths.workflow[stage], stage, self._paths.agent[stage])
        if node is not None:
            node = tree.cut_at(node, matched, now_ns)
            tree.pin(node)
        short = missing - (self.capacity_blocks - tree.resident_blocks)
        if short <= 0 or tree.evict(short, now_ns, _forget) >= short:
            stored = tree.insert(node, segment, stage, blocks, access)
            tree.unpin(stored, now_ns)
            self._ready_ps[segment] = self.to_host.transfer(missing * self._block_bytes, now_ps)
        if node is not None:
            tree.unpin(node, now_ns)


def _forget(node: Node, blocks: int, freed: int) -> None:
    """The host's own evictions leave no row: nothing of the run depends on when they happened."""
