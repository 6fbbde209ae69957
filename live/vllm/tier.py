"""Host memory behind the pool: which contents it holds, in an evictor's order, and which copies that takes.

Contents are the same nodes as the pool's, one a block, in a tree of their own: what the host holds outlives what the
pool holds, and what is stored has all above it stored too.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from live.vllm.blocks import BlockLog, BlockTree, Node
from live.vllm.copies import Copies, Load, Store
from live.vllm.guard import PolicyGuard
from policies.views import Access


@dataclass(eq=False)
class Slot:
    """Room for one block; stands for a `Block` in the tree. `holds`: how often it is kept at the moment."""

    block_id: int
    block_hash: bytes | None = None
    holds: int = 0


class HostTier:
    """The index of the host's slots. Every method but `matched` mutates.

    capacity   slots
    block_of   block of the pool that holds a content now, None when none does
    """

    def __init__(
        self,
        capacity: int,
        guard: PolicyGuard,
        log: BlockLog,
        block_tokens: int,
        block_of: Callable[[bytes], int | None],
    ) -> None:
        self.capacity = capacity
        self.tree = BlockTree(guard, log, block_tokens)
        self._block_of = block_of
        self._slot: dict[bytes, Slot] = {}
        self._fresh: dict[int, Store] = {}  # by slot: computed in the step that is being scheduled
        self._due: dict[int, Store] = {}  # computed by now
        self._leaving: dict[int, Store] = {}  # to be copied before this step overwrites them
        self._loads: list[Load] = []
        self._pinned: list[Slot] = []
        for i in reversed(range(capacity)):
            self.tree.blank[i] = Slot(i)

    def matched(self, keys: Sequence[bytes]) -> int:
        """Return how many of the leading contents the host holds."""
        n = 0
        while n < len(keys) and keys[n] in self._slot:
            n += 1
        return n

    def store(self, keys: Sequence[bytes], access: Access, *, leaving: bool) -> None:
        """Keep a path, root first; nothing happens when its missing part finds no room.

        leaving: the pool gives up the last content now, so that the copy must come before this step's writes;
        otherwise it comes after them, since a content may be known before it is computed.
        """
        have = self.matched(keys)
        missing = keys[have:]
        blocks = [self._block_of(key) for key in missing]
        if not missing or len(missing) > self.capacity or None in blocks:
            return
        now_ns = access.now_ns
        above = self._slot[keys[have - 1]] if have else None
        if above is not None:
            self._hold(above, now_ns)
        taken: list[Slot] = []
        while len(taken) < len(missing) and (slot := self._free_slot(now_ns)) is not None:
            taken.append(slot)
        if len(taken) == len(missing):
            queue = self._leaving if leaving else self._fresh
            for slot, key, block in zip(taken, missing, blocks, strict=True):
                assert block is not None
                slot.block_hash = key
                self._slot[key] = slot
                queue[slot.block_id] = Store(block, slot.block_id, content_id(key))
            path = taken if above is None else [above, *taken]
            self.tree.insert(path, len(path) - len(taken), access)  # type: ignore[arg-type]
            for slot in reversed(taken):
                self.tree.freed(slot, now_ns)
        else:
            self.tree.blank.update((slot.block_id, slot) for slot in reversed(taken))
        if above is not None:
            self._let_go(above, now_ns)

    def pin(self, keys: Sequence[bytes], now_ns: int) -> None:
        """Keep a path that the host holds until the step's copies are taken."""
        slot = self._slot[keys[-1]]
        if slot not in self._pinned:
            self._hold(slot, now_ns)
            self._pinned.append(slot)

    def load(
        self, keys: Sequence[bytes], start: int, blocks: Sequence[int], access: Access, requested: bool
    ) -> None:
        """Copy the contents from `start` on, which `pin` keeps, to blocks; a request's load is a use."""
        for key, block in zip(keys[start:], blocks, strict=True):
            self._loads.append(Load(self._slot[key].block_id, block, content_id(key), requested))
        if requested:
            self.tree.hit([self._slot[keys[-1]]], access)

    def lacking(self, blocks: Sequence[int]) -> None:
        """Say that requests wait for blocks which nothing can be loaded to: they are computed again."""
        self._loads += [Load(-1, block, -1, True) for block in blocks]

    def copies(self, now_ns: int) -> Copies:
        """Return what this step is to copy, and unpin."""
        out = Copies([*self._due.values(), *self._leaving.values()], self._loads)
        self._due, self._fresh, self._leaving, self._loads = self._fresh, {}, {}, []
        for slot in self._pinned:
            self._let_go(slot, now_ns)
        self._pinned = []
        return out

    def clear(self, now_ns: int) -> None:
        """Forget everything; between steps, when nothing is pinned."""
        self.tree.clear(now_ns)
        for slot in self._slot.values():
            slot.block_hash = None
        self._slot.clear()
        self._due.clear()
        self._fresh.clear()
        self._leaving.clear()

    def _hold(self, slot: Slot, now_ns: int) -> None:
        if not slot.holds:
            self.tree.taken(slot, now_ns)
        slot.holds += 1

    def _let_go(self, slot: Slot, now_ns: int) -> None:
        slot.holds -= 1
        if not slot.holds:
            self.tree.freed(slot, now_ns)

    def _free_slot(self, now_ns: int) -> Slot | None:
        tree = self.tree
        if not tree.blank and not tree.evictable:
            return None
        block = tree.choose(now_ns)
        if block is None:  # the policy was dropped: the oldest content that may leave
            block = next(node for node in tree.nodes.values() if node.evictable).free[0]
        assert isinstance(block, Slot)
        key = block.block_hash
        tree.handed_out(block, now_ns)
        if key is not None:
            block.block_hash = None
            del self._slot[key]
            for queue in (self._due, self._fresh, self._leaving):
                queue.pop(block.block_id, None)
        return block


def path_of(node: Node) -> list[bytes]:
    """Return the contents from the root down to a node."""
    out: list[bytes] = []
    at: Node | None = node
    while at is not None:
        out.append(at.block_hash)
        at = at.parent
    return out[::-1]


def content_id(key: bytes) -> int:
    """Return a number of a content that fits 63 bits."""
    return int.from_bytes(key[:8], "big") >> 1
