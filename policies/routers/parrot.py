"""Parrot: requests with their dataflow known are placed by shared context (OSDI 2024)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from policies.api import HostInfo, ReplicaView, RequestView, Router


@dataclass
class ParrotState:
    """Tokens one replica can hold, and where each running workflow's requests went last."""

    capacity_tokens: int
    group: dict[int, int]


@dataclass(frozen=True)
class Parrot(Router[ParrotState]):
    """Its scheduler's order of preferences, each switchable as published; all are on here, none by its default.

    Among replicas with room for the request: the one its group runs on, then the one holding most of its prefix, then
    the one with fewest requests, then by remaining capacity.

    app_fifo        deeper dataflow first, where the engine's queue is by priority
    graph_group     requests of one workflow stay together
    ctx_aware       prefer the longest resident prefix
    most_capacity   prefer most remaining capacity, as the comment says; its code prefers the least
    """

    app_fifo: bool = True
    graph_group: bool = True
    ctx_aware: bool = True
    most_capacity: bool = False

    reads_dataflow: ClassVar[bool] = True
    label = "Parrot"
    source = "Parrot (OSDI 2024), global scheduler"

    def new_state(self, host: HostInfo) -> ParrotState:
        """Return a state without groups."""
        return ParrotState(host.capacity_tokens, {})

    def pick(self, state: ParrotState, request: RequestView, replicas: Sequence[ReplicaView]) -> int:
        """Return the preferred replica; all are feasible when none has room."""
        held = [r.kv_tokens_active + r.queued_tokens for r in replicas]
        room = [i for i, h in enumerate(held) if h + request.prompt_tokens <= state.capacity_tokens]
        home = state.group.get(request.workflow, -1) if self.graph_group else -1

        def preference(i: int) -> tuple[bool, int, int, int, int]:
            cached = replicas[i].cached_tokens(request) if self.ctx_aware else 0
            left = state.capacity_tokens - held[i]
            load = replicas[i].running + replicas[i].waiting
            return i != home, -cached, load, -left if self.most_capacity else left, i

        best = min(room or range(len(replicas)), key=preference)
        state.group[request.workflow] = best
        return best

    def priority(self, state: ParrotState, request: RequestView) -> int:
        """Return the request's priority, deeper dataflow first."""
        return request.priority - request.depth if self.app_fifo else request.priority
