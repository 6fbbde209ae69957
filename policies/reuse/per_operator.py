"""Helium+: exact results of single operators (DynBranch's footnote on its baseline)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from policies import reuse_names
from policies.api import HostInfo, ReuseName, ReusePolicy, StageView


@dataclass(frozen=True)
class PerOperator(ReusePolicy[None]):
    """One name a stage. Its cache-aware dispatch is the router `helium`.

    capacity   most results kept, 0: all
    eviction   which go first: lru, lfu or fifo
    """

    capacity: int = 0
    eviction: Literal["lru", "lfu", "fifo"] = "lru"

    label = "Helium+ operator cache"
    source = "arXiv 2603.16104; DynBranch section 5.1, footnote 1"

    def new_state(self, host: HostInfo) -> None:
        """The store is the host's."""

    def names(self, state: None, stage: StageView) -> Sequence[ReuseName]:
        """Return the stage's own name."""
        return [reuse_names.of_stage(stage)]

    def limits(self) -> tuple[int, str]:
        """Return capacity and eviction."""
        return self.capacity, self.eviction
