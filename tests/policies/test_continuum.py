"""Continuum holds what a request left behind for a time to live, and no longer."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise
from typing import Any

import pytest
from flat_cache import Hand, ListOracle, Node

from policies._pbkv_ttl import GapStatistics
from policies.api import Access
from policies.evictors.continuum import Continuum
from policies.evictors.lru import Lru
from policies.laws import toy_host
from traces import draws
from traces.errors import InputError

S = 1_000_000_000


def request(hand: Hand, workflow: int, start_ns: int, end_ns: int, agent: int = 0, tokens: int = 16) -> Node:
    """A request inserts a node and ends."""
    hand.made += 1
    node = Node(hand.made, tokens, None, hand.made)
    hand.policy.insert(hand.state, node, Access(start_ns, workflow, hand.made, agent))
    hand.policy.done(hand.state, node, end_ns)
    hand.policy.release(hand.state, node, end_ns)
    return node


def test_held_nodes_leave_after_expired_ones_and_by_the_earliest_deadline() -> None:
    hand = Hand(Continuum(ttl="fixed", ttl_s=2.0))
    a = request(hand, 1, 0, 1 * S)
    b = request(hand, 2, 0, 2 * S)
    c = request(hand, 3, 0, 5 * S)
    policy, state = hand.policy, hand.state
    assert policy.next_victim(state, 2 * S) is a, "all are held: the earliest deadline"
    assert policy.next_deadline(state) == 3 * S
    assert policy.next_victim(state, 4 * S) is a, "a and b have expired: the least recently used"
    assert policy.next_deadline(state) == 7 * S
    hand.hit(a, workflow=9)  # ends at 0, so that it is held until 2 s: newest of the expired by now
    assert policy.next_victim(state, 6 * S) is b
    policy.remove(state, b)
    assert policy.next_victim(state, 6 * S) is a
    policy.remove(state, a)
    assert policy.next_victim(state, 6 * S) is c
    policy.remove(state, c)
    assert policy.next_deadline(state) is None


def test_without_a_time_to_live_it_is_lru() -> None:
    orders = []
    for policy in (Continuum(ttl="fixed", ttl_s=0.0), Lru()):
        hand = Hand(policy)
        nodes = [hand.add(workflow=i % 2) for i in range(8)]
        for i in (3, 1, 3, 6):
            hand.hit(nodes[i], workflow=i % 2)
        orders.append([hand.evict().id for _ in nodes])
    assert orders[0] == orders[1]


def test_the_end_of_a_workflow_lets_go_of_what_was_held_for_it() -> None:
    hand = Hand(Continuum(ttl="fixed"))
    old = request(hand, 1, 0, 1)
    ended = request(hand, 2, 0, 2)
    hand.policy.workflow_finished(hand.state, 2, 3)
    assert [hand.evict(), hand.evict()] == [ended, old]
    assert not hand.state.held


def test_a_path_is_held_as_a_whole() -> None:
    hand = Hand(Continuum(ttl="fixed", ttl_s=2.0))
    head = request(hand, 1, 0, 0)
    hand.policy.pin(hand.state, head)
    tail = hand.add(parent=head, held=True, workflow=1)
    hand.policy.done(hand.state, tail, 10 * S)
    hand.policy.release(hand.state, tail, 10 * S)
    other = request(hand, 2, 10 * S, 11 * S)
    assert hand.policy.next_victim(hand.state, 11 * S) is tail
    hand.policy.remove(hand.state, tail)
    hand.policy.release(hand.state, head, 11 * S)
    assert hand.policy.next_victim(hand.state, 11 * S) is head, "until 12 s as the tail was, not 2 s"
    assert hand.policy.next_deadline(hand.state) == 12 * S
    hand.policy.remove(hand.state, head)
    assert hand.policy.next_victim(hand.state, 11 * S) is other


def test_the_empirical_time_to_live_maximises_the_expected_gain() -> None:
    for seed in range(40):
        gaps = GapStatistics(window=32, samples_min=1, cold_ttl_ns=0)
        seen = [draws.bits(seed, "gap", i) % 1000 for i in range(5 + seed % 20)]
        for gap in seen:
            gaps.observe(0, gap)
        benefit = draws.bits(seed, "benefit") % 3000

        def gain(tau: int, seen: list[int] = seen, benefit: int = benefit) -> int:
            return sum(g <= tau for g in seen) * benefit - tau * len(seen)

        assert gain(gaps.best_ttl_ns(0, benefit)) == max(gain(tau) for tau in range(1000))


def test_agents_with_few_gaps_use_those_of_all_and_before_that_the_fixed_time() -> None:
    gaps = GapStatistics(window=4, samples_min=3, cold_ttl_ns=77)
    assert gaps.best_ttl_ns(0, 1000) == 77
    for gap in (10, 10, 10):
        gaps.observe(1, gap)
    assert gaps.best_ttl_ns(0, 1000) == 10
    for gap in (500, 500, 500):
        gaps.observe(0, gap)
    assert gaps.best_ttl_ns(0, 1000) == 500
    assert gaps.best_ttl_ns(0, 400) == 0, "holding costs more than it can save"
    for gap in (20, 20, 20, 20):
        gaps.observe(0, gap)
    assert gaps.best_ttl_ns(0, 400) == 20, "old gaps are forgotten"


def test_gaps_run_from_the_end_of_a_request_to_the_workflow_s_next() -> None:
    hand = Hand(Continuum(samples_min=1, ttl_s=0.0, queue_s=100.0))
    ends = [1 * S, 4 * S, 9 * S]
    for i, end in enumerate(ends):
        request(hand, 1, end - S // 2, end)
        other = request(hand, 100 + i, end, end + 1)
        del other
    gaps = [b - S // 2 - a for a, b in pairwise(ends)]
    assert sorted(hand.state.gaps._by_agent[0].ordered) == gaps


def test_the_oracle_holds_what_is_read_again_only() -> None:
    host = replace(toy_host(), oracle=ListOracle([0, 1, 2]))
    hand = Hand(Continuum(ttl="oracle"), host)
    again = request(hand, 1, 0, 0)
    never = Node(50, 16, None, 99)
    hand.policy.insert(hand.state, never, Access(0, 2, 5, 0))
    hand.end(never)
    assert [hand.evict(), hand.evict()] == [never, again]
    assert hand.policy.next_deadline(hand.state) is None
    with pytest.raises(InputError, match="no oracle"):
        Continuum(ttl="oracle").new_state(toy_host())


@pytest.mark.parametrize(("options", "words"), [({"ttl_s": -1.0}, "ttl_s=-1"), ({"window": 0}, "window=0")])
def test_options_of_continuum_out_of_range_are_refused(options: dict[str, Any], words: str) -> None:
    with pytest.raises(InputError, match=words):
        Continuum(**options)


class Away(ListOracle):
    """Knows gaps by stage."""

    def __init__(self, gaps_ns: dict[int, int]) -> None:
        super().__init__([])
        self.gaps_ns = gaps_ns

    def away_ns(self, stage: int) -> int:
        return self.gaps_ns[stage]


def test_an_oracle_that_knows_times_holds_for_the_true_gap_where_that_pays() -> None:
    policy = Continuum(ttl="oracle_time")
    host = replace(toy_host(), oracle=Away({1: 50_000, 2: 10**15}))
    state = policy.new_state(host)
    nodes = [Node(1, 640), Node(2, 640)]
    for node, stage in zip(nodes, (1, 2), strict=True):
        policy.insert(state, node, Access(0, stage, stage, 0))
        policy.done(state, node, 1000)
        policy.release(state, node, 1000)
    assert policy.next_deadline(state) == 51_000  # the other never pays
    assert policy.next_victim(state, 2000) is nodes[1]
    policy.remove(state, nodes[1])
    assert policy.next_victim(state, 2000) is nodes[0]
    assert policy.next_deadline(state) == 51_000
    policy.next_victim(state, 51_000)
    assert policy.next_deadline(state) is None
