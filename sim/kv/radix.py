"""A prefix cache as a radix tree over interned segments, in blocks.

Identity was interned once (`traces.prefix`), so a lookup compares no hashes: it climbs from the request's
deepest segment to the first one with a resident block. Nodes are split where requests really diverged so far,
never where the trace says they will: a policy learns nothing of the future from node boundaries.

Only leaves can leave, and residency is closed under prefixes. A pin is counted on the deepest node alone and
passed to its parent once, on the first pin below it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from policies.api import Evictor
from policies.views import Access
from sim.kv.paths import PrefixPaths


class Node:
    """A run of resident blocks `[start, end)` on the path of `segment` (-1: private to `stage`)."""

    __slots__ = (
        "block_tokens", "children", "created_ns", "end", "evicted", "id", "identity", "last_access_ns",
        "owner", "parent", "prefetched", "refs", "segment", "stage", "start",
    )  # fmt: skip

    def __init__(
        self,
        id: int,
        parent: Node | None,
        segment: int,
        stage: int,
        start: int,
        end: int,
        now_ns: int,
        block_tokens: int,
        owner: int = -1,
    ) -> None:
        self.id = id
        self.owner = owner  # request whose private tail it is
        self.parent = parent
        self.segment = segment
        self.stage = stage
        self.start = start
        self.end = end
        self.refs = 0  # own pins, plus one for each child with refs
        self.children = 0
        self.evicted = 0  # blocks trimmed so far
        self.prefetched = False  # and not used since
        self.created_ns = now_ns
        self.last_access_ns = now_ns
        self.block_tokens = block_tokens
        self.identity = (segment << 24 | start) if segment >= 0 else -1 - (stage << 24 | start)

    @property
    def tokens(self) -> int:
        """KV tokens held."""
        return (self.end - self.start) * self.block_tokens

    @property
    def depth_tokens(self) -> int:
        """Prefix tokens down to the end of this node."""
        return self.end * self.block_tokens

    def __repr__(self) -> str:
        return f"Node({self.id}, seg={self.segment}, [{self.start},{self.end}), refs={self.refs})"


class RadixCache:
    """The tree, and the evictor's state that orders its leaves.

    resident_blocks   blocks of all nodes
    protected_blocks  of those, blocks of nodes at or above a pinned node
    changed           None, or where blocks came, left or were divided since someone emptied it: the first segment of
                      each such run
    """

    def __init__(self, paths: PrefixPaths, evictor: Evictor[Any], state: Any, *, whole_leaves: bool) -> None:
        self.paths = paths
        self.evictor = evictor
        self.state = state
        self.whole_leaves = whole_leaves
        self.resident_blocks = 0
        self.protected_blocks = 0
        self._deepest: dict[int, Node] = {}  # segment -> node that holds its deepest resident block
        self._private: dict[int, Node] = {}  # request -> its private tail
        self._next_id = 0
        self.changed: set[int] | None = None

    @property
    def evictable_blocks(self) -> int:
        """Blocks that eviction can free."""
        return self.resident_blocks - self.protected_blocks

    def find(self, segment: int, blocks: int) -> tuple[Node | None, int]:
        """Return (node, matched): the node with the last of the leading `matched` blocks. Does not mutate."""
        deepest, parent = self._deepest, self.paths.parent
        while segment >= 0:
            node = deepest.get(segment)
            if node is not None:
                matched = min(node.end, self.paths.end[segment], blocks)
                if matched > node.start:
                    return node, matched
                # The request leaves the segment above this node: climb to the node that holds the block.
                above = node.parent
                while above is not None and above.start >= matched:
                    above = above.parent
                return above, matched if above is not None else 0
            segment = parent[segment]
        return None, 0

    def private(self, request: int) -> Node | None:
        """Return the private tail of `request` (its number), if any of it is resident."""
        return self._private.get(request)

    def cut_at(self, node: Node, block: int, now_ns: int) -> Node:
        """Return the node that ends at `block` exactly, splitting `node` if it goes on. Mutates."""
        if node.end == block:
            return node
        upper = Node(
            self._next_id, node.parent, node.segment, node.stage, node.start, block, now_ns, node.block_tokens,
            node.owner,
        )  # fmt: skip
        self._next_id += 1
        paths, deepest = self.paths, self._deepest
        if self.changed is not None:
            self._note(node)
        segment = node.segment
        while segment >= 0 and paths.start[segment] >= block:
            segment = paths.parent[segment]
        upper.segment = segment
        upper.identity, node.identity = node.identity, node.identity + block - node.start
        while segment >= 0 and paths.end[segment] > node.start:
            if deepest.get(segment) is node and paths.end[segment] <= block:
                deepest[segment] = upper
            segment = paths.parent[segment]
        upper.created_ns = node.created_ns
        upper.last_access_ns = node.last_access_ns
        upper.prefetched = node.prefetched
        upper.children = 1
        upper.refs = 1 if node.refs else 0
        node.parent = upper
        node.start = block
        self.evictor.split(self.state, upper, node)
        return upper

    def touch(self, node: Node, access: Access) -> None:
        """Record a hit of the prefix that ends with `node`. Mutates."""
        node.last_access_ns = access.now_ns
        self.evictor.hit(self.state, node, access)

    def pin(self, node: Node) -> None:
        """Keep `node` and all above it resident. Mutates."""
        at: Node | None = node
        while at is not None:
            at.refs += 1
            if at.refs > 1:
                return
            self.protected_blocks += at.end - at.start
            if at.children == 0:
                self.evictor.pin(self.state, at)
            at = at.parent

    def unpin(self, node: Node, now_ns: int) -> None:
        """Undo one `pin`. Mutates."""
        at: Node | None = node
        while at is not None:
            at.refs -= 1
            if at.refs:
                return
            self.protected_blocks -= at.end - at.start
            if at.children == 0:
                self.evictor.release(self.state, at, now_ns)
            at = at.parent

    def unprotected_above(self, node: Node | None, blocks: int) -> int:
        """Return the evictable blocks that pinning the leading `blocks`, ending in `node`, would protect."""
        total = 0
        end = blocks
        while node is not None and node.refs == 0:
            total += end - node.start
            end = node.start
            node = node.parent
        return total

    def insert(
        self, parent: Node | None, segment: int, stage: int, end: int, access: Access, owner: int = -1
    ) -> Node:
        """Add blocks up to `end` below `parent`, which ends where they begin, and pin the new node. Mutates.

        segment -1 makes a private tail of the request `owner`. The caller must have pinned the parent, and keeps that
        pin.
        """
        start = parent.end if parent is not None else 0
        node = Node(
            self._next_id, parent, segment, stage, start, end, access.now_ns, self.paths.block_tokens,
            owner,
        )  # fmt: skip
        self._next_id += 1
        if segment >= 0:
            paths, deepest = self.paths, self._deepest
            at = segment
            while at >= 0 and paths.end[at] > start:
                deepest[at] = node
                at = paths.parent[at]
        else:
            self._private[owner] = node
        if self.changed is not None:
            self._note(node)
        self.resident_blocks += end - start
        self.evictor.insert(self.state, node, access)
        node.refs = 1
        self.protected_blocks += end - start
        if parent is not None:
            parent.children += 1
            parent.refs += 1
        return node

    def evict(self, blocks: int, now_ns: int, removed: Callable[[Node, int, int], None]) -> int:
        """Free at least `blocks` blocks, fewer only when nothing evictable is left; return the number freed.

        Whole leaves leave in the radix semantics, so more than asked may go; blocks leave from the tail of
        a leaf, and no more than asked, in the block-hash semantics. `removed(node, blocks, freed)` is
        called when the last block of a node has left, after `freed` blocks of this call. Mutates.
        """
        freed = 0
        evictor, state = self.evictor, self.state
        while freed < blocks:
            node = evictor.next_victim(state, now_ns)
            if node is None:
                break
            assert isinstance(node, Node)
            if node.refs or node.children:
                raise RuntimeError(f"evictor {type(evictor).__name__} named {node}, which is not evictable")
            size = node.end - node.start
            short = blocks - freed
            if not self.whole_leaves and size > short:
                node.end -= short
                node.evicted += short
                self.resident_blocks -= short
                freed += short
                self._retract(node)
                evictor.shrink(state, node)
                break
            freed += size
            self._remove(node, now_ns)
            removed(node, size + node.evicted, freed)
        return freed

    def _retract(self, node: Node) -> None:
        """Forget the segments wholly beyond the new end of `node`; move it up to the segment it ends in."""
        if self.changed is not None:
            self._note(node)
        segment = node.segment
        paths = self.paths
        while segment >= 0 and paths.start[segment] >= node.end:
            del self._deepest[segment]
            segment = paths.parent[segment]
        node.segment = segment

    def _remove(self, node: Node, now_ns: int) -> None:
        paths, deepest, parent = self.paths, self._deepest, node.parent
        if self.changed is not None:
            self._note(node)
        segment = node.segment
        if segment < 0 and self._private.get(node.owner) is node:
            if parent is not None and parent.segment < 0:
                self._private[node.owner] = parent
            else:
                del self._private[node.owner]
        while segment >= 0 and paths.end[segment] > node.start:
            if paths.start[segment] < node.start and parent is not None:
                deepest[segment] = parent
            else:
                deepest.pop(segment, None)
            segment = paths.parent[segment]
        self.resident_blocks -= node.end - node.start
        self.evictor.remove(self.state, node)
        if parent is not None:
            parent.children -= 1
            if parent.children == 0 and parent.refs == 0:
                self.evictor.release(self.state, parent, now_ns)

    def _note(self, node: Node) -> None:
        """Mark the segment that the node's first block is in; private nodes are on no path."""
        assert self.changed is not None
        segment, start, parent = node.segment, self.paths.start, self.paths.parent
        if segment >= 0:
            while start[segment] > node.start:
                segment = parent[segment]
            self.changed.add(segment)

    def nodes(self) -> list[Node]:
        """Return all resident nodes, for checks. Does not mutate."""
        seen: dict[int, Node] = {}
        for node in [*self._deepest.values(), *self._private.values()]:
            at: Node | None = node
            while at is not None and at.id not in seen:
                seen[at.id] = at
                at = at.parent
        return list(seen.values())

    def check_integrity(self) -> None:
        """Raise AssertionError when the tree contradicts itself. Does not mutate."""
        nodes = self.nodes()
        children: dict[int, int] = {}
        referenced: dict[int, int] = {}
        for node in nodes:
            assert node.end > node.start >= 0, node
            if node.parent is not None:
                assert node.parent.end == node.start, (node, node.parent)
                children[node.parent.id] = children.get(node.parent.id, 0) + 1
                if node.refs:
                    referenced[node.parent.id] = referenced.get(node.parent.id, 0) + 1
            else:
                assert node.start == 0, node
        for node in nodes:
            assert node.children == children.get(node.id, 0), node
            assert node.refs >= referenced.get(node.id, 0), node
        assert self.resident_blocks == sum(n.end - n.start for n in nodes)
        assert self.protected_blocks == sum(n.end - n.start for n in nodes if n.refs)
        for segment, node in self._deepest.items():
            assert node.start < self.paths.end[segment], (segment, node)
            assert node.end > self.paths.start[segment], (segment, node)
