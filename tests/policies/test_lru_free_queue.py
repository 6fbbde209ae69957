"""LRU against a block-level model of vLLM's free queue, with requests that overlap and share prefixes.

The queue: whoever ends appends the blocks that nobody holds any more, tail first; a hit takes blocks out, wherever
they are; new blocks come from the front (vLLM V1, `BlockPool` and `FreeKVCacheBlockQueue`). Nodes are blocks here.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pytest
from flat_cache import Node
from hypothesis import given, settings
from hypothesis import strategies as st

from policies.api import Access, CacheNode, Evictor
from policies.evictors.lfu import Lfu
from policies.evictors.lru import Lru, LruState
from policies.laws import toy_host
from policies.registry import load
from traces import draws

Path = tuple[int, ...]


class FreeQueue:
    """A pool of `capacity` blocks, each known by the path of contents down to it."""

    def __init__(self, capacity: int) -> None:
        self.unused = capacity
        self.free: list[Path] = []  # cached and held by nobody, next victim first
        self.holders: dict[Path, int] = {}  # of all cached blocks

    def begin(self, path: Path) -> tuple[int, list[Path]] | None:
        """Hold the path; return (blocks matched, victims in order), None when it does not fit."""
        blocks = [path[: i + 1] for i in range(len(path))]
        matched = next((i for i, b in enumerate(blocks) if b not in self.holders), len(blocks))
        held = sum(b in self.free for b in blocks[:matched])
        if len(blocks) - matched > self.unused + len(self.free) - held:
            return None
        for block in blocks[:matched]:
            if block in self.free:
                self.free.remove(block)
            self.holders[block] += 1
        victims = []
        for _ in blocks[matched:]:
            if self.unused:
                self.unused -= 1
            else:
                victims.append(self.free.pop(0))
                del self.holders[victims[-1]]
        for block in blocks[matched:]:
            self.holders[block] = 1
        return matched, victims

    def end(self, path: Path) -> list[Path]:
        """Let go of the path; return the blocks that were freed, tail first."""
        freed = []
        for i in range(len(path), 0, -1):
            self.holders[path[:i]] -= 1
            if not self.holders[path[:i]]:
                freed.append(path[:i])
        self.free += freed
        return freed


class BlockHost:
    """Tells a policy of what the queue's host does, event by event, and compares every victim."""

    def __init__(self, policy: Evictor[Any], capacity: int) -> None:
        self.policy = policy
        self.state = policy.new_state(toy_host())
        self.queue = FreeQueue(capacity)
        self.nodes: dict[Path, Node] = {}
        self.evictable: set[Path] = set()
        self.running: list[Path] = []
        self.made = 0
        self.victims = 0

    def begin(self, path: Path) -> None:
        started = self.queue.begin(path)
        if started is None:
            return
        matched, victims = started
        access = Access(0, -1, -1, -1)
        if matched:
            for i in range(1, matched + 1):
                self._pin(path[:i])
            self.policy.hit(self.state, self.nodes[path[:matched]], access)
        for victim in victims:
            named = self.policy.next_victim(self.state, 0)
            assert named is self.nodes[victim], f"the queue frees {victim}"
            self._remove(victim)
        for i in range(matched, len(path)):
            self.made += 1
            parent = self.nodes[path[:i]] if i else None
            node = self.nodes[path[: i + 1]] = Node(self.made, 16, parent)
            self.policy.insert(self.state, node, access)
        self.running.append(path)

    def end(self, at: int) -> None:
        path = self.running.pop(at)
        self.policy.done(self.state, self.nodes[path], 0)
        for block in self.queue.end(path):
            self._release(block)

    def _pin(self, block: Path) -> None:
        if block in self.evictable:
            self.evictable.remove(block)
            self.policy.pin(self.state, self.nodes[block])

    def _release(self, block: Path) -> None:
        if not any(below[:-1] == block for below in self.nodes):
            self.evictable.add(block)
            self.policy.release(self.state, self.nodes[block], 0)

    def _remove(self, block: Path) -> None:
        self.victims += 1
        self.evictable.remove(block)
        self.policy.remove(self.state, self.nodes.pop(block))
        above = block[:-1]
        if above and not self.queue.holders.get(above, 0):  # not held, or the next to go
            self._release(above)


PATHS = st.lists(st.integers(0, 2), min_size=1, max_size=5).map(tuple)
STEPS = st.lists(st.one_of(PATHS, st.integers(0, 3)), max_size=60)  # begin a path, or end a running request


@pytest.mark.parametrize("name", ["lru", "lifecycle"])  # without workflows the latter is LRU
@settings(max_examples=150, deadline=None)
@given(steps=STEPS, capacity=st.integers(3, 12))
def test_victims_are_the_front_of_the_free_queue(name: str, steps: list[Path | int], capacity: int) -> None:
    host = BlockHost(load("evictors", name), capacity)  # type: ignore[arg-type]
    for step in steps:
        if isinstance(step, tuple):
            host.begin(step)
        elif host.running:
            host.end(step % len(host.running))


@dataclass(frozen=True)
class Deaf(Lru):
    """Does not hear that a request let go."""

    def done(self, state: LruState, node: CacheNode, now_ns: int) -> None:
        return


def overlap(policy: Evictor[Any]) -> int:
    """Run 400 requests, up to four at a time, that share heads; return the number of victims."""
    host = BlockHost(policy, 12)
    for turn in range(400):
        bits = draws.bits(0, "free queue test", turn)
        host.begin(tuple(bits >> 8 * i & 1 for i in range(1 + bits % 4)))
        if len(host.running) > (bits >> 40) % 4:
            host.end((bits >> 48) % len(host.running))
    return host.victims


def test_the_queue_tells_other_orders_apart() -> None:
    assert overlap(Lru()) > 100
    for other in (Deaf(), Lfu()):
        with pytest.raises(AssertionError, match="the queue frees"):
            overlap(other)
