"""Laws of evictors: what every host relies on."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from dataclasses import replace
from types import FrameType
from typing import Any

from policies._toy_tree import AGENTS, ToyNode, ToyOracle, ToyTree
from policies.api import Evictor, HostInfo
from policies.views import Access
from traces import draws

_REQUESTS = 300
_BLOCKS = 48
_CYCLES = 300


def check_evictor(policy: Evictor[Any], host: HostInfo, seeds: Iterable[int]) -> None:
    """Raise AssertionError with the law that is broken, the seed and the event."""
    for seed in seeds:
        alone = _run(policy, host, seed)
        assert len(alone) > _REQUESTS // 4, "the toy cache was never under pressure"
        again = _run(policy, host, seed)
        assert again == alone, (
            f"seed {seed}: equal histories, other victims: {_first_difference(alone, again)}"
        )
        spread = _run(policy, host, seed, id_stride=0x10001)
        assert spread == alone, (
            f"seed {seed}: victims change with the values of node ids, order kept (iteration over a set or a "
            f"dict of hashes?): {_first_difference(alone, spread)}"
        )
        other = _run(policy, host, seed + 1)
        both = _interleaved(policy, host, seed, seed + 1)
        assert both == (alone, other), (
            f"seed {seed}: two states of one policy disturb each other; keep what is learnt in the state"
        )
    _check_cost(policy, host)


def _tree(policy: Evictor[Any], host: HostInfo, seed: int, id_stride: int = 1) -> ToyTree:
    oracle = ToyOracle(seed, _REQUESTS)
    given = replace(host, seed=seed, capacity_tokens=16 * _BLOCKS, oracle=oracle if policy.needs else None)
    tree = ToyTree(policy, policy.new_state(given), seed, blocks=_BLOCKS, oracle=oracle, id_stride=id_stride)
    assert policy.next_victim(tree.state, 0) is None, "next_victim of an empty cache must return None"
    return tree


def _run(
    policy: Evictor[Any], host: HostInfo, seed: int, id_stride: int = 1
) -> list[tuple[tuple[int, ...], int]]:
    tree = _tree(policy, host, seed, id_stride)
    for i in range(_REQUESTS):
        _event(tree, seed, i)
    try:
        tree.drain()
    except Exception as e:
        raise AssertionError(f"seed {seed}, emptying the cache: {_text(e)}") from e
    return tree.victims


def _interleaved(
    policy: Evictor[Any], host: HostInfo, seed_a: int, seed_b: int
) -> tuple[list[tuple[tuple[int, ...], int]], list[tuple[tuple[int, ...], int]]]:
    a, b = _tree(policy, host, seed_a), _tree(policy, host, seed_b)
    for i in range(_REQUESTS):
        _event(a, seed_a, i)
        _event(b, seed_b, i)
    a.drain()
    b.drain()
    return a.victims, b.victims


def _event(tree: ToyTree, seed: int, index: int) -> None:
    try:
        tree.step()
    except Exception as e:
        raise AssertionError(f"seed {seed}, request {index}: {_text(e)}") from e


def _check_cost(policy: Evictor[Any], host: HostInfo) -> None:
    """An eviction, with the events around it, costs about the same at 10 times the nodes (amortised)."""
    few, many = _work_per_cycle(policy, host, 200), _work_per_cycle(policy, host, 2000)
    assert many <= 2 * few + 20, (
        f"an eviction takes {few:.0f} operations with 200 nodes and {many:.0f} with 2000: "
        "its cost grows with the cache (policies/_lazy_heap.py orders nodes at O(log n))"
    )


class _CountedInt(int):
    """A node id that notices being hashed or compared, so that scans in C (`min`, `sorted`) count too."""

    uses = 0

    def __hash__(self) -> int:
        _CountedInt.uses += 1
        return int.__hash__(self)

    def __lt__(self, other: int) -> bool:
        _CountedInt.uses += 1
        return int.__lt__(self, other)


def _work_per_cycle(policy: Evictor[Any], host: HostInfo, nodes: int) -> float:
    """Return lines run, node reads and uses of ids in a cycle of hit, insert, eviction in a flat cache."""
    oracle = ToyOracle(0, 0)
    capacity_tokens = 16 * nodes
    given = replace(host, capacity_tokens=capacity_tokens, oracle=oracle if policy.needs else None)
    state = policy.new_state(given)
    tree = ToyTree(policy, state, 0, blocks=nodes, oracle=oracle)
    live: list[ToyNode] = []
    where: dict[int, int] = {}

    def insert(i: int) -> None:
        node = ToyNode(_CountedInt(i + 1), None, (i,), i, tree.meter)
        where[i + 1] = len(live)
        live.append(node)
        policy.insert(state, node, Access(i, i % 7, i, i % AGENTS))
        policy.done(state, node, i)
        policy.release(state, node, i)

    def cycle(i: int) -> None:
        hit = live[draws.bits(0, "cost", i) % len(live)]
        policy.pin(state, hit)
        policy.hit(state, hit, Access(i, i % 7, i, i % AGENTS))
        policy.done(state, hit, i)
        policy.release(state, hit, i)
        victim = policy.next_victim(state, i)
        assert isinstance(victim, ToyNode), (
            f"next_victim returned {victim!r} with {len(live)} evictable nodes"
        )
        at = where.pop(int(victim._id))
        last = live.pop()
        if last is not victim:
            live[at] = last
            where[int(last._id)] = at
        policy.remove(state, victim)
        insert(i)

    for i in range(nodes):
        insert(i)
    for i in range(nodes, 2 * nodes):  # until the policy has forgotten how it began
        cycle(i)
    lines = 0

    def trace(frame: FrameType, event: str, arg: object) -> Any:
        nonlocal lines
        lines += event == "line"
        return trace

    before, reads_before, uses_before = sys.gettrace(), tree.meter.reads, _CountedInt.uses
    sys.settrace(trace)
    try:
        for i in range(2 * nodes, 2 * nodes + _CYCLES):
            cycle(i)
    finally:
        sys.settrace(before)
    return (lines + tree.meter.reads - reads_before + _CountedInt.uses - uses_before) / _CYCLES


def _first_difference(a: list[tuple[tuple[int, ...], int]], b: list[tuple[tuple[int, ...], int]]) -> str:
    at = next((i for i, (x, y) in enumerate(zip(a, b, strict=False)) if x != y), min(len(a), len(b)))
    return f"first at eviction {at} of {len(a)}"


def _text(e: Exception) -> str:
    return str(e) if isinstance(e, AssertionError) else f"{type(e).__name__}: {e}"
