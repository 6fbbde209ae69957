"""The farthest first, where a node is as far as the nearest of its readers and readers move all the time.

A workflow's step moves every node it reads. Re-ranking them all would cost its share of the cache at each request, so
nodes are kept in groups by one reader (workflow, agents), the nearest when the node was ranked, and a move changes the
place of the workflow's few groups. What it can do to nodes in other groups is to bring them nearer, never farther:
a group's distance is at least that of its nodes, and a node is checked when it comes to the front.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from policies._lazy_heap import LazyHeap
from policies.api import CacheNode

Group = tuple[int, int]  # (workflow, bit mask of agents)
NOBODY: Group = (-1, 0)


class _Members:
    __slots__ = ("group", "id", "nodes")

    def __init__(self, id: int, group: Group) -> None:
        self.id = id
        self.group = group
        self.nodes: LazyHeap[CacheNode] = LazyHeap()


class GroupedOrder:
    """Nodes by (distance descending, tie). Every method but `in` mutates.

    distance   of a group, as of now; the owner calls `moved` when those of a workflow change
    nearest    the group of a node's nearest reader, as of now, by the node's id
    """

    __slots__ = ("_distance", "_groups", "_made", "_nearest", "_order", "_where", "_workflows")

    def __init__(self, distance: Callable[[Group], int], nearest: Callable[[int], Group]) -> None:
        self._distance = distance
        self._nearest = nearest
        self._order: LazyHeap[_Members] = LazyHeap()
        self._groups: dict[Group, _Members] = {}
        self._workflows: dict[int, dict[int, _Members]] = {}
        self._where: dict[int, _Members] = {}
        self._made = 0

    def __contains__(self, id: int) -> bool:
        return id in self._where

    def set(self, id: int, priority: tuple[Group, Any], item: CacheNode) -> None:
        """Put a node into a group, at its place by the tie: `priority` is (group, tie)."""
        group, tie = priority
        members = self._groups.get(group)
        if members is None:
            self._made += 1
            members = self._groups[group] = _Members(self._made, group)
            self._workflows.setdefault(group[0], {})[members.id] = members
        held = self._where.get(id)
        if held is not None and held is not members:
            self.discard(id)
        self._where[id] = members
        members.nodes.set(id, tie, item)
        self._place(members)

    def discard(self, id: int) -> None:
        """Drop a node, if it is there."""
        members = self._where.pop(id, None)
        if members is None:
            return
        members.nodes.discard(id)
        if len(members.nodes):
            self._place(members)
            return
        self._order.discard(members.id)
        workflow = members.group[0]
        del self._groups[members.group]
        del self._workflows[workflow][members.id]
        if not self._workflows[workflow]:
            del self._workflows[workflow]

    def moved(self, workflow: int) -> None:
        """Distances of the workflow's groups changed."""
        for members in self._workflows.get(workflow, {}).values():
            self._place(members)

    def moved_all(self) -> None:
        """Distances of all groups changed."""
        for members in self._groups.values():
            self._place(members)

    def peek(self) -> CacheNode | None:
        """Return the farthest node, None when there is none."""
        while (members := self._order.peek()) is not None:
            node = members.nodes.peek()
            assert node is not None
            nearest = self._nearest(node.id)
            if self._distance(nearest) >= self._distance(members.group):
                return node
            self.set(node.id, (nearest, members.nodes.priority(node.id)), node)
        return None

    def _place(self, members: _Members) -> None:
        first = members.nodes.peek()
        assert first is not None
        tie = members.nodes.priority(first.id)
        self._order.set(members.id, (-self._distance(members.group), tie), members)
