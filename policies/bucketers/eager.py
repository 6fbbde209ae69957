"""Capture no graph: every step is launched kernel by kernel."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from policies.api import BatchShape, Bucketer, GraphChoice, HostInfo

_NO_LIMIT_TOKENS = 1 << 62


@dataclass(frozen=True)
class Eager(Bucketer[None]):
    """No padding and no graph memory, at the price of the launches (`Profile.eager_launch_ps`)."""

    label = "eager"

    def new_state(self, host: HostInfo) -> None:
        """There is nothing to remember."""

    def active(self) -> bool:
        """Return False: no step runs in a graph."""
        return False

    def plan(self, host: HostInfo) -> tuple[int, ...]:
        """Capture nothing."""
        return ()

    def pick(self, state: None, captured: Sequence[int], shape: BatchShape) -> GraphChoice:
        """Run the step at its own width, whatever it is."""
        return GraphChoice(None, shape.tokens, shape.tokens, holds_until_tokens=_NO_LIMIT_TOKENS)
