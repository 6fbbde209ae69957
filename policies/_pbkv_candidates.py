"""The candidates of a prefetcher in the order of their value, kept while forecasts and candidates change.

A forecast touches the workflow's candidates alone, O(log n) each; a choice touches what it takes and what it passes
over, never the rest. Values are sums of whole weights, so that a value kept by differences never drifts.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from heapq import heappop, heappush
from typing import Any

from policies._lazy_heap import LazyHeap
from policies._pbkv_score import masked
from policies.api import HostNode

Close = Callable[[int], int]


class Entry:
    """One candidate: its agents by workflow as bit masks, its value, and what hangs on it."""

    __slots__ = ("agents", "below", "node", "order", "parent", "value")

    def __init__(self, node: HostNode, order: Any, agents: dict[int, int], value: int) -> None:
        self.node = node
        self.order = order
        self.agents = agents
        self.value = value
        self.parent: int | None = None
        self.below: dict[int, Entry] = {}

    @property
    def place(self) -> tuple[int, Any]:
        """What is worth most first; of equal values the one listed first."""
        return -self.value, self.order


class Candidates:
    """Candidates by id, and a heap of those that hang on no other candidate. Methods but `value_of` mutate.

    weights   workflow -> weight of each agent at the next step
    """

    __slots__ = ("_by_workflow", "_close", "_entries", "_roots", "_sizes", "weights")

    def __init__(self, weights: dict[int, list[int]], close: Close | None) -> None:
        self.weights = weights
        self._close = close
        self._entries: dict[int, Entry] = {}
        self._by_workflow: dict[int, dict[int, Entry]] = {}
        self._roots: LazyHeap[Entry] = LazyHeap()
        self._sizes: LazyHeap[int] = (
            LazyHeap()
        )  # tokens of the roots: when not even the shortest fits, it is over

    def __len__(self) -> int:
        return len(self._entries)

    def offer(self, node: HostNode, order: Any) -> None:
        """Add a node, or replace what is known of it. Its parent counts if that is a candidate already."""
        old = self._entries.get(node.id)
        below: dict[int, Entry] = {} if old is None else old.below
        if old is not None:
            self._drop(old)
        agents = _masks(node)
        entry = Entry(node, order, agents, self.value_of(agents))
        entry.below = below
        self._entries[node.id] = entry
        for workflow in agents:
            self._by_workflow.setdefault(workflow, {})[node.id] = entry
        parent = node.parent
        above = None if parent is None else self._entries.get(parent.id)
        if above is None:
            self._stand(entry)
        else:
            entry.parent = above.node.id
            above.below[node.id] = entry

    def withdraw(self, id: int) -> None:
        """Drop a node; what hung on it hangs on none."""
        entry = self._entries.pop(id, None)
        if entry is None:
            return
        self._drop(entry)
        for child in entry.below.values():
            child.parent = None
            self._stand(child)

    def reweigh(self, workflow: int, weights: list[int] | None) -> None:
        """Take a workflow's new weights (None: it has none any more) and move its candidates."""
        entries = self._by_workflow.get(workflow, {})
        before = {
            agents: self._share(workflow, agents) for agents in {e.agents[workflow] for e in entries.values()}
        }
        if weights is None:
            self.weights.pop(workflow, None)
        else:
            self.weights[workflow] = weights
        after = {agents: self._share(workflow, agents) for agents in before}
        for id, entry in entries.items():
            agents = entry.agents[workflow]
            change = after[agents] - before[agents]
            if change:
                entry.value += change
                if entry.parent is None:
                    self._roots.set(id, entry.place, entry)

    def take(self, budget_tokens: int, *, stop: bool, leading: bool) -> list[HostNode]:
        """Return nodes greedily by value within the budget, a parent before its children; nothing without value.

        stop: a node that does not fit ends the choice; otherwise it is passed over with all below it. leading: a node
        that hangs on no candidate and is longer than the whole budget stands for its leading part of that length.
        Changes nothing that a later call could see. O(log n) for each node taken or passed over.
        """
        chosen: list[HostNode] = []
        popped: list[Entry] = []
        ready: list[tuple[tuple[int, Any], int, Entry]] = []
        left = budget_tokens
        roots = self._roots
        while left > 0:
            root = roots.peek()
            if not stop and left < budget_tokens:
                shortest = self._sizes.peek()
                if shortest is None or shortest > left:
                    root = None  # no root fits any more: only what hangs on those taken
            if root is not None and (not ready or root.place < ready[0][0]):
                entry = root
                roots.discard(entry.node.id)
                popped.append(entry)
            elif ready:
                entry = heappop(ready)[2]
            else:
                break
            if entry.value == 0:
                break
            tokens = entry.node.tokens
            cut = leading and entry.parent is None and tokens > budget_tokens
            if cut:
                tokens = budget_tokens
            if tokens > left:
                if stop:
                    break
                continue
            left -= tokens
            chosen.append(entry.node)
            if not cut:
                for id, child in entry.below.items():
                    heappush(ready, (child.place, id, child))
        for entry in popped:
            roots.set(entry.node.id, entry.place, entry)
        return chosen

    def value_of(self, agents: dict[int, int]) -> int:
        """Return Value(c) of equation 1 in fixed point for readers as masks by workflow. Does not mutate."""
        return sum(self._share(workflow, mask) for workflow, mask in agents.items())

    def _share(self, workflow: int, agents: int) -> int:
        weights = self.weights.get(workflow)
        if weights is None:
            return 0
        return masked(weights, agents if self._close is None else self._close(agents))

    def _stand(self, entry: Entry) -> None:
        """Hang on no candidate."""
        tokens = entry.node.tokens
        self._roots.set(entry.node.id, entry.place, entry)
        self._sizes.set(entry.node.id, tokens, tokens)

    def _drop(self, entry: Entry) -> None:
        id = entry.node.id
        for workflow in entry.agents:
            mine = self._by_workflow[workflow]
            del mine[id]
            if not mine:
                del self._by_workflow[workflow]
        if entry.parent is None:
            self._roots.discard(id)
            self._sizes.discard(id)
        else:
            del self._entries[entry.parent].below[id]


def listed(nodes: Sequence[HostNode], weights: dict[int, list[int]], close: Close | None) -> Candidates:
    """Return the candidates of one list, in its order; a parent may come after its children."""
    out = Candidates(weights, close)
    rows = {node.id: row for row, node in enumerate(nodes)}
    done: set[int] = set()
    for row, node in enumerate(nodes):
        chain = []
        at, at_row = node, row
        while at.id not in done:
            done.add(at.id)
            chain.append((at, at_row))
            above = at.parent
            if above is None or above.id not in rows:
                break
            at_row = rows[above.id]
            at = nodes[at_row]
        for entry, place in reversed(chain):
            out.offer(entry, place)
    return out


def _masks(node: HostNode) -> dict[int, int]:
    agents: dict[int, int] = {}
    for workflow, agent in node.readers:
        if agent >= 0:
            agents[workflow] = agents.get(workflow, 0) | 1 << agent
    return agents
