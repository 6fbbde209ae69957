"""Serve nothing from finished work (the engine's prefix cache is another matter and stays on)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from policies.api import HostInfo, ReuseName, ReusePolicy, StageView


@dataclass(frozen=True)
class NoReuse(ReusePolicy[None]):
    """Gives no subgraph a name, so that no result is ever found again."""

    label = "no reuse"

    def new_state(self, host: HostInfo) -> None:
        """There is nothing to remember."""

    def active(self) -> bool:
        """Return False: nothing is ever named."""
        return False

    def names(self, state: None, stage: StageView) -> Sequence[ReuseName]:
        """Return no name."""
        return ()
