"""With cost=reload the score counts what it takes to have a node's tokens again."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from policies._pbkv_reload import ReloadCost
from policies.api import Access, CacheNode, Forecast
from policies.evictors.lookahead import Lookahead
from policies.laws import toy_host


@dataclass(eq=False)
class Node:
    id: int
    tokens: int = 64
    parent: Any = None
    above: int = 0
    created_ns: int = 0
    last_access_ns: int = 0

    @property
    def identity(self) -> int:
        return self.id

    @property
    def depth_tokens(self) -> int:
        return self.above + self.tokens


HOSTED: dict[int, int] = {}


def hosted_tokens(node: CacheNode) -> int:
    return HOSTED.get(node.id, 0)


HOST = replace(toy_host(), hosted_tokens=hosted_tokens, host_bytes_per_s=10**12)


def filled(policy: Lookahead, nodes: list[Node]) -> Any:
    """Return a state in which workflow 0's agent 0 has read every node and runs next for sure."""
    state = policy.new_state(HOST)
    policy.forecast(state, Forecast(0, 0, np.array([[1, 0, 0, 0]], dtype=np.float32)))
    for turn, node in enumerate(nodes):
        policy.insert(state, node, Access(turn, 0, turn, 0))
        policy.release(state, node, turn)
    return state


def order(policy: Lookahead, state: Any) -> list[int]:
    out = []
    while (node := policy.next_victim(state, 0)) is not None:
        policy.remove(state, node)
        out.append(node.id)
    return out


def test_what_the_host_has_leaves_before_what_must_be_recomputed() -> None:
    HOSTED.clear()
    HOSTED.update({2: 64, 3: 64})
    nodes = [Node(i) for i in range(1, 5)]
    assert order(Lookahead(), filled(Lookahead(), nodes)) == [1, 2, 3, 4]
    policy = Lookahead(cost="reload")
    assert order(policy, filled(policy, nodes)) == [2, 3, 1, 4]


def test_half_a_path_in_the_host_is_no_copy() -> None:
    HOSTED.clear()
    HOSTED[1] = 32
    costs = ReloadCost(HOST)
    assert costs.of(Node(1)) == costs.of(Node(2))
    HOSTED[1] = 64
    assert costs.of(Node(1)) < costs.of(Node(2))


def test_a_copy_the_host_has_lost_counts_when_its_node_comes_to_the_front() -> None:
    HOSTED.clear()
    HOSTED.update({1: 64, 2: 64})
    policy = Lookahead(cost="reload")
    state = filled(policy, [Node(i) for i in range(1, 4)])
    del HOSTED[1]
    assert order(policy, state) == [2, 1, 3]


def test_deep_tokens_cost_more_to_recompute_and_the_same_to_copy() -> None:
    HOSTED.clear()
    costs = ReloadCost(HOST)
    shallow, deep = Node(1), Node(2, above=100_000)
    assert costs.of(deep) > costs.of(shallow)
    HOSTED.update({1: 64, 2: 100_064})
    assert costs.of(deep) == costs.of(shallow)


def test_a_run_costs_what_its_blocks_cost() -> None:
    HOSTED.clear()
    costs = ReloadCost(HOST)
    run = Node(1, tokens=1600, above=3200)
    blocks = [Node(2, tokens=16, above=3200 + 16 * k) for k in range(100)]
    whole, parts = costs.of(run) * run.tokens, sum(costs.of(b) * b.tokens for b in blocks)
    assert abs(whole - parts) <= 16 * 100  # a ps a token of rounding


def test_without_a_host_tier_every_token_is_recomputed() -> None:
    bare, tiered = ReloadCost(toy_host()), ReloadCost(HOST)
    HOSTED.clear()
    assert bare.of(Node(1)) == tiered.of(Node(1)) > 0
