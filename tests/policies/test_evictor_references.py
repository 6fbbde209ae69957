"""Each evictor against a naive O(n) version of its paper, on random accesses to unrelated nodes."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from flat_cache import NEVER, run_flat
from hypothesis import given, settings
from hypothesis import strategies as st

from policies.laws import toy_host
from policies.registry import load
from traces import draws

ACCESSES = st.lists(st.integers(0, 11), max_size=120)
CAPACITY = st.integers(1, 10)
Reference = Callable[[list[int], int], list[int]]


def ranked(score: Callable[[int, int, int, int], object]) -> Reference:
    """Evict the key of lowest score(key, hits, last access, now)."""

    def run(accesses: list[int], capacity: int) -> list[int]:
        hits: dict[int, int] = {}
        last: dict[int, int] = {}
        out = []
        for i, key in enumerate(accesses):
            if key in hits:
                hits[key] += 1
            else:
                if len(hits) == capacity:
                    victim = min(hits, key=lambda k: (score(k, hits[k], last[k], i), last[k]))  # type: ignore[arg-type, return-value]
                    del hits[victim]
                    out.append(victim)
                hits[key] = 0
            last[key] = i
        return out

    return run


def belady(accesses: list[int], capacity: int) -> list[int]:
    def next_use(key: int, now: int) -> int:
        return next((j for j in range(now + 1, len(accesses)) if accesses[j] == key), NEVER)

    return ranked(lambda key, hits, last, now: -next_use(key, now - 1))(accesses, capacity)


def sieve(accesses: list[int], capacity: int) -> list[int]:
    queue: list[int] = []  # newest first, as in the paper
    visited: dict[int, bool] = {}
    hand: int | None = None  # a key
    out = []
    for key in accesses:
        if key in visited:
            visited[key] = True
            continue
        if len(queue) == capacity:
            at = queue.index(hand) if hand is not None else len(queue) - 1
            while visited[queue[at]]:
                visited[queue[at]] = False
                at = at - 1 if at > 0 else len(queue) - 1
            hand = queue[at - 1] if at > 0 else None
            victim = queue.pop(at)
            del visited[victim]
            out.append(victim)
        queue.insert(0, key)
        visited[key] = False
    return out


def s3_fifo(accesses: list[int], capacity: int) -> list[int]:
    small: list[int] = []
    main: list[int] = []
    ghosts: list[int] = []
    count: dict[int, int] = {}
    out = []
    for key in accesses:
        if key in count:
            count[key] = min(3, count[key] + 1)
            continue
        while len(count) == capacity:
            if len(small) > int(0.3 * capacity) or not main:
                oldest = small.pop(0)
                if count[oldest] >= 2:
                    count[oldest] = 0
                    main.append(oldest)
                    continue
                ghosts.append(oldest)
                del ghosts[: max(0, len(ghosts) - int(0.9 * capacity))]
            else:
                oldest = main.pop(0)
                if count[oldest]:
                    count[oldest] -= 1
                    main.append(oldest)
                    continue
            del count[oldest]
            out.append(oldest)
        if key in ghosts:
            ghosts.remove(key)
            main.append(key)
        else:
            small.append(key)
        count[key] = 0
    return out


def arc(accesses: list[int], capacity: int) -> list[int]:
    t1: list[int] = []
    t2: list[int] = []
    b1: list[int] = []
    b2: list[int] = []
    p = 0
    out = []
    for key in accesses:
        if key in t1 + t2:
            (t1 if key in t1 else t2).remove(key)
            t2.append(key)
            continue
        if len(t1) + len(t2) == capacity:
            frequent = not t1 or (len(t1) <= p and len(t2) > 0)
            victim = (t2 if frequent else t1).pop(0)
            (b2 if frequent else b1).append(victim)
            del b1[: max(0, len(t1) + len(b1) - capacity)]
            del b2[: max(0, len(t1) + len(t2) + len(b1) + len(b2) - 2 * capacity)]
            out.append(victim)
        if key in b1:
            p = min(capacity, p + max(1, len(b2) // len(b1)))
            b1.remove(key)
            t2.append(key)
        elif key in b2:
            p = max(0, p - max(1, len(b1) // len(b2)))
            b2.remove(key)
            t2.append(key)
        else:
            t1.append(key)
    return out


REFERENCES: dict[str, Reference] = {
    "lru": ranked(lambda key, hits, last, now: last),
    "lfu": ranked(lambda key, hits, last, now: hits),
    "hits_per_token": ranked(lambda key, hits, last, now: hits),
    "belady_leaf": belady,
    "sieve": sieve,
    "s3_fifo": s3_fifo,
    "arc": arc,
    "lifecycle": ranked(lambda key, hits, last, now: last),  # one workflow that never ends
}


@pytest.mark.parametrize("name", REFERENCES)
@settings(max_examples=60, deadline=None)
@given(accesses=ACCESSES, capacity=CAPACITY)
def test_victims_equal_those_of_the_naive_algorithm(name: str, accesses: list[int], capacity: int) -> None:
    options = {"small_ratio": 0.3} if name == "s3_fifo" else {}
    policy = load("evictors", name, options)
    assert run_flat(policy, accesses, capacity)[1] == REFERENCES[name](accesses, capacity)


@pytest.mark.parametrize("name", REFERENCES)
def test_victims_equal_those_of_the_naive_algorithm_on_long_runs(name: str) -> None:
    options = {"small_ratio": 0.3} if name == "s3_fifo" else {}
    policy = load("evictors", name, options)
    for seed in range(30):
        bits = [draws.bits(seed, "long run", i) for i in range(300)]
        popular = [min(b % 20, b >> 8 & 15) for b in bits]  # small keys more often
        accesses = [20 + i % 12 if i // 40 % 3 == 2 else key for i, key in enumerate(popular)]
        capacity = 2 + seed % 9
        assert run_flat(policy, accesses, capacity)[1] == REFERENCES[name](accesses, capacity)


def size_of(key: int) -> int:
    return 1 + key % 4


@settings(max_examples=60, deadline=None)
@given(accesses=ACCESSES, capacity=st.integers(4, 16))
def test_hits_per_token_equals_the_naive_density_rule(accesses: list[int], capacity: int) -> None:
    got = run_flat(load("evictors", "hits_per_token"), accesses, capacity, size_of)[1]
    uses: dict[int, int] = {}
    last: dict[int, int] = {}
    expected = []
    for i, key in enumerate(accesses):
        if key not in uses:
            while sum(map(size_of, uses)) + size_of(key) > capacity:
                victim = min(uses, key=lambda k: (uses[k] * 12 // size_of(k), last[k]))
                expected.append(victim)
                del uses[victim]
            uses[key] = 0
        uses[key] += 1
        last[key] = i
    assert got == expected


@settings(max_examples=60, deadline=None)
@given(accesses=ACCESSES, capacity=st.integers(4, 16))
def test_gdsf_equals_the_naive_priority_rule(accesses: list[int], capacity: int) -> None:
    got = run_flat(load("evictors", "gdsf"), accesses, capacity, size_of)[1]
    host = toy_host()
    width = host.max_num_batched_tokens

    def cost(key: int) -> int:
        pairs = host.profile.attention_as_per_pair * (size_of(key) // 2) // 1_000_000
        return host.profile.linear_ps_at(width) // width + pairs

    priority: dict[int, int] = {}
    uses: dict[int, int] = {}
    last: dict[int, int] = {}
    clock = 0
    expected = []
    for i, key in enumerate(accesses):
        if key not in uses:
            while sum(map(size_of, uses)) + size_of(key) > capacity:
                victim = min(uses, key=lambda k: (priority[k], last[k]))
                expected.append(victim)
                clock = priority[victim]
                del uses[victim]
            uses[key] = 0
        uses[key] += 1
        priority[key] = clock + uses[key] * cost(key)
        last[key] = i
    assert got == expected


@settings(max_examples=80, deadline=None)
@given(
    steps=st.lists(st.tuples(st.integers(0, 9), st.integers(0, 3), st.booleans()), max_size=120),
    capacity=CAPACITY,
)
def test_lifecycle_equals_the_naive_two_group_rule(steps: list[tuple[int, int, bool]], capacity: int) -> None:
    """Access i is made by workflow (slot, generation); `True` ends the slot's workflow just before it."""
    generation = [0, 0, 0, 0]
    workflows: list[int] = []
    ended: list[list[int]] = []
    for _, slot, ends in steps:
        ended.append([slot * 1000 + generation[slot]] if ends else [])
        generation[slot] += ends
        workflows.append(slot * 1000 + generation[slot])
    accesses = [key for key, _, _ in steps]
    got = run_flat(
        load("evictors", "lifecycle"),
        accesses,
        capacity,
        workflow=workflows.__getitem__,
        ends=ended.__getitem__,
    )[1]

    finished: set[int] = set()
    users: dict[int, set[int]] = {}
    last: dict[int, int] = {}
    expected = []
    for i, key in enumerate(accesses):
        finished |= set(ended[i])
        if key not in users:
            if len(users) == capacity:
                retired = [k for k in users if users[k] <= finished]
                group = min(retired, key=lambda k: (len(users[k]), last[k])) if retired else None
                victim = group if group is not None else min(users, key=lambda k: last[k])
                expected.append(victim)
                del users[victim]
            users[key] = set()
        users[key].add(workflows[i])
        last[key] = i
    assert got == expected
