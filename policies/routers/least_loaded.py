"""Send each request where the least work waits."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from policies.api import HostInfo, ReplicaView, RequestView, Router


@dataclass(frozen=True)
class LeastLoaded(Router[None]):
    """Fewest requests, running and waiting; ties go to the fewest prompt tokens queued, then the lower index.

    Join-the-shortest-queue: needs no estimate of lengths, which nobody knows.
    """

    label = "least loaded"

    def new_state(self, host: HostInfo) -> None:
        """There is nothing to remember."""

    def pick(self, state: None, request: RequestView, replicas: Sequence[ReplicaView]) -> int:
        """Return the index of the least loaded replica."""
        return min(
            range(len(replicas)),
            key=lambda i: (replicas[i].running + replicas[i].waiting, replicas[i].queued_tokens, i),
        )
