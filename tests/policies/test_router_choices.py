"""What each router picks."""

from __future__ import annotations

from dataclasses import replace

from policies._laws_workflow import ToyReplica
from policies.api import RequestView, Router
from policies.laws import toy_host
from policies.registry import load

REQUEST = RequestView(request=0, stage=0, workflow=0, agent=0, released_ns=0, prompt_tokens=1000)


def replica(index: int, running: int = 0, waiting: int = 0, queued: int = 0, cached: int = 0) -> ToyReplica:
    return ToyReplica(index, running, waiting, queued, 0, cached)


def pick(name: str, *replicas: ToyReplica, **options: object) -> int:
    router = load("routers", name, options)
    assert isinstance(router, Router)
    return router.pick(router.new_state(toy_host()), REQUEST, replicas)


def test_round_robin_deals_in_turn() -> None:
    router = load("routers", "round_robin")
    assert isinstance(router, Router)
    state = router.new_state(toy_host())
    replicas = [replica(i) for i in range(3)]
    assert [router.pick(state, REQUEST, replicas) for _ in range(7)] == [0, 1, 2, 0, 1, 2, 0]


def test_least_loaded_counts_requests_then_queued_tokens_then_index() -> None:
    assert pick("least_loaded", replica(0, running=3), replica(1, running=1, waiting=1)) == 1
    assert pick("least_loaded", replica(0, running=2, queued=10), replica(1, running=2, queued=9)) == 1
    assert pick("least_loaded", replica(0, running=2), replica(1, running=2)) == 0


def test_prefix_aware_follows_the_cache_while_the_load_is_balanced() -> None:
    assert pick("prefix_aware", replica(0, cached=16), replica(1, running=32, cached=32)) == 1
    assert pick("prefix_aware", replica(0, running=1, cached=16), replica(1, cached=16)) == 1
    assert pick("prefix_aware", replica(0), replica(1)) == 0


def test_prefix_aware_leaves_the_cache_when_both_bounds_are_exceeded() -> None:
    assert pick("prefix_aware", replica(0), replica(1, running=33, cached=32)) == 0
    assert pick("prefix_aware", replica(0, running=80), replica(1, running=113, cached=32)) == 1
    assert pick("prefix_aware", replica(0), replica(1, running=5, cached=32), max_extra_requests="4") == 0


def test_parrot_keeps_a_group_together_then_follows_the_prefix_then_the_load() -> None:
    router = load("routers", "parrot")
    assert isinstance(router, Router)
    state = router.new_state(toy_host())
    a, b = replica(0, running=1, cached=16), replica(1, running=9, cached=32)
    assert router.pick(state, REQUEST, [a, b]) == 1
    assert router.pick(state, REQUEST, [a, replica(1, running=9)]) == 1  # its group runs there
    other = replace(REQUEST, workflow=7)
    assert router.pick(state, other, [replica(0, running=3), replica(1, running=2)]) == 1
    assert pick("parrot", a, b, ctx_aware=False) == 0


def test_parrot_passes_over_a_replica_without_room() -> None:
    full = ToyReplica(0, 0, 0, 3500, 0, 900)  # of 4,096 tokens; the request has 1,000
    assert pick("parrot", full, replica(1, running=9)) == 1
    assert pick("parrot", full, ToyReplica(1, 0, 0, 4000, 0, 0)) == 0  # none has room: the preferred one


def test_parrot_s_code_and_its_comment_disagree_about_capacity() -> None:
    empty, fuller = ToyReplica(0, 2, 0, 0, 0, 0), ToyReplica(1, 2, 0, 500, 0, 0)
    assert pick("parrot", empty, fuller) == 1
    assert pick("parrot", empty, fuller, most_capacity=True) == 0


def test_parrot_lets_deeper_dataflow_go_first() -> None:
    router = load("routers", "parrot")
    assert isinstance(router, Router)
    deep = replace(REQUEST, depth=5)
    assert router.priority(router.new_state(toy_host()), deep) < router.priority(None, REQUEST)


def test_helium_weighs_shared_prefix_against_queued_tokens() -> None:
    assert pick("helium", replica(0, cached=500), replica(1, queued=100, cached=700)) == 1
    assert pick("helium", replica(0, cached=500), replica(1, queued=300, cached=700)) == 0
    assert pick("helium", replica(0, cached=500), replica(1, queued=300, cached=700), queue_weight=0.0) == 1
    assert pick("helium", replica(0, running=2), replica(1, running=1)) == 1
