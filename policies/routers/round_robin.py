"""Deal requests to replicas in turn."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from policies.api import HostInfo, ReplicaView, RequestView, Router


@dataclass
class RoundRobinState:
    """Requests dealt so far."""

    dealt: int = 0


@dataclass(frozen=True)
class RoundRobin(Router[RoundRobinState]):
    """Replica k gets requests k, k + R, k + 2R, ... in the order in which they are released."""

    label = "round robin"

    def new_state(self, host: HostInfo) -> RoundRobinState:
        """Return a counter at zero."""
        return RoundRobinState()

    def pick(self, state: RoundRobinState, request: RequestView, replicas: Sequence[ReplicaView]) -> int:
        """Return the next replica in turn. Mutates state."""
        index = state.dealt % len(replicas)
        state.dealt += 1
        return index
