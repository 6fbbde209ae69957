"""The pool's free queue in a policy's order."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any

from live.vllm.blocks import Block, BlockTree


class PolicyQueue:
    """Has the interface of vLLM's `FreeKVCacheBlockQueue`; the head is whatever the policy names.

    The engine's own queue stays inside and is kept complete, in its own order: it takes over at any moment, without
    a copy, when the policy is dropped or this host finds itself in error (`host_failed`). It is also what code that
    walks the queue in eviction order sees; a policy can only name its next victim. Every method mutates but
    `get_all_free_blocks` and `iter_blocks_after`.
    """

    def __init__(
        self,
        stock: Any,
        tree: BlockTree,
        now_ns: Callable[[], int],
        host_failed: Callable[[str, Exception], None],
    ) -> None:
        self.stock = stock
        self.off = False
        self._tree = tree
        self._now_ns = now_ns
        self._host_failed = host_failed
        for block in reversed(stock.get_all_free_blocks()):
            tree.blank[block.block_id] = block

    @property
    def num_free_blocks(self) -> int:
        """Blocks in the queue."""
        return int(self.stock.num_free_blocks)

    def popleft(self) -> Block:
        """Return the next block to reuse. Raises ValueError when there is none."""
        block = self._choose()
        if block is None:
            block = self.stock.popleft()
        else:
            self.stock.remove(block)
        assert block is not None
        self._tell("handed_out", [block])
        return block

    def popleft_n(self, n: int) -> list[Block]:
        """Return the next `n` blocks to reuse; the caller knows that there are as many."""
        assert self.stock.num_free_blocks >= n
        return [self.popleft() for _ in range(n)]

    def remove(self, block: Block) -> None:
        """Take out a block that is used again with its content."""
        self.stock.remove(block)
        self._tell("taken", [block])

    def append(self, block: Block) -> None:
        """Put in a block, last in the engine's order."""
        self.append_n([block])

    def append_n(self, blocks: list[Block]) -> None:
        """Put in blocks, last in the engine's order."""
        self.stock.append_n(blocks)
        self._tell("freed", blocks)

    def prepend_n(self, blocks: list[Block]) -> None:
        """Put in blocks, first in the engine's order."""
        self.stock.prepend_n(blocks)
        self._tell("freed", reversed(blocks))

    def get_all_free_blocks(self) -> list[Block]:
        """Return all free blocks, in the engine's order."""
        return list(self.stock.get_all_free_blocks())

    def iter_blocks_after(self, cursor: Block | None) -> Iterator[Block]:
        """Iterate over free blocks after `cursor`, in the engine's order."""
        return iter(self.stock.iter_blocks_after(cursor))

    def _choose(self) -> Block | None:
        if self.off:
            return None
        try:
            return self._tree.choose(self._now_ns())
        except Exception as e:
            self._host_failed("choose", e)
            return None

    def _tell(self, event: str, blocks: Iterable[Block]) -> None:
        if self.off:
            return
        now_ns = self._now_ns()
        try:
            tell = getattr(self._tree, event)
            for block in blocks:
                tell(block, now_ns)
        except Exception as e:
            self._host_failed(event, e)
