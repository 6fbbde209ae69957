"""Bring nothing back before it is asked for."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from policies.api import BatchShape, CacheNode, HostInfo, Prefetcher


@dataclass(frozen=True)
class NoPrefetch(Prefetcher[None]):
    """Leaves the host tier to demand loads."""

    label = "no prefetch"

    def new_state(self, host: HostInfo) -> None:
        """There is nothing to remember."""

    def active(self) -> bool:
        """Return False: `choose` never returns anything."""
        return False

    def choose(
        self, state: None, nodes: Sequence[CacheNode], budget_tokens: int, shape: BatchShape
    ) -> list[int]:
        """Return no row."""
        return []
