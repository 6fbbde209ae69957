"""KVFlow: the cache of the agent that runs farthest in the future leaves first."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

from policies._pbkv_declared import DeclaredGraph, Marking
from policies._pbkv_groups import NOBODY, Group, GroupedOrder
from policies._pbkv_nodes import ReadersRecord, ReadersState
from policies._pbkv_steps import FAR, StepGraph, forecast_steps
from policies.api import Access, CacheNode, Evictor, Forecast, HostInfo
from traces.errors import InputError


class KvflowState(ReadersState[ReadersRecord]):
    """Readers of nodes, and how many steps away each agent of each active workflow is.

    steps    workflow -> steps-to-execution of each agent, in units of the graph's; filled when asked for
    current  workflow -> the agent that ran last
    marking  workflow -> where it is in the declared graph, if there is one
    newest   workflow -> stage of its newest request, so that one request counts once
    """

    __slots__ = ("current", "declared", "graph", "marking", "newest", "order", "steps")

    def __init__(self, graph: StepGraph | None, declared: DeclaredGraph | None = None) -> None:
        self.declared = declared
        self.marking: dict[int, Marking] = {}
        self.newest: dict[int, int] = {}
        self.order = GroupedOrder(self.distance, self.nearest)
        super().__init__(ReadersRecord, self.order)
        self.graph = graph
        self.steps: dict[int, list[int]] = {}
        self.current: dict[int, int] = {}

    def distance(self, group: Group) -> int:
        """Return the fewest steps until an agent of the mask runs in the workflow. Fills `steps`."""
        workflow, agents = group
        if workflow < 0:
            return FAR + 1
        steps = self.steps.get(workflow)
        if steps is None:
            current = self.current.get(workflow, -1)
            if self.graph is None or current < 0:
                return FAR  # nothing was said of it yet
            steps = self.steps[workflow] = self.graph.steps(current)
        nearest = FAR
        while agents:
            low = agents & -agents
            agents ^= low
            at = low.bit_length() - 1
            if at < len(steps) and steps[at] < nearest:
                nearest = steps[at]
        return nearest

    def nearest(self, id: int) -> Group:
        """Return the reader (workflow, agents) of a node that runs soonest. Fills `steps`."""
        return min(self.history.records[id].readers.items(), key=self.distance, default=NOBODY)

    def priority(self, record: ReadersRecord) -> tuple[Any, ...]:
        """Farthest first; then what fewer workflows share, the deeper path, LRU. Fills `steps`."""
        group = min(record.readers.items(), key=self.distance, default=NOBODY)
        return group, (len(record.ever) > 1, -record.depth, record.stamp)

    def moved(self, access: Access) -> None:
        """A request of a workflow came: its agent is the current one, and the graph may have learnt. Mutates."""
        workflow, agent = access.workflow, access.agent
        graph, declared = self.graph, self.declared
        if (graph is None and declared is None) or workflow < 0 or agent < 0:
            return
        before = self.current.get(workflow, -1)
        if self.newest.get(workflow) == access.stage and (access.stage >= 0 or agent == before):
            return  # another node of the same request
        self.current[workflow] = agent
        self.newest[workflow] = access.stage
        if declared is not None:
            marking = self.marking[workflow] = declared.ran(self.marking.get(workflow, Marking()), agent)
            self.steps[workflow] = declared.steps(marking)
            self.order.moved(workflow)
        elif graph is not None and before >= 0 and graph.observe(before, agent):
            self.steps.clear()
            self.order.moved_all()
        else:
            self.steps.pop(workflow, None)
            self.order.moved(workflow)

    def forget(self, workflow: int) -> None:
        """The workflow runs no agent any more. Mutates."""
        self.finish(workflow)
        self.steps.pop(workflow, None)
        self.current.pop(workflow, None)
        self.marking.pop(workflow, None)
        self.newest.pop(workflow, None)


@dataclass(frozen=True)
class Kvflow(Evictor[KvflowState]):
    """Evicts the node with the largest steps-to-execution, the minimum over the workflows and agents that read it.

    Among equals private suffixes leave before what several workflows share (fixed prompts), deeper paths before
    shallower ones, then LRU. Agents that cannot run again are infinitely far; nodes of finished workflows beyond.

    graph     observed: the graph of transitions seen so far, in any workflow (a step graph derived from the trace;
              KVFlow is given one that clients declare); declared: `edges`, KVFlow's own case; forecast: what a
              predictor says about the workflow
    edges     with graph=declared: a>b, a>b|c (one of them), a>b&c (both), b&c>d (an AND join), separated by commas
    steps     shortest: fewest steps to the agent, along edges seen, or at which its forecast probability reaches
              `likely` (KVFlow's OR join; transitions seen one agent at a time show no AND join, declared ones do);
              expected: KVFlow-E, our extension to loops, where "steps" are not defined: the mean of the first step
              at which the agent runs, within `horizon`, by the Markov chain of the transitions or by the forecast
    horizon   steps looked ahead when steps=expected; farther counts as horizon + 1
    likely    probability from which a forecast step counts
    Source: KVFlow (Pan et al., NeurIPS 2025), section 4.2; as an arm of PBKV, section 6.1.
    """

    graph: Literal["observed", "declared", "forecast"] = "observed"
    edges: str = ""
    steps: Literal["shortest", "expected"] = "shortest"
    horizon: int = 16
    likely: float = 0.1
    label = "KVFlow"
    source = "KVFlow (NeurIPS 2025) section 4.2"

    def __post_init__(self) -> None:
        if not 1 <= self.horizon <= 256:
            raise InputError(f"horizon={self.horizon}, allowed: 1 to 256")
        if not 0 < self.likely <= 1:
            raise InputError(f"likely={self.likely}, allowed: above 0, to 1")
        if (self.graph == "declared") != bool(self.edges):
            raise InputError(
                f"graph={self.graph} with edges={self.edges!r}: edges go with graph=declared, and only with it"
            )
        if self.graph == "declared" and self.steps == "expected":
            raise InputError("steps=expected: declared edges have no probabilities; allowed: shortest")

    def new_state(self, host: HostInfo) -> KvflowState:
        """Return an empty order and, where the graph is observed, an empty graph.

        Raises InputError for declared edges of agents that the host does not know.
        """
        if self.graph == "declared":
            return KvflowState(None, DeclaredGraph(self.edges, host.agents))
        if self.graph == "forecast":
            return KvflowState(None)
        return KvflowState(StepGraph(len(host.agents), self.horizon, expected=self.steps == "expected"))

    def insert(self, state: KvflowState, node: CacheNode, access: Access) -> None:
        """Note the reader and the workflow's place in the graph. Mutates state."""
        state.moved(access)
        state.insert(node, access)

    def hit(self, state: KvflowState, node: CacheNode, access: Access) -> None:
        """Note the reader and the workflow's place in the graph. Mutates state."""
        state.moved(access)
        state.hit(node, access)

    def restore(self, state: KvflowState, node: CacheNode, readers: Sequence[Access]) -> None:
        """Note who had read it before it left. Mutates state."""
        state.restore(node, readers)

    def done(self, state: KvflowState, node: CacheNode, now_ns: int) -> None:
        """Newest of its distance. Mutates state."""
        state.done(node)

    def release(self, state: KvflowState, node: CacheNode, now_ns: int) -> None:
        """Enter the order. Mutates state."""
        state.release(node)

    def pin(self, state: KvflowState, node: CacheNode) -> None:
        """Leave the order. Mutates state."""
        state.pin(node)

    def split(self, state: KvflowState, upper: CacheNode, lower: CacheNode) -> None:
        """Both parts have the readers of the whole. Mutates state."""
        state.split(upper, lower)

    def remove(self, state: KvflowState, node: CacheNode) -> None:
        """Pass the readers to the parent. Mutates state."""
        state.remove(node)

    def workflow_finished(self, state: KvflowState, workflow: int, now_ns: int) -> None:
        """No agent of the workflow is ahead any more. Mutates state."""
        state.forget(workflow)

    def forecast(self, state: KvflowState, forecast: Forecast) -> None:
        """With graph=forecast: new distances of the workflow's agents. Mutates state."""
        if self.graph == "forecast":
            state.steps[forecast.workflow] = forecast_steps(
                forecast.probability, self.likely, expected=self.steps == "expected"
            )
            state.order.moved(forecast.workflow)

    def retired(self, state: KvflowState, node: CacheNode) -> bool:
        """Say whether only finished workflows read the node. Does not mutate state."""
        return not state.history.records[node.id].readers

    def next_victim(self, state: KvflowState, now_ns: int) -> CacheNode | None:
        """Return the node used farthest in the future. Drops stale heap entries only."""
        return state.evictable.peek()
