"""The radix cache over interned segments against a plain radix tree over real block contents.

The reference splits a node where two sequences diverge, counts locks on whole paths, stamps whole paths when they
are used, and evicts the unlocked leaf whose stamp is oldest, whole. Nothing of it is fast.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from policies.api import Access, HostInfo
from policies.evictors.lru import Lru
from sim.kv.paths import PrefixPaths
from sim.kv.radix import Node, RadixCache
from sim.worlds import flat_profile
from traces.builder import WorkloadBuilder

Block = tuple[int, ...]
Path = tuple[Block, ...]


class RefNode:
    def __init__(self, parent: RefNode | None, key: Path) -> None:
        self.parent = parent
        self.key = key
        self.children: dict[Block, RefNode] = {}
        self.locks = 0
        self.stamp = 0

    def path(self) -> Path:
        return (self.parent.path() if self.parent else ()) + self.key

    def up(self) -> Iterator[RefNode]:
        at = self
        while at.parent is not None:
            yield at
            at = at.parent


class Reference:
    def __init__(self) -> None:
        self.root = RefNode(None, ())
        self.clock = 0

    def nodes(self, at: RefNode | None = None) -> Iterator[RefNode]:
        for child in (at or self.root).children.values():
            yield child
            yield from self.nodes(child)

    def matched(self, path: Path) -> int:
        node, done = self.root, 0
        while done < len(path) and path[done] in node.children:
            node = node.children[path[done]]
            for a, b in zip(node.key, path[done:], strict=False):
                if a != b:
                    return done
                done += 1
            if done < len(node.path()):
                return done
        return done

    def node_at(self, path: Path) -> RefNode:
        """Return the node that ends with `path`, which is resident, splitting the one that goes on."""
        node, done = self.root, 0
        while done < len(path):
            node = node.children[path[done]]
            if done + len(node.key) > len(path):
                assert node.parent is not None
                upper = RefNode(node.parent, node.key[: len(path) - done])
                upper.locks, upper.stamp = node.locks, node.stamp
                node.parent.children[path[done]] = upper
                node.parent, node.key = upper, node.key[len(path) - done :]
                upper.children[node.key[0]] = node
                node = upper
            done += len(node.key)
        return node

    def use(self, node: RefNode) -> None:
        self.clock += 1
        for at in node.up():
            at.stamp = self.clock

    def lock(self, node: RefNode, by: int) -> None:
        for at in node.up():
            at.locks += by

    def insert(self, path: Path) -> RefNode:
        matched = self.matched(path)
        node = self.node_at(path[:matched])
        if matched < len(path):
            child = RefNode(node, path[matched:])
            node.children[path[matched]] = child
            node = child
        return node

    def evict(self, blocks: int) -> list[Path]:
        """Remove leaves until `blocks` blocks are free; return the paths that ended with them."""
        victims: list[Path] = []
        freed = 0
        while freed < blocks:
            leaves = [n for n in self.nodes() if not n.children and not n.locks]
            if not leaves:
                break
            oldest = min(leaves, key=lambda n: n.stamp)
            victims.append(oldest.path())
            assert oldest.parent is not None
            del oldest.parent.children[oldest.key[0]]
            freed += len(oldest.key)
        return victims


class Held:
    """A request: what it holds in the one and in the other tree."""

    def __init__(self, path: Path, node: Node | None, ref: RefNode | None, blocks: int) -> None:
        self.path, self.node, self.ref, self.blocks = path, node, ref, blocks


class Pair:
    """The cache and the reference, driven by the same requests in the engine's order of calls."""

    def __init__(self, sequences: list[list[int]], size: int) -> None:
        builder = WorkloadBuilder("radix", hash_block_tokens=1)
        builder.workflow("all")
        for tokens in sequences:
            builder.llm(len(tokens), 1, prompt_units=np.array(tokens, dtype=np.uint64))
        self.paths = PrefixPaths(builder.build(), size)
        host = HostInfo(profile=flat_profile(1), block_tokens=size, capacity_tokens=1000)
        evictor = Lru()
        self.cache = RadixCache(self.paths, evictor, evictor.new_state(host), whole_leaves=True)
        self.reference = Reference()
        self.contents: list[Path] = [
            tuple(tuple(t[i : i + size]) for i in range(0, len(t) - size + 1, size)) for t in sequences
        ]
        self.held: list[Held] = []
        self.stages: list[int] = []
        self.now = 0

    def admit(self, stage: int, limit: int) -> None:
        """Match a prefix of at most `limit` blocks and hold it."""
        self.now += 1
        path = self.contents[stage]
        blocks = min(len(path), limit)
        node, matched = self.cache.find(self.paths.prompt_segment[stage], blocks)
        assert matched == self.reference.matched(path[:blocks])
        above = self.cache.unprotected_above(node, matched)
        ref = None
        before = self.cache.protected_blocks
        if node is not None:
            node = self.cache.cut_at(node, matched, self.now)
            self.cache.pin(node)
            self.cache.touch(node, Access(self.now, 0, stage, 0))
            ref = self.reference.node_at(path[:matched])
            self.reference.lock(ref, 1)
            self.reference.use(ref)
        assert self.cache.protected_blocks - before == above
        self.held.append(Held(path, node, ref, matched))
        self.stages.append(stage)

    def publish(self, which: int, more: int) -> None:
        """A held request computed `more` further blocks."""
        self.now += 1
        h, stage = self.held[which], self.stages[which]
        end = min(len(h.path), h.blocks + more)
        if end <= h.blocks:
            return
        segment = self.paths.prompt_segment[stage]
        while self.paths.start[segment] >= end:
            segment = self.paths.parent[segment]
        found, matched = self.cache.find(segment, end)
        assert matched == self.reference.matched(h.path[:end])
        node = h.node
        if matched > h.blocks:
            assert found is not None
            node = self.cache.cut_at(found, matched, self.now)
            self.cache.pin(node)
            if h.node is not None:
                self.cache.unpin(h.node, self.now)
        if end > matched:
            parent = node
            node = self.cache.insert(parent, segment, stage, end, Access(self.now, 0, stage, 0))
            if parent is not None:
                self.cache.unpin(parent, self.now)
        ref = self.reference.insert(h.path[:end])
        self.reference.lock(ref, 1)
        if h.ref is not None:
            # A split may have put a node between: the lock is on whatever ends there now.
            self.reference.lock(self.reference.node_at(h.path[: h.blocks]), -1)
        h.node, h.ref, h.blocks = node, ref, end

    def finish(self, which: int) -> None:
        self.now += 1
        h = self.held.pop(which)
        self.stages.pop(which)
        if h.node is None:
            return
        self.cache.evictor.done(self.cache.state, h.node, self.now)
        self.cache.unpin(h.node, self.now)
        ref = self.reference.node_at(h.path[: h.blocks])
        self.reference.use(ref)
        self.reference.lock(ref, -1)

    def evict(self, blocks: int) -> None:
        self.now += 1
        victims: list[Path] = []
        total = 0

        def removed(node: Node, held: int, freed: int) -> None:
            nonlocal total
            assert node.evicted == 0
            total += held
            assert total == freed
            victims.append(self.content(node)[: node.end])

        self.cache.evict(blocks, self.now, removed)
        assert victims == self.reference.evict(blocks)

    def content(self, node: Node) -> Path:
        """Return the blocks of a sequence that passes through the node's segment."""
        for stage, path in enumerate(self.contents):
            at = self.paths.prompt_segment[stage]
            while at >= 0 and at != node.segment:
                at = self.paths.parent[at]
            if at >= 0:
                return path
        raise AssertionError(f"{node} belongs to no sequence")

    def check(self) -> None:
        self.cache.check_integrity()
        ours = {(self.content(n)[: n.end], n.start): n.refs > 0 for n in self.cache.nodes()}
        theirs = {(n.path(), len(n.path()) - len(n.key)): n.locks > 0 for n in self.reference.nodes()}
        assert ours == theirs
        assert self.cache.resident_blocks == sum(len(n.key) for n in self.reference.nodes())
        assert self.cache.protected_blocks == sum(len(n.key) for n in self.reference.nodes() if n.locks)
        for stage, path in enumerate(self.contents):
            found = self.cache.find(self.paths.prompt_segment[stage], len(path))[1]
            assert found == self.reference.matched(path)


sequences = st.lists(st.lists(st.integers(0, 1), min_size=1, max_size=14), min_size=2, max_size=9)
operations = st.lists(
    st.tuples(st.sampled_from(("admit", "admit", "publish", "publish", "finish", "evict")), st.integers(0, 99),
              st.integers(0, 9)),
    min_size=10, max_size=60,
)  # fmt: skip


def drive(tokens: list[list[int]], size: int, ops: list[tuple[str, int, int]]) -> Pair:
    pair = Pair(tokens, size)
    for name, which, amount in ops:
        if name == "admit":
            pair.admit(which % len(tokens), amount)
        elif name == "evict":
            pair.evict(amount)
        elif pair.held and name == "publish":
            pair.publish(which % len(pair.held), amount)
        elif pair.held:
            pair.finish(which % len(pair.held))
        pair.check()
    return pair


@settings(max_examples=150, deadline=None, derandomize=True, phases=[Phase.explicit, Phase.generate])
@given(sequences, st.integers(1, 3), operations)
def test_tree_and_victims_are_those_of_a_plain_radix_tree(
    tokens: list[list[int]], size: int, ops: list[tuple[str, int, int]]
) -> None:
    pair = drive(tokens, size, ops)
    while pair.held:
        pair.finish(0)
        pair.check()
    assert pair.cache.protected_blocks == 0
    pair.evict(10**6)
    assert pair.cache.resident_blocks == 0
    pair.check()


def test_two_that_diverge_split_the_node_and_the_older_branch_leaves_first() -> None:
    a, b = [0, 0, 0, 1], [0, 0, 1, 1]
    pair = drive(
        [a, b], 1, [("admit", 0, 9), ("publish", 0, 9), ("finish", 0, 0), ("admit", 1, 9), ("publish", 0, 9)]
    )
    assert pair.held[0].blocks == 4
    assert sorted(n.tokens for n in pair.cache.nodes()) == [2, 2, 2]
    pair.evict(1)
    assert sorted((n.start, n.end, n.refs > 0) for n in pair.cache.nodes()) == [(0, 2, True), (2, 4, True)]
