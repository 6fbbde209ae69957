"""CUDA graphs of one replica: what those captured at start cost, and what those captured while serving take."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from policies.api import Bucketer, HostInfo
from policies.costs import Profile
from sim.clock import PS_PER_NS, Clock
from sim.config import EngineConfig
from sim.log import RunLog
from sim.memory import Memory


@dataclass(frozen=True)
class Startup:
    """Graphs captured before serving, on one replica: their number, what building takes, KV blocks they take."""

    graphs: int
    build_ps: int
    blocks: int


def startup(bucketer: Bucketer[Any], host: HostInfo, profile: Profile, config: EngineConfig) -> Startup:
    """Return what the bucketer's plan costs: one compilation, then a capture for each graph."""
    graphs = len(bucketer.plan(host)) if bucketer.active() else 0
    build_ps = graphs * profile.graph_build_ps + (profile.graph_compile_ps if graphs else 0)
    return Startup(graphs, build_ps, _blocks(graphs, profile, config))


def _blocks(graphs: int, profile: Profile, config: EngineConfig) -> int:
    """Return the KV blocks that graphs take together, rounded up to whole ones."""
    if config.graph_memory != "pool":
        return 0
    return -(-graphs * profile.graph_bytes // max(config.block_tokens * profile.kv_bytes_per_token, 1))


class Graphs:
    """Counts captures on the serving path. Methods mutate, the replica's memory included.

    captured       graphs captured while serving
    owed_blocks    KV blocks that captured graphs hold and the pool has not given up yet
    spared_blocks  blocks of the largest request so far: the pool is never cut below, so that whoever was taken in
                   can be served
    """

    def __init__(
        self, env: Clock, index: int, config: EngineConfig, profile: Profile, memory: Memory, log: RunLog
    ) -> None:
        self._env = env
        self._index = index
        self._memory = memory
        self._log = log
        self._config = config
        self._profile = profile
        self._blocks_taken = 0
        self.captured = 0
        self.owed_blocks = 0
        self.spared_blocks = 0

    def built(self, key: int) -> None:
        """A graph is captured in the step about to run."""
        self.captured += 1
        now_ns = self._env.now // PS_PER_NS
        self._log.add("decisions", (now_ns, self._index, "bucketers", "build", -1, -1, key))
        self.owed_blocks = _blocks(self.captured, self._profile, self._config) - self._blocks_taken

    def take(self) -> None:
        """Take what is owed out of the pool as far as blocks are free or evictable."""
        memory = self._memory
        spare = memory.total_blocks - memory.watermark_blocks - self.spared_blocks
        blocks = min(self.owed_blocks, memory.free_blocks + memory.tree.evictable_blocks, spare)
        if blocks <= 0:
            return
        short = blocks - memory.free_blocks
        if short > 0:
            memory.evict(short)
        blocks = min(blocks, memory.free_blocks)
        memory.total_blocks -= blocks
        self._blocks_taken += blocks
        self.owed_blocks -= blocks
