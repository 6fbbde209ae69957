"""What the prefetchers of PBKV share: the one-step value of host-resident nodes, and the greedy choice by it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from heapq import heapify, heappop, heappush
from typing import Literal

from policies._pbkv_access import LEARNED, Inheritance
from policies._pbkv_score import masked, reuse_weights
from policies.api import BatchShape, Forecast, HostInfo, HostNode, Prefetcher
from traces.errors import InputError


class ValueState:
    """One-step weights of each agent by active workflow, and who inherits what. Methods mutate.

    capacity_tokens   KV tokens of one replica's HBM
    """

    __slots__ = ("capacity_tokens", "inheritance", "weights")

    def __init__(self, host: HostInfo, inheritance: Inheritance | None) -> None:
        self.capacity_tokens = host.capacity_tokens
        self.inheritance = inheritance
        self.weights: dict[int, list[int]] = {}

    def value(self, node: HostNode) -> int:
        """Return Value(c) of equation 1 in fixed point: the expected number of next invocations that read the node."""
        agents: dict[int, int] = {}
        for workflow, agent in node.readers:
            if workflow in self.weights and agent >= 0:
                agents[workflow] = agents.get(workflow, 0) | 1 << agent
        close = None if self.inheritance is None else self.inheritance.close
        return sum(
            masked(self.weights[workflow], mask if close is None else close(mask))
            for workflow, mask in agents.items()
        )


@dataclass(frozen=True)
class ValuePrefetcher(Prefetcher[ValueState]):
    """Greedy by one-step Value within the budget, a parent before its children.

    One step only: what is reused two steps ahead can be fetched at the next step (PBKV, section 4.3). Nodes without
    value stay. Ties go to the node listed first. A parent is worth at least as much as its child, because whoever read
    the child read the parent.

    access      literal: agents that read the node; inherit: and those that are passed what these read
    passes      with access=inherit: all, or pairs such as planner>coder,coder>tester
    unfitting   what follows a node too large for what is left: skip it (and all below it), or stop
    """

    access: Literal["literal", "inherit"] = "literal"
    passes: str = "all"
    unfitting: Literal["skip", "stop"] = "skip"

    def __post_init__(self) -> None:
        if self.passes == LEARNED:
            raise InputError(
                "passes=learned: a prefetcher sees no reads to learn from; allowed: all, or pairs"
            )

    def new_state(self, host: HostInfo) -> ValueState:
        """Return a state without forecasts. Raises InputError for agents in `passes` that the host does not know."""
        return ValueState(host, Inheritance(self.passes, host) if self.access == "inherit" else None)

    def forecast(self, state: ValueState, forecast: Forecast) -> None:
        """Keep the next step's probabilities. Mutates state."""
        state.weights[forecast.workflow] = reuse_weights(forecast.probability, 1, 1.0)

    def workflow_finished(self, state: ValueState, workflow: int, now_ns: int) -> None:
        """Its readers count no more. Mutates state."""
        state.weights.pop(workflow, None)

    def choose(
        self, state: ValueState, nodes: Sequence[HostNode], budget_tokens: int, shape: BatchShape
    ) -> list[int]:
        """Return rows by descending value among those whose parent is resident or chosen. Does not mutate."""
        index = {node.id: row for row, node in enumerate(nodes)}
        below: dict[int, list[int]] = {}
        ready: list[tuple[int, int]] = []
        for row, node in enumerate(nodes):
            parent = node.parent
            above = -1 if parent is None else index.get(parent.id, -1)
            if above < 0:
                ready.append((-state.value(node), row))
            else:
                below.setdefault(above, []).append(row)
        heapify(ready)
        rows: list[int] = []
        while ready:
            value, row = heappop(ready)
            if value == 0:
                break
            tokens = nodes[row].tokens
            if tokens > budget_tokens:
                if self.unfitting == "stop":
                    break
                continue
            budget_tokens -= tokens
            rows.append(row)
            for child in below.get(row, ()):
                heappush(ready, (-state.value(nodes[child]), child))
        return rows
