"""Send each request where most of its prompt is cached, unless that replica is much busier than another."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from policies.api import HostInfo, ReplicaView, RequestView, Router
from traces.errors import InputError


@dataclass(frozen=True)
class PrefixAware(Router[None]):
    """Most cached prompt tokens; least loaded when the load is out of balance.

    max_extra_requests   load decides when the busiest replica exceeds the idlest by more requests than this
    max_load_ratio       ... and has more than this many times its requests

    Both bounds must be exceeded, so that a small difference, absolute or relative, breaks no affinity. Ties
    go to the least loaded, then to the lowest index. Source: cache-aware load balancing in SGLang's router.
    """

    max_extra_requests: int = 32
    max_load_ratio: float = 1.5

    label = "prefix aware"

    def __post_init__(self) -> None:
        if self.max_extra_requests < 0:
            raise InputError(f"max_extra_requests={self.max_extra_requests}: expected at least 0")
        if not self.max_load_ratio >= 1:
            raise InputError(f"max_load_ratio={self.max_load_ratio}: expected at least 1")

    def new_state(self, host: HostInfo) -> None:
        """There is nothing to remember."""

    def pick(self, state: None, request: RequestView, replicas: Sequence[ReplicaView]) -> int:
        """Return the index of the replica that gets the request."""
        load = [r.running + r.waiting for r in replicas]
        low, high = min(load), max(load)
        if high - low > self.max_extra_requests and high > self.max_load_ratio * low:
            return min(range(len(replicas)), key=lambda i: (load[i], replicas[i].queued_tokens, i))
        return min(range(len(replicas)), key=lambda i: (-replicas[i].cached_tokens(request), load[i], i))
