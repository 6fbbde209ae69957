"""Results after an unchanged history only: the boundary of prefix caches, applied to results."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from policies import reuse_names
from policies.api import HostInfo, ReuseName, ReusePolicy, StageView


@dataclass(frozen=True)
class PrefixRegion(ReusePolicy[None]):
    """A stage is served while everything its workflow rendered so far is what an earlier one rendered.

    capacity   most results kept, 0: all
    eviction   which go first: lru, lfu or fifo
    """

    capacity: int = 0
    eviction: Literal["lru", "lfu", "fifo"] = "lru"

    label = "prefix-region reuse"
    source = "DynBranch section 3.2, Fig. 7"

    def new_state(self, host: HostInfo) -> None:
        """The store is the host's."""

    def names(self, state: None, stage: StageView) -> Sequence[ReuseName]:
        """Return the name of the stage after its history; none where the host does not know the history."""
        return [reuse_names.of_prefix(stage)] if stage.prefix_input else []

    def limits(self) -> tuple[int, str]:
        """Return capacity and eviction."""
        return self.capacity, self.eviction
