"""The pool's cached blocks as the nodes that policies see: one node a block content, a tree by prefix.

A content may lie in several blocks (vLLM keeps duplicates). The node is held while any copy is; while none is, one
free copy stands for it, and every other free copy is spare: reused before the policy is asked.
"""

from __future__ import annotations

from typing import Any, Protocol

from live.vllm.guard import PolicyGuard
from policies.views import Access


class Block(Protocol):
    """What is read of vLLM's `KVCacheBlock`."""

    block_id: int
    block_hash: bytes | None


class Node:
    """A cached content of one block (see `policies.views.CacheNode`).

    held        copies that running requests hold
    free        copies in the free queue; the first stands for the node while none is held
    children    contents that follow this one and are resident
    """

    __slots__ = (
        "block_hash", "children", "created_ns", "depth_tokens", "evictable", "free", "held", "id", "identity",
        "last_access_ns", "parent", "tokens",
    )  # fmt: skip

    def __init__(self, id: int, block_hash: bytes, parent: Node | None, tokens: int, now_ns: int) -> None:
        self.id = id
        self.block_hash = block_hash
        self.identity = int.from_bytes(block_hash[:8], "big")
        self.parent = parent
        self.tokens = tokens
        self.depth_tokens: int = tokens + (parent.depth_tokens if parent is not None else 0)
        self.created_ns = now_ns
        self.last_access_ns = now_ns
        self.children = 0
        self.held = 1
        self.free: list[Block] = []
        self.evictable = False


class BlockLog(Protocol):
    """Who writes cache events down."""

    def inserted(self, node: Node, blocks: int, access: Access) -> None:
        """`blocks` consecutive new nodes, the deepest of them `node`."""

    def hit(self, node: Node, blocks: int, access: Access) -> None:
        """A request found its leading `blocks` blocks, the last of them `node`."""

    def evicted(self, node: Node, now_ns: int) -> None:
        """The content of `node` left."""


class BlockTree:
    """Nodes by content, and the events their changes mean to a policy. Every method mutates.

    blank        free blocks that hold nothing, or a spare copy: reused first, the newest first
    duplicates   contents that were computed again while resident
    evictable    nodes that a policy may name
    log          who writes cache events down
    """

    def __init__(self, guard: PolicyGuard, log: BlockLog, block_tokens: int) -> None:
        self.nodes: dict[bytes, Node] = {}
        self.blank: dict[int, Block] = {}
        self.duplicates = 0
        self.evictable = 0
        self._guard = guard
        self.log = log
        self.block_tokens = block_tokens
        self._next_id = 0

    # -- what the pool does ---------------------------------------------------------------------------------

    def freed(self, block: Block, now_ns: int) -> None:
        """A block's last user let go of it."""
        node = self._node(block)
        if node is None:
            self.blank[block.block_id] = block
            return
        node.held -= 1
        node.free.append(block)
        self._settle(node, now_ns)

    def taken(self, block: Block, now_ns: int) -> None:
        """A free block is used again, with its content."""
        node = self._node(block)
        if node is None:
            del self.blank[block.block_id]
            return
        self.blank.pop(block.block_id, None)
        node.free.remove(block)
        node.held += 1
        self._settle(node, now_ns)

    def handed_out(self, block: Block, now_ns: int) -> None:
        """A free block is used for something else: its content leaves, unless there is another copy."""
        self.blank.pop(block.block_id, None)
        node = self._node(block)
        if node is None:
            return
        node.free.remove(block)
        if not node.held and not node.free:
            self._drop(node, now_ns)
        else:
            self._settle(node, now_ns)

    def insert(self, blocks: list[Block], first: int, access: Access) -> None:
        """`blocks[first:]` of a request's blocks have just become full and known."""
        parent = self._node(blocks[first - 1]) if first else None
        made: Node | None = None
        count = 0
        for block in blocks[first:]:
            key = block.block_hash
            if key is None:
                break
            node = self.nodes.get(key)
            if node is None:
                node = made = self._make(key, parent, access)
                count += 1
            else:
                self.duplicates += 1
                node.held += 1
                self._settle(node, access.now_ns)
            parent = node
        if made is not None:
            self.log.inserted(made, count, access)

    def hit(self, blocks: list[Block], access: Access) -> None:
        """A request reuses `blocks`, which it holds by now."""
        node = self._node(blocks[-1])
        if node is not None:
            node.last_access_ns = access.now_ns
            self._guard.call("hit", node, access)
            self.log.hit(node, len(blocks), access)

    def done(self, deepest_first: list[Block], now_ns: int) -> None:
        """A request that holds these blocks is about to let go of them."""
        for block in deepest_first:
            node = self._node(block)
            if node is not None:
                self._guard.call("done", node, now_ns)
                return

    def clear(self, now_ns: int) -> None:
        """Forget every content, leaves first; no request holds any."""
        for node in sorted(self.nodes.values(), key=lambda n: -n.depth_tokens):
            self.blank.update((block.block_id, block) for block in node.free)
            node.free.clear()
            self._drop(node, now_ns)

    # -- what the policy decides ----------------------------------------------------------------------------

    def choose(self, now_ns: int) -> Block | None:
        """Return the free block to reuse next; None when the policy is dropped and the engine must choose."""
        if self.blank:
            return next(reversed(self.blank.values()))
        node = self._guard.call("next_victim", now_ns)
        if not self._guard.alive:
            return None
        if isinstance(node, Node) and node.evictable and self.nodes.get(node.block_hash) is node:
            return node.free[0]
        self._guard.refuse(f"next_victim answered {_short(node)}, which is no evictable node of this host")
        return None

    def check_integrity(self) -> None:
        """Raise AssertionError when the tree contradicts itself. Does not mutate."""
        children: dict[int, int] = {}
        for node in self.nodes.values():
            if node.parent is not None:
                assert self.nodes.get(node.parent.block_hash) is node.parent, "a child outlived its parent"
                children[node.parent.id] = children.get(node.parent.id, 0) + 1
        for node in self.nodes.values():
            assert node.children == children.get(node.id, 0)
            assert node.held or node.free
            assert node.evictable == (not node.held and not node.children)
            spare = node.free if node.held else node.free[1:]
            assert all(block.block_id in self.blank for block in spare)
            assert node.held or node.free[0].block_id not in self.blank
        assert self.evictable == sum(node.evictable for node in self.nodes.values())

    def _node(self, block: Block) -> Node | None:
        key = block.block_hash
        return self.nodes.get(key) if key is not None else None

    def _make(self, key: bytes, parent: Node | None, access: Access) -> Node:
        node = Node(self._next_id, key, parent, self.block_tokens, access.now_ns)
        self._next_id += 1
        self.nodes[key] = node
        if parent is not None:
            parent.children += 1
            self._pin_if(parent)
        self._guard.call("insert", node, access)
        return node

    def _settle(self, node: Node, now_ns: int) -> None:
        """Spare copies to the blank blocks, the node's own copy out of them; evictable or not."""
        if node.held:
            self._pin_if(node)
            for block in node.free:
                self.blank[block.block_id] = block
            return
        self.blank.pop(node.free[0].block_id, None)
        for block in node.free[1:]:
            self.blank[block.block_id] = block
        self._release_if(node, now_ns)

    def _pin_if(self, node: Node) -> None:
        if node.evictable:
            node.evictable = False
            self.evictable -= 1
            self._guard.call("pin", node)

    def _release_if(self, node: Node, now_ns: int) -> None:
        if not node.evictable and not node.children and not node.held:
            node.evictable = True
            self.evictable += 1
            self._guard.call("release", node, now_ns)

    def _drop(self, node: Node, now_ns: int) -> None:
        del self.nodes[node.block_hash]
        self.evictable -= node.evictable
        node.evictable = False
        self._guard.call("remove", node)
        self.log.evicted(node, now_ns)
        parent = node.parent
        if parent is not None:
            parent.children -= 1
            self._release_if(parent, now_ns)


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:57]}..."
