"""Small hosts for the tests of evictors: nodes made by hand, and a cache without a tree."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from policies.api import Access, CacheNode, Evictor, HostInfo
from policies.laws import toy_host

NEVER = 1 << 60


@dataclass(eq=False)
class Node:
    id: int
    tokens: int = 16
    parent: Node | None = None
    identity: int = -1
    created_ns: int = 0
    last_access_ns: int = 0

    @property
    def depth_tokens(self) -> int:
        return self.tokens + (self.parent.depth_tokens if self.parent else 0)


@dataclass
class ListOracle:
    """Next use by identity in a recorded sequence of identities."""

    sequence: Sequence[int]
    now: int = 0

    def away_ns(self, stage: int) -> int:
        """Return a gap that differs by stage."""
        return stage % 7 * 1000

    def next_use(self, node: CacheNode) -> int:
        later = [i for i in range(self.now + 1, len(self.sequence)) if self.sequence[i] == node.identity]
        return later[0] if later else NEVER

    def forecast(self, workflow: int, steps: int) -> NDArray[np.float32]:
        return np.zeros((steps, 1), dtype=np.float32)


def by(workflow: int = 0, now_ns: int = 0) -> Access:
    return Access(now_ns, workflow, 0, 0)


class Hand:
    """Drives an evictor event by event, for sequences worked by hand."""

    def __init__(self, policy: Evictor[Any], host: HostInfo | None = None) -> None:
        host = host or toy_host()
        if policy.needs and host.oracle is None:
            host = replace(host, oracle=ListOracle([]))
        self.policy = policy
        self.state = policy.new_state(host)
        self.made = 0

    def add(
        self,
        tokens: int = 16,
        parent: Node | None = None,
        workflow: int = 0,
        identity: int = -1,
        held: bool = False,
    ) -> Node:
        """A request inserts a node, and ends unless it is to go on (`held`)."""
        self.made += 1
        node = Node(self.made, tokens, parent, identity if identity >= 0 else 10_000 + self.made)
        self.policy.insert(self.state, node, by(workflow))
        if not held:
            self.end(node)
        return node

    def end(self, node: Node, *, evictable: bool = True) -> None:
        """The request that held the path down to `node` ends; evictable: no other holds it, and it is a leaf."""
        self.policy.done(self.state, node, 0)
        if evictable:
            self.policy.release(self.state, node, 0)

    def hit(self, node: Node, workflow: int = 0) -> None:
        """A request matches the leaf, runs and ends."""
        self.policy.pin(self.state, node)
        self.policy.hit(self.state, node, by(workflow))
        self.end(node)

    def victim(self) -> CacheNode | None:
        return self.policy.next_victim(self.state, 0)

    def evict(self, *, last_child: bool = False) -> CacheNode:
        """Remove the victim; release its parent if that was the last child."""
        node = self.victim()
        assert node is not None
        self.policy.remove(self.state, node)
        if last_child:
            assert node.parent is not None
            self.policy.release(self.state, node.parent, 0)
        return node


def run_flat(
    policy: Evictor[Any],
    accesses: Sequence[int],
    capacity_tokens: int,
    size: Callable[[int], int] = lambda key: 1,
    workflow: Callable[[int], int] = lambda i: 0,
    ends: Callable[[int], Sequence[int]] = lambda i: (),
) -> tuple[int, list[int]]:
    """Serve accesses to keys in a cache of unrelated nodes; return (hits, keys evicted in order).

    size: tokens of a key. workflow: who makes access i. ends: workflows that finish before access i.
    """
    oracle = ListOracle(accesses)
    host = replace(toy_host(), capacity_tokens=capacity_tokens, oracle=oracle if policy.needs else None)
    state = policy.new_state(host)
    resident: dict[int, Node] = {}
    used = hits = made = 0
    evicted = []
    for i, key in enumerate(accesses):
        oracle.now = i
        for finished in ends(i):
            policy.workflow_finished(state, finished, i)
        access = Access(i, workflow(i), i, 0)
        if key in resident:
            hits += 1
            policy.pin(state, resident[key])
            policy.hit(state, resident[key], access)
        elif size(key) <= capacity_tokens:
            while used + size(key) > capacity_tokens:
                victim = policy.next_victim(state, i)
                assert isinstance(victim, Node)
                del resident[victim.identity]
                used -= victim.tokens
                evicted.append(victim.identity)
                policy.remove(state, victim)
            made += 1
            node = Node(made, size(key), None, key, i, i)
            resident[key] = node
            used += size(key)
            policy.insert(state, node, access)
        else:
            continue
        policy.done(state, resident[key], i)
        policy.release(state, resident[key], i)
    return hits, evicted
