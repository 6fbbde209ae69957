"""What the host tier does with a pool beyond what the scheduler does: take blocks, fill them, make them known."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

from live.vllm.readers import Path


def _same(content: bytes) -> bytes:
    return content


@dataclass(frozen=True)
class Codec:
    """How a pool names contents: a request's hash of a block (`hash`), and the name in the pool (`key`)."""

    key: Callable[[Any], bytes] = _same
    hash: Callable[[bytes], Any] = _same


class Hands:
    """Hands in one pool (`live.vllm.prefetch.PoolHands`). `stock`: the pool's own methods, where they were wrapped."""

    def __init__(
        self, pool: Any, stock: dict[str, Callable[..., Any]], codec: Codec, block_tokens: int
    ) -> None:
        self._pool = pool
        self._stock = stock
        self._codec = codec
        self._block_tokens = block_tokens

    def block_of(self, content: bytes) -> int | None:
        """Return the number of a block that holds a content. Does not mutate."""
        block = self._pool.cached_block_hash_to_block.get_one_block(content)
        return None if block is None else int(block.block_id)

    def take(self) -> Any:
        """Return a block in the order of reuse, held. Mutates the pool."""
        return self._pool.get_new_blocks(1)[0]

    def hold(self, content: bytes) -> Any:
        """Return a block with a content, held; this is no hit. Mutates the pool."""
        block = self._pool.cached_block_hash_to_block.get_one_block(content)
        self._stock["touch"]([block])
        return block

    def know(self, block: Any, path: Path) -> None:
        """Make a held block known as the last content of `path`. Mutates the pool."""
        above = len(path) - 1
        request = SimpleNamespace(block_hashes=[*[None] * above, self._codec.hash(path[-1])])
        self._stock["cache_full_blocks"](
            request, [*[None] * above, block], above, above + 1, self._block_tokens, 0
        )

    def give(self, blocks: list[Any]) -> None:
        """Let go of blocks. Mutates the pool."""
        if blocks:
            self._stock["free_blocks"](blocks)
