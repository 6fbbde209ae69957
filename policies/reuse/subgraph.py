"""DynBranch C1: whatever part of a workflow depends on unchanged inputs is served, the largest first."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from policies import reuse_names
from policies.api import HostInfo, ReuseName, ReusePolicy, StageView


@dataclass(frozen=True)
class Subgraph(ReusePolicy[None]):
    """Names of the enclosing subgraphs that begin here, outermost first, then of the stage itself.

    capacity   most results kept, 0: all
    eviction   which go first: lru, lfu or fifo
    """

    capacity: int = 0
    eviction: Literal["lru", "lfu", "fifo"] = "lru"

    label = "subgraph reuse"
    source = "DynBranch section 3.2"

    def new_state(self, host: HostInfo) -> None:
        """The store is the host's."""

    def names(self, state: None, stage: StageView) -> Sequence[ReuseName]:
        """Return the names, outermost first."""
        # A whole request is the outermost part of all.
        parts = [reuse_names.of_scope(s) for s in stage.scopes if s.stages > 1]
        return [*parts, reuse_names.of_stage(stage)]

    def limits(self) -> tuple[int, str]:
        """Return capacity and eviction."""
        return self.capacity, self.eviction
