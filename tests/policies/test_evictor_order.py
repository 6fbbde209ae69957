"""What each evictor does on sequences worked by hand, and what all of them do when nodes split and shrink."""

from __future__ import annotations

from dataclasses import replace

import pytest
from flat_cache import Hand, ListOracle, Node

from policies.api import Evictor
from policies.laws import toy_host
from policies.registry import load, names
from traces import draws
from traces.errors import InputError

ALL = names("evictors")


def evictor(name: str, **options: object) -> Evictor[object]:
    policy = load("evictors", name, options)
    assert isinstance(policy, Evictor)
    return policy


def crowd(hand: Hand) -> list[Node]:
    """Six nodes of different sizes, some of them hit."""
    nodes = [hand.add(tokens=16 * (1 + i % 3), workflow=i % 2) for i in range(6)]
    for i in (1, 3, 3, 4):
        hand.hit(nodes[i], workflow=i % 2)
    return nodes


@pytest.mark.parametrize("name", ALL)
def test_a_victim_that_loses_its_tail_by_a_split_leaves_its_head_in_its_place(name: str) -> None:
    hand = Hand(evictor(name))
    crowd(hand)
    lower = hand.victim()
    assert isinstance(lower, Node)
    upper = Node(100, 8, None, lower.identity)
    lower.parent, lower.tokens, lower.identity = upper, lower.tokens - 8, 999
    hand.policy.split(hand.state, upper, lower)
    assert hand.victim() is lower
    hand.evict(last_child=True)
    assert hand.victim() is upper


@pytest.mark.parametrize("name", ALL)
def test_a_victim_that_shrinks_keeps_its_place(name: str) -> None:
    hand = Hand(evictor(name))
    crowd(hand)
    node = hand.victim()
    assert isinstance(node, Node)
    node.tokens //= 2
    hand.policy.shrink(hand.state, node)
    assert hand.victim() is node


@pytest.mark.parametrize("name", ALL)
def test_splitting_a_node_in_the_middle_of_the_order_changes_no_later_victim(name: str) -> None:
    orders = []
    for split in (False, True):
        hand = Hand(evictor(name))
        nodes = crowd(hand)
        if split:
            lower = nodes[3]
            upper = Node(100, 8, None, lower.identity)
            lower.parent, lower.tokens, lower.identity = upper, lower.tokens - 8, 999
            hand.policy.split(hand.state, upper, lower)
        order = []
        while (node := hand.victim()) is not None:
            order.append(node.id)
            hand.evict(last_child=node.parent is not None)
        orders.append([id for id in order if id != 100])
    if name in ("gdsf", "hits_per_token"):  # these price by size or depth, which a split changes
        assert sorted(orders[0]) == sorted(orders[1])
    else:
        assert orders[0] == orders[1]


@pytest.mark.parametrize("name", ["lru", "lfu", "gdsf", "hits_per_token", "arc", "lifecycle"])
def test_a_parent_has_the_uses_of_its_removed_child(name: str) -> None:
    hand = Hand(evictor(name))
    parent = hand.add(held=True)
    child = hand.add(parent=parent)
    before = hand.add()
    for _ in range(3):
        hand.hit(child)
    after = hand.add()
    hand.hit(after)
    for node in (before, after):
        hand.policy.pin(hand.state, node)
    assert hand.evict(last_child=True) is child
    for node in (before, after):
        hand.policy.release(hand.state, node, 0)
    order = [hand.evict() for _ in range(3)]
    if name in ("lru", "arc", "lifecycle"):  # used when the child was last used
        assert order == [before, parent, after]
    else:  # hit three times, as the child was
        assert order == [before, after, parent]


BY_RECENCY = ["lru", "lfu", "gdsf", "hits_per_token", "arc", "lifecycle", "belady_leaf"]  # in the last place
IN_TREES = [name for name in BY_RECENCY if name != "gdsf"]  # which prices depth


@pytest.mark.parametrize("name", BY_RECENCY)
def test_the_end_of_a_request_is_a_use(name: str) -> None:
    hand = Hand(evictor(name))
    long_running = hand.add(held=True)
    short = hand.add()
    hand.end(long_running)
    assert [hand.evict(), hand.evict()] == [short, long_running]


@pytest.mark.parametrize("name", ALL)
def test_to_become_evictable_is_no_use(name: str) -> None:
    hand = Hand(evictor(name))
    copy = hand.add(held=True)  # by a tier, say, that is no request
    later = hand.add()
    hand.policy.release(hand.state, copy, 0)
    assert [hand.evict(), hand.evict()] == [copy, later]


@pytest.mark.parametrize("name", IN_TREES)
def test_a_shared_head_is_used_when_a_request_ends_that_others_outlive(name: str) -> None:
    # Of two requests on a head, the one with a block below ends first: the head has a child and is no
    # candidate, but vLLM's queue would put it behind `between` when the other request ends.
    hand = Hand(evictor(name))
    head = hand.add(held=True)
    tail = hand.add(parent=head)
    between = hand.add()
    hand.end(head, evictable=False)
    assert hand.evict(last_child=True) is tail
    assert [hand.evict(), hand.evict()] == [between, head]


@pytest.mark.parametrize("name", IN_TREES)
def test_a_shared_head_is_as_recent_as_the_last_request_that_held_it(name: str) -> None:
    # The request on the head alone ends first, then an unrelated one, then the one with a block below.
    hand = Hand(evictor(name))
    head = hand.add(held=True)
    tail = hand.add(parent=head, held=True)
    hand.end(head, evictable=False)
    between = hand.add()
    hand.end(tail)
    assert hand.evict() is between
    assert hand.evict(last_child=True) is tail
    assert hand.evict() is head


def test_lru_takes_a_finished_chain_from_its_tail_before_newer_chains() -> None:
    hand = Hand(evictor("lru"))
    a = hand.add(held=True)
    b = hand.add(parent=a, held=True)
    c = hand.add(parent=b)
    newer = hand.add()
    assert hand.evict(last_child=True) is c
    assert hand.evict(last_child=True) is b
    assert hand.evict() is a
    assert hand.evict() is newer


def test_lfu_breaks_ties_by_recency() -> None:
    hand = Hand(evictor("lfu"))
    a, b, c = hand.add(), hand.add(), hand.add()
    hand.hit(b)
    hand.hit(a)
    assert [hand.evict(), hand.evict(), hand.evict()] == [c, b, a]


def test_gdsf_keeps_the_deep_node_that_costs_more_to_recompute() -> None:
    hand = Hand(evictor("gdsf"))
    parent = hand.add(tokens=4096, held=True)
    deep = hand.add(parent=parent)
    shallow = hand.add()
    assert [hand.evict(), hand.victim()] == [shallow, deep]


def test_gdsf_ages_what_was_popular() -> None:
    hand = Hand(evictor("gdsf"))
    popular = hand.add()
    hand.hit(popular)
    hand.hit(popular)
    for _ in range(3):  # each victim raises L by one use, so that the third newcomer is worth more
        newcomer = hand.add()
        if hand.victim() is not newcomer:
            break
        hand.evict()
    assert hand.victim() is popular


def test_hits_per_token_gives_up_the_long_node_first() -> None:
    hand = Hand(evictor("hits_per_token"))
    long, short = hand.add(tokens=64), hand.add(tokens=16)
    hand.hit(long)
    hand.hit(long)
    assert [hand.evict(), hand.evict()] == [long, short]


def test_sieve_spares_a_hit_node_once_and_goes_on_from_its_hand() -> None:
    hand = Hand(evictor("sieve"))
    a, b, c = hand.add(), hand.add(), hand.add()
    hand.hit(a)
    assert hand.evict() is b  # a is spared, its mark cleared
    d = hand.add()
    assert hand.evict() is c  # the hand went on
    assert hand.evict() is d
    assert hand.evict() is a


def test_sieve_starts_again_after_evicting_the_newest() -> None:
    hand = Hand(evictor("sieve"))
    a, b, c = hand.add(), hand.add(), hand.add()
    hand.hit(a)
    hand.hit(b)
    assert hand.evict() is c
    d = hand.add()
    assert [hand.evict(), hand.evict(), hand.evict()] == [a, b, d]


def test_sieve_spares_the_head_of_a_victim_no_second_time() -> None:
    hand = Hand(evictor("sieve"))
    nodes = [hand.add() for _ in range(3)]
    for node in nodes:
        hand.hit(node)
    lower = nodes[0]
    assert hand.victim() is lower  # all were spared once
    upper = Node(100, 8)
    lower.parent = upper
    hand.policy.split(hand.state, upper, lower)
    hand.evict(last_child=True)
    assert hand.victim() is upper


def test_sieve_keeps_a_pinned_node_s_place() -> None:
    hand = Hand(evictor("sieve"))
    a, b = hand.add(), hand.add()
    hand.policy.pin(hand.state, a)
    assert hand.victim() is b
    hand.policy.release(hand.state, a, 0)
    assert hand.evict() is b  # the hand is past a
    assert hand.evict() is a


def test_s3_fifo_filters_what_is_used_once_and_remembers_it() -> None:
    hand = Hand(evictor("s3_fifo"), replace(toy_host(), capacity_tokens=160))  # 16 tokens for the small queue
    kept = hand.add(identity=1)
    hand.hit(kept)
    hand.hit(kept)
    once, last = hand.add(identity=2), hand.add(identity=3)
    assert hand.evict() is once  # `kept` was promoted
    back = hand.add(identity=2)  # remembered: straight to the main queue
    scan = [hand.add(identity=10 + i) for i in range(3)]
    assert [hand.evict() for _ in range(3)] == [last, *scan[:2]]  # while the small queue exceeds its share
    assert [hand.evict(), hand.evict(), hand.evict()] == [kept, back, scan[2]]


def test_s3_fifo_moves_nodes_round_the_main_queue_once_for_each_hit() -> None:
    hand = Hand(evictor("s3_fifo"), replace(toy_host(), capacity_tokens=160))
    a, b, _ = hand.add(), hand.add(), hand.add()
    for node in (a, a, b, b):
        hand.hit(node)
    assert hand.victim() is a  # both promoted, in order, with no hit left
    hand.hit(a)
    assert hand.victim() is b
    assert [hand.evict(), hand.evict()] == [b, a]


def test_arc_learns_from_ghosts_which_list_needs_room() -> None:
    hand = Hand(evictor("arc"), replace(toy_host(), capacity_tokens=64))
    often = hand.add(identity=1)
    hand.hit(often)
    once = hand.add(identity=2)
    assert hand.evict() is once  # p = 0: T1 gives
    hand.add(identity=2)  # remembered in B1: p grows by its tokens, the node joins T2
    assert hand.state.target_tokens == 16
    hand.add(identity=3)
    assert hand.victim() is often  # T1 holds no more than p now, so that T2 gives
    hand.evict()
    hand.add(identity=1)  # remembered in B2: p shrinks
    assert hand.state.target_tokens == 0


def test_arc_counts_what_is_left_of_a_node_that_shrinks() -> None:
    hand = Hand(evictor("arc"))
    node = hand.add(tokens=64)
    node.tokens = 48
    hand.policy.shrink(hand.state, node)
    assert (hand.state.t1_tokens, hand.state.t2_tokens) == (48, 0)
    hand.hit(node)
    assert (hand.state.t1_tokens, hand.state.t2_tokens) == (0, 48)
    hand.evict()
    assert (hand.state.t1_tokens, hand.state.t2_tokens, hand.state.b2.tokens) == (0, 0, 48)


def test_arc_counts_both_parts_of_a_split_node_in_its_list() -> None:
    hand = Hand(evictor("arc"))
    hand.add(identity=1)
    hand.evict()
    lower = hand.add(identity=1)  # remembered: in T2 without a hit
    upper = Node(100, 4)
    lower.parent, lower.tokens = upper, 12
    hand.policy.split(hand.state, upper, lower)
    assert (hand.state.t1_tokens, hand.state.t2_tokens) == (0, 16)
    hand.evict(last_child=True)
    assert (hand.state.t1_tokens, hand.state.t2_tokens) == (0, 4)


def test_arc_keeps_its_lists_and_ghosts_within_twice_the_cache() -> None:
    capacity = 96
    hand = Hand(evictor("arc"), replace(toy_host(), capacity_tokens=capacity))
    resident: dict[int, Node] = {}
    for i in range(400):
        identity = draws.bits(0, "arc", i) % 14
        if identity in resident:
            hand.hit(resident[identity])
            continue
        if len(resident) == capacity // 16:
            victim = hand.evict()
            del resident[victim.identity]
            state = hand.state
            assert state.t1_tokens + state.b1.tokens <= capacity
            total = state.t1_tokens + state.t2_tokens + state.b1.tokens + state.b2.tokens
            assert total <= 2 * capacity
        resident[identity] = hand.add(identity=identity)


def test_arc_takes_the_parent_of_a_removed_child_with_hits_to_the_list_of_the_often_used() -> None:
    hand = Hand(evictor("arc"))
    parent = hand.add(held=True)
    child = hand.add(parent=parent)
    hand.hit(child)
    assert hand.evict(last_child=True) is child
    once = hand.add()  # used later, but once
    assert [hand.evict(), hand.evict()] == [once, parent]


def test_gdsf_counts_a_child_s_last_use_for_its_parent() -> None:
    hand = Hand(evictor("gdsf"))
    parent = hand.add(held=True)
    twice = hand.add()
    hand.hit(twice)  # H = 2 uses at L = 0
    hand.add()
    hand.evict()  # L = 1 use
    child = hand.add(parent=parent)
    hand.policy.pin(hand.state, twice)
    assert hand.evict(last_child=True) is child
    hand.policy.release(hand.state, twice, 0)
    assert [hand.evict(), hand.evict()] == [twice, parent]  # a tie, which the older use loses


def test_lifecycle_evicts_retired_nodes_first_and_those_of_fewest_workflows_before_others() -> None:
    hand = Hand(evictor("lifecycle"))
    shared = hand.add(workflow=1)
    hand.hit(shared, workflow=2)
    private = hand.add(workflow=2)
    running = hand.add(workflow=3)
    old_but_active = hand.add(workflow=3)
    hand.hit(private, workflow=2)
    hand.policy.workflow_finished(hand.state, 2, 0)
    assert hand.victim() is private  # `shared` is still workflow 1's
    hand.policy.workflow_finished(hand.state, 1, 0)
    assert [hand.evict() for _ in range(4)] == [private, shared, running, old_but_active]


def test_lifecycle_counts_a_workflow_once_however_often_it_came() -> None:
    hand = Hand(evictor("lifecycle"))
    twice_used = hand.add(workflow=1)
    hand.hit(twice_used, workflow=2)
    often_used = hand.add(workflow=1)
    for _ in range(5):
        hand.hit(often_used, workflow=1)
    for workflow in (1, 2):
        hand.policy.workflow_finished(hand.state, workflow, 0)
    assert [hand.evict(), hand.evict()] == [often_used, twice_used]


def test_lifecycle_passes_workflows_of_a_removed_child_to_its_parent() -> None:
    hand = Hand(evictor("lifecycle"))
    parent = hand.add(workflow=1, held=True)
    child = hand.add(workflow=2, parent=parent)
    hand.policy.workflow_finished(hand.state, 1, 0)
    assert hand.evict(last_child=True) is child
    retired = hand.add(workflow=3)
    for workflow in (4, 5):
        hand.hit(retired, workflow=workflow)
    for workflow in (3, 4, 5):
        hand.policy.workflow_finished(hand.state, workflow, 0)
    assert hand.victim() is retired  # the parent is active through workflow 2, which read it
    single = hand.add(workflow=6)
    for workflow in (2, 6):
        hand.policy.workflow_finished(hand.state, workflow, 0)
    order = [hand.evict() for _ in range(3)]
    assert order == [single, parent, retired]  # one workflow ever, two, three


def test_lifecycle_retires_the_head_of_a_split_node_too() -> None:
    hand = Hand(evictor("lifecycle"))
    active = hand.add(workflow=2)
    lower = hand.add(workflow=1)
    upper = Node(100, 8)
    lower.parent = upper
    hand.policy.split(hand.state, upper, lower)
    hand.policy.workflow_finished(hand.state, 1, 0)
    assert hand.evict(last_child=True) is lower
    assert [hand.evict(), hand.evict()] == [upper, active]


def test_lifecycle_revives_a_retired_node_that_another_workflow_hits() -> None:
    hand = Hand(evictor("lifecycle"))
    a, b = hand.add(workflow=1), hand.add(workflow=1)
    hand.policy.workflow_finished(hand.state, 1, 0)
    hand.hit(a, workflow=2)
    assert [hand.evict(), hand.evict()] == [b, a]


def test_lifecycle_without_workflows_is_lru() -> None:
    lifecycle, lru = Hand(evictor("lifecycle")), Hand(evictor("lru"))
    orders = []
    for hand in (lifecycle, lru):
        nodes = [hand.add(workflow=-1) for _ in range(5)]
        for i in (0, 2, 0):
            hand.hit(nodes[i], workflow=-1)
        orders.append([hand.evict().id for _ in nodes])
    assert orders[0] == orders[1]


def test_belady_leaf_evicts_what_is_read_again_last() -> None:
    host = replace(toy_host(), oracle=ListOracle([0, 7, 5, 6]))
    hand = Hand(evictor("belady_leaf"), host)
    soon, later, never = hand.add(identity=7), hand.add(identity=6), hand.add(identity=9)
    assert [hand.evict(), hand.evict(), hand.evict()] == [never, later, soon]


def test_belady_leaf_refuses_a_host_without_the_future() -> None:
    with pytest.raises(InputError, match="needs the oracle"):
        evictor("belady_leaf").new_state(toy_host())


@pytest.mark.parametrize(
    "options", [{"small_ratio": 0}, {"small_ratio": 1}, {"ghost_ratio": -1}, {"promote_hits": 4}]
)
def test_s3_fifo_refuses_options_out_of_range(options: dict[str, object]) -> None:
    with pytest.raises(InputError, match=r"evictor=s3_fifo: .*expected"):
        load("evictors", "s3_fifo", options)
