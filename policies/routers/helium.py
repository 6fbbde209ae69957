"""Helium's dispatch: shared prefix against queued work, in tokens (arXiv 2603.16104)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from policies.api import HostInfo, ReplicaView, RequestView, Router
from traces.errors import InputError


@dataclass(frozen=True)
class Helium(Router[None]):
    """A ready operator goes where most of its prefix is resident, less what is queued there already.

    The published scheduler lists whole batches of operators along a radix tree of templates; one operator at a time, as
    DynBranch's concurrent dispatch path has it, that greedy choice is this one.

    queue_weight   tokens of shared prefix that one queued token outweighs
    """

    queue_weight: float = 1.0

    label = "Helium"
    source = "arXiv 2603.16104; DynBranch section 5.1, footnote 1"

    def __post_init__(self) -> None:
        if not self.queue_weight >= 0:
            raise InputError(f"router.queue_weight={self.queue_weight}: expected at least 0")

    def new_state(self, host: HostInfo) -> None:
        """There is nothing to remember."""

    def pick(self, state: None, request: RequestView, replicas: Sequence[ReplicaView]) -> int:
        """Return the replica with the greatest saving; ties go to the least loaded, then to the lowest index."""

        def cost(i: int) -> tuple[float, int, int]:
            r = replicas[i]
            saving = r.cached_tokens(request) - self.queue_weight * r.queued_tokens
            return -saving, r.running + r.waiting, i

        return min(range(len(replicas)), key=cost)
