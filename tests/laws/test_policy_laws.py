"""Every registered policy keeps the laws of its family; policies made to break one are told which."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy as np
import pytest
from numpy.typing import NDArray

from policies.api import (
    FAMILIES,
    Access,
    BatchShape,
    BatchView,
    Bucketer,
    Budget,
    CacheNode,
    Draft,
    Drafter,
    Evictor,
    GraphChoice,
    HostInfo,
    Policy,
    Predictor,
    Prefetcher,
    Proposals,
    RequestView,
    Router,
    WorkflowView,
)
from policies.evictors.lru import Lru, LruState
from policies.laws import check
from policies.registry import find, load, names

# Predictors that come with weights are held to the laws with small models in tests/policies/test_predictor_networks.py.
EVERY = [
    (family, name)
    for family in FAMILIES
    for name in names(family)
    if not getattr(find(family, name), "trained", False)
]


@pytest.mark.parametrize(("family", "name"), EVERY)
def test_every_registered_policy_keeps_the_laws(family: str, name: str) -> None:
    check(load(family, name), range(2))


@pytest.mark.parametrize("family", FAMILIES)
def test_every_family_has_a_policy(family: str) -> None:
    assert names(family)


@dataclass(frozen=True)
class NamesPinned(Lru):
    """Forgets to take pinned nodes out."""

    def pin(self, state: LruState, node: CacheNode) -> None:
        return


@dataclass(frozen=True)
class FreesTooSoon(Lru):
    """Takes the end of one request for the end of all that hold the node."""

    def done(self, state: LruState, node: CacheNode, now_ns: int) -> None:
        super().done(state, node, now_ns)
        super().release(state, node, now_ns)


@dataclass(frozen=True)
class GivesUp(Lru):
    """Says that nothing is evictable when something is."""

    def next_victim(self, state: LruState, now_ns: int) -> CacheNode | None:
        return super().next_victim(state, now_ns) if state.clock % 7 else None


@dataclass(frozen=True)
class RemembersTooMuch(Lru):
    """Names a node that is gone."""

    def remove(self, state: LruState, node: CacheNode) -> None:
        return


@dataclass(frozen=True)
class GivesAwayTooMuch(Lru):
    """Says that small nodes have no value, and lets others go before them."""

    def retired(self, state: LruState, node: CacheNode) -> bool:
        return node.tokens < 32


@dataclass(frozen=True)
class SharesState(Lru):
    """Counts in the class, so that one cache disturbs another."""

    calls: ClassVar[list[int]] = [0]

    def next_victim(self, state: LruState, now_ns: int) -> CacheNode | None:
        self.calls[0] += 1
        node = super().next_victim(state, now_ns)
        if node is not None and self.calls[0] % 2:
            state.evictable.set(node.id, 1 << 60, node)
            return super().next_victim(state, now_ns)
        return node


@dataclass(frozen=True)
class OneState(Lru):
    """Hands out one state to all."""

    state: LruState = field(default_factory=LruState)

    def new_state(self, host: HostInfo) -> LruState:
        return self.state


@dataclass(frozen=True)
class Scans(Evictor[dict[int, tuple[int, CacheNode]]]):
    """LRU by scanning all nodes for every victim."""

    def new_state(self, host: HostInfo) -> dict[int, tuple[int, CacheNode]]:
        return {}

    def release(self, state: dict[int, tuple[int, CacheNode]], node: CacheNode, now_ns: int) -> None:
        state[node.id] = (now_ns, node)

    def pin(self, state: dict[int, tuple[int, CacheNode]], node: CacheNode) -> None:
        del state[node.id]

    def remove(self, state: dict[int, tuple[int, CacheNode]], node: CacheNode) -> None:
        del state[node.id]

    def next_victim(self, state: dict[int, tuple[int, CacheNode]], now_ns: int) -> CacheNode | None:
        oldest = min(state.items(), key=lambda item: (item[1][0], item[0]), default=None)
        return oldest[1][1] if oldest else None


@dataclass(frozen=True)
class IteratesOverASet(Evictor[dict[int, CacheNode]]):
    """Takes whatever a set of ids gives first."""

    def new_state(self, host: HostInfo) -> dict[int, CacheNode]:
        return {}

    def release(self, state: dict[int, CacheNode], node: CacheNode, now_ns: int) -> None:
        state[node.id] = node

    def pin(self, state: dict[int, CacheNode], node: CacheNode) -> None:
        del state[node.id]

    def remove(self, state: dict[int, CacheNode], node: CacheNode) -> None:
        del state[node.id]

    def next_victim(self, state: dict[int, CacheNode], now_ns: int) -> CacheNode | None:
        return state[next(iter(set(state)))] if state else None


@dataclass(frozen=True)
class WritesToNodes(Lru):
    """Keeps a note on the host's object."""

    def insert(self, state: LruState, node: CacheNode, access: Access) -> None:
        super().insert(state, node, access)
        node.mark = 1  # type: ignore[attr-defined]


@dataclass(frozen=True)
class Peeks(Lru):
    """Asks the oracle without declaring the need."""

    def release(self, state: LruState, node: CacheNode, now_ns: int) -> None:
        super().release(state, node, now_ns)
        self.oracle.next_use(node)  # type: ignore[attr-defined]


@dataclass(frozen=True)
class NeedsTheMoon(Lru):
    needs = frozenset({"moon"})


class Undecorated(Lru):
    """Its fields would be no options."""

    depth: int = 3


@dataclass(frozen=True)
class ElsewhereRouter(Router[None]):
    def new_state(self, host: HostInfo) -> None:
        return

    def pick(self, state: None, request: RequestView, replicas: Any) -> int:
        return 1


@dataclass(frozen=True)
class GenerousBudget(Budget[None]):
    def new_state(self, host: HostInfo) -> None:
        return

    def allocate(self, state: None, proposals: Proposals, batch: BatchView) -> NDArray[np.int32]:
        return proposals.length + np.int32(1)


@dataclass(frozen=True)
class LongDrafter(Drafter[None]):
    def new_state(self, host: HostInfo) -> None:
        return

    def propose(self, state: None, request: int, limit: int) -> Draft:
        return Draft(np.zeros(limit + 1, np.uint32), np.zeros(limit + 1, np.float32))


@dataclass(frozen=True)
class DraftsItsNumber(Drafter[None]):
    def new_state(self, host: HostInfo) -> None:
        return

    def propose(self, state: None, request: int, limit: int) -> Draft:
        return Draft(np.full(limit, request, np.uint32), np.ones(limit, np.float32))


@dataclass(frozen=True)
class KeyedByStage(Drafter[dict[int, int]]):
    """Two fills of one stage share an entry, and the first to finish takes it along."""

    def new_state(self, host: HostInfo) -> dict[int, int]:
        return {}

    def begin(self, state: dict[int, int], request: RequestView, prompt_ids: NDArray[np.uint32]) -> None:
        state[request.stage] = request.request

    def propose(self, state: dict[int, int], request: int, limit: int) -> Draft:
        next(stage for stage, number in state.items() if number == request)
        return Draft(np.zeros(0, np.uint32), np.zeros(0, np.float32))


@dataclass(frozen=True)
class Unnormalised(Predictor[None]):
    def new_state(self, host: HostInfo) -> None:
        return

    def forecast(self, state: None, workflow: WorkflowView) -> NDArray[np.float32]:
        return np.full((2, 4), 0.3, np.float32)


@dataclass(frozen=True)
class GreedyPrefetcher(Prefetcher[None]):
    def new_state(self, host: HostInfo) -> None:
        return

    def choose(self, state: None, nodes: Any, budget_tokens: int, shape: BatchShape) -> list[int]:
        return list(range(len(nodes)))


@dataclass(frozen=True)
class TightBucketer(Bucketer[None]):
    def new_state(self, host: HostInfo) -> None:
        return

    def plan(self, host: HostInfo) -> tuple[int, ...]:
        return (8,)

    def pick(self, state: None, captured: Any, shape: BatchShape) -> GraphChoice:
        return GraphChoice(8, 8, 8)


BROKEN: list[tuple[type[Policy[Any]], str]] = [
    (NamesPinned, "not evictable now"),
    (FreesTooSoon, "not evictable now"),
    (GivesUp, "returned None"),
    (RemembersTooMuch, "not evictable now"),
    (GivesAwayTooMuch, "gives away"),
    (SharesState, "other victims"),
    (OneState, "same LruState twice"),
    (Scans, "cost grows with the cache"),
    (IteratesOverASet, "values of node ids"),
    (WritesToNodes, "AttributeError"),
    (Peeks, "AttributeError"),
    (NeedsTheMoon, "no host has"),
    (Undecorated, "lacks the decorator"),
    (ElsewhereRouter, "of 1 replicas"),
    (GenerousBudget, "more tokens than were proposed"),
    (LongDrafter, "the limit is"),
    (DraftsItsNumber, "depend on the requests' numbers"),
    (KeyedByStage, "StopIteration"),
    (Unnormalised, "rows sum to"),
    (GreedyPrefetcher, "the budget is"),
    (TightBucketer, "executed >= active >= tokens"),
]


@pytest.mark.parametrize(("cls", "words"), BROKEN, ids=lambda x: getattr(x, "__name__", ""))
def test_a_policy_that_breaks_a_law_is_told_which(cls: type[Policy[Any]], words: str) -> None:
    with pytest.raises(AssertionError, match=words):
        check(cls(), range(2))
