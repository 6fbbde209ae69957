"""What the prefetchers of PBKV share: the one-step value of host-resident nodes, and the greedy choice by it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

from policies._pbkv_access import LEARNED, Inheritance
from policies._pbkv_candidates import Candidates, Close, listed
from policies._pbkv_score import reuse_weights
from policies.api import BatchShape, Forecast, HostInfo, HostNode, Prefetcher
from traces.errors import InputError


class ValueState:
    """What hosts have offered, by its value under the newest forecasts. Methods mutate.

    capacity_tokens   KV tokens of one replica's HBM
    close             agents that will hit what some agents read; None: those alone
    """

    __slots__ = ("capacity_tokens", "close", "offered")

    def __init__(self, host: HostInfo, inheritance: Inheritance | None) -> None:
        self.capacity_tokens = host.capacity_tokens
        self.close: Close | None = None if inheritance is None else inheritance.close
        self.offered = Candidates({}, self.close)


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
        state.offered.reweigh(forecast.workflow, reuse_weights(forecast.probability, 1, 1.0))

    def workflow_finished(self, state: ValueState, workflow: int, now_ns: int) -> None:
        """Its readers count no more. Mutates state."""
        state.offered.reweigh(workflow, None)

    def offer(self, state: ValueState, node: HostNode, order: Any) -> None:
        """Keep the node in its place. Mutates state."""
        state.offered.offer(node, order)

    def withdraw(self, state: ValueState, id: int) -> None:
        """Forget the node. Mutates state."""
        state.offered.withdraw(id)

    def choose_offered(self, state: ValueState, budget_tokens: int, shape: BatchShape) -> list[HostNode]:
        """Return nodes by descending value among those whose parent is resident or chosen. Does not mutate."""
        return state.offered.take(budget_tokens, stop=self.unfitting == "stop", leading=True)

    def choose(
        self, state: ValueState, nodes: Sequence[HostNode], budget_tokens: int, shape: BatchShape
    ) -> list[int]:
        """Return rows by descending value among those whose parent is resident or chosen. Does not mutate."""
        rows = {node.id: row for row, node in enumerate(nodes)}
        known = listed(nodes, state.offered.weights, state.close)
        taken = known.take(budget_tokens, stop=self.unfitting == "stop", leading=False)
        return [rows[node.id] for node in taken]
