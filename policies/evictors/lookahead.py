"""Hierarchical lookahead eviction: finished workflows' cache first, then what forecasts give the least reuse."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from policies._pbkv_access import Inheritance
from policies._pbkv_nodes import ReadersRecord, ReadersState
from policies._pbkv_reload import ReloadCost
from policies._pbkv_score import masked, reuse_weights
from policies.api import Access, CacheNode, Evictor, Forecast, HostInfo
from traces.errors import InputError

_RETIRED, _ACTIVE, _PINNED = range(3)


class ScoredRecord(ReadersRecord):
    """`score` and `cost` are valid while the node is evictable; the place goes by their product."""

    __slots__ = ("cost", "score")

    def __init__(self, stamp: int) -> None:
        super().__init__(stamp)
        self.score = 0
        self.cost = 1


class LookaheadState(ReadersState[ScoredRecord]):
    """Readers of nodes, and the weight of each agent in each active workflow's forecast.

    weights   workflow -> weight of each agent (see `reuse_weights`)
    values    workflow -> {agents that read a node: their summed weight}, filled as masks turn up
    """

    __slots__ = ("costs", "global_pin", "inheritance", "values", "weights")

    def __init__(
        self, inheritance: Inheritance | None, *, global_pin: bool, costs: ReloadCost | None = None
    ) -> None:
        super().__init__(ScoredRecord)
        self.costs = costs
        self.inheritance = inheritance
        self.global_pin = global_pin
        self.weights: dict[int, list[int]] = {}
        self.values: dict[int, dict[int, int]] = {}

    def value(self, workflow: int, agents: int) -> int:
        """Return A_w(c) . v_w for the agents of one workflow that read a node. Fills `values`."""
        weights = self.weights.get(workflow)
        if weights is None:
            return 0  # nothing was forecast for it yet
        known = self.values[workflow]
        value = known.get(agents)
        if value is None:
            hitters = agents if self.inheritance is None else self.inheritance.close(agents)
            value = known[agents] = masked(weights, hitters)
        return value

    def place(self, record: ScoredRecord) -> tuple[int, ...]:
        """Return the node's place for the score it has. Does not mutate."""
        if self.global_pin and len(record.ever) > 1:
            return _PINNED, record.score * record.cost, -record.depth, record.stamp
        if not record.readers:
            return _RETIRED, len(record.ever), record.stamp
        return _ACTIVE, record.score * record.cost, -record.depth, record.stamp

    def priority(self, record: ScoredRecord) -> tuple[int, ...]:
        """Score the node from its readers and return its place. Mutates the record."""
        record.score = sum(self.value(workflow, agents) for workflow, agents in record.readers.items())
        return self.place(record)

    def first(self) -> CacheNode | None:
        """Return the node to leave first. Mutates: a node whose cost has changed moves when it comes to the front."""
        evictable, costs = self.evictable, self.costs
        while (node := evictable.peek()) is not None and costs is not None:
            record = self.history.records[node.id]
            cost = costs.of(node)
            if cost == record.cost:
                break
            record.cost = cost
            evictable.set(node.id, self.place(record), node)
        return node

    def _enter(self, node: CacheNode, record: ScoredRecord) -> None:
        if self.costs is not None:
            record.cost = self.costs.of(node)
        super()._enter(node, record)

    def noticed(self, record: ScoredRecord, access: Access) -> None:
        """Learn who reads whose history, from nodes that one workflow alone has read. Mutates."""
        inheritance, workflow = self.inheritance, access.workflow
        if inheritance is None or len(record.ever) != 1 or workflow not in record.readers:
            return
        if inheritance.observe(workflow, record.readers[workflow], access.agent):
            for known in self.values.values():
                known.clear()
            self.rerank_all()

    def refresh(self, workflow: int, weights: list[int]) -> None:
        """Change scores by the difference of the workflow's share, O(log n) a node. Mutates."""
        before = {agents: self.value(workflow, agents) for agents in self.values.get(workflow, ())}
        self.weights[workflow] = weights
        self.values[workflow] = {}
        records, evictable = self.history.records, self.evictable
        for id, node in self.leaves.get(workflow, {}).items():
            record = records[id]
            agents = record.readers[workflow]
            change = self.value(workflow, agents) - before.get(agents, 0)
            if change:
                record.score += change
                evictable.set(id, self.place(record), node)

    def forget(self, workflow: int) -> None:
        """Drop the workflow's forecast and its share of all scores. Mutates."""
        self.weights.pop(workflow, None)
        self.values.pop(workflow, None)
        self.finish(workflow)


@dataclass(frozen=True)
class Lookahead(Evictor[LookaheadState]):
    """Evicts retired nodes first, by fewest workflows ever, then LRU; then active ones by ascending Score.

    Score(c) = sum over k = 1..K of gamma^(k-1) times the sum over active workflows w of s_w^(k) A_w(c) . P_w^(k)
    (equation 2), s_w^(k) the probability that w is still running at step k. P^(k) is conditional on that survival
    (appendix G), so a forecast's rows are taken as they are. Equal scores: the deeper path first, then LRU (the paper
    leaves ties open). Without forecasts every score is 0. This is PBKV-HE; with a prefetcher, PBKV.

    horizon     K; a forecast of fewer steps is used as far as it goes
    gamma       confidence decay of a step
    survival    weigh steps by survival; False is an ablation
    access      literal: A_w(c) marks agents that read c; inherit: and those that are passed what these read;
                global_pin: literal, and what two workflows or more have read leaves after everything else, by Score
    passes      with access=inherit, who is passed whose history: learned (from reads so far), all, or pairs
                such as planner>coder,coder>tester
    cost        hits: a hit is a hit; reload: Score times what the node's tokens cost once they are gone, the lesser of
                recomputing them and of copying them from the host tier where that has them. Ours, not the paper's
    Source: PBKV, sections 4.2.2 and 4.2.3; access: section 5, limitations.
    """

    horizon: int = 3
    gamma: float = 0.7
    survival: bool = True
    access: Literal["literal", "inherit", "global_pin"] = "literal"
    passes: str = "learned"
    cost: Literal["hits", "reload"] = "hits"
    label = "lookahead (PBKV-HE)"
    source = "PBKV sections 4.2.2, 4.2.3"

    def __post_init__(self) -> None:
        if not 1 <= self.horizon <= 64:
            raise InputError(f"horizon={self.horizon}, allowed: 1 to 64")
        if not 0 <= self.gamma <= 1:
            raise InputError(f"gamma={self.gamma}, allowed: 0 to 1")

    def new_state(self, host: HostInfo) -> LookaheadState:
        """Return an empty order. Raises InputError for agents in `passes` that the host does not know."""
        inheritance = Inheritance(self.passes, host) if self.access == "inherit" else None
        costs = ReloadCost(host) if self.cost == "reload" else None
        return LookaheadState(inheritance, global_pin=self.access == "global_pin", costs=costs)

    def insert(self, state: LookaheadState, node: CacheNode, access: Access) -> None:
        """Note the first reader. Mutates state."""
        state.insert(node, access)

    def hit(self, state: LookaheadState, node: CacheNode, access: Access) -> None:
        """Note the reader. Mutates state."""
        state.hit(node, access)

    def restore(self, state: LookaheadState, node: CacheNode, readers: Sequence[Access]) -> None:
        """Note who had read it before it left. Mutates state."""
        state.restore(node, readers)

    def done(self, state: LookaheadState, node: CacheNode, now_ns: int) -> None:
        """Newest of its score. Mutates state."""
        state.done(node)

    def release(self, state: LookaheadState, node: CacheNode, now_ns: int) -> None:
        """Score the node. Mutates state."""
        state.release(node)

    def pin(self, state: LookaheadState, node: CacheNode) -> None:
        """Leave the order. Mutates state."""
        state.pin(node)

    def split(self, state: LookaheadState, upper: CacheNode, lower: CacheNode) -> None:
        """Both parts have the readers of the whole. Mutates state."""
        state.split(upper, lower)

    def remove(self, state: LookaheadState, node: CacheNode) -> None:
        """Pass the readers to the parent. Mutates state."""
        state.remove(node)

    def workflow_finished(self, state: LookaheadState, workflow: int, now_ns: int) -> None:
        """Retire what only this workflow was active on. Mutates state."""
        state.forget(workflow)

    def forecast(self, state: LookaheadState, forecast: Forecast) -> None:
        """Score the workflow's evictable nodes anew. Mutates state."""
        weights = reuse_weights(forecast.probability, self.horizon, self.gamma, survival=self.survival)
        state.refresh(forecast.workflow, weights)

    def retired(self, state: LookaheadState, node: CacheNode) -> bool:
        """Say whether only finished workflows read the node. Does not mutate."""
        return state.place(state.history.records[node.id])[0] == _RETIRED

    def next_victim(self, state: LookaheadState, now_ns: int) -> CacheNode | None:
        """Return the first of the order. Drops stale heap entries; with cost=reload it brings costs up to date."""
        return state.first()
