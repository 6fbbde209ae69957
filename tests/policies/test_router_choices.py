"""What each router picks."""

from __future__ import annotations

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
