"""A block pool that behaves as vLLM's does, in few lines: a queue, a map of contents, reference counts."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

from live.vllm.host import EvictionHost
from live.vllm.settings import EvictionSettings
from policies.laws import toy_host
from policies.views import HostInfo

SIZE = 16


@dataclass(eq=False)
class FakeBlock:
    block_id: int
    block_hash: bytes | None = None
    ref_cnt: int = 0


class FakeQueue:
    def __init__(self, blocks: Sequence[FakeBlock]) -> None:
        self.order = list(blocks)

    @property
    def num_free_blocks(self) -> int:
        return len(self.order)

    def popleft(self) -> FakeBlock:
        return self.order.pop(0)

    def popleft_n(self, n: int) -> list[FakeBlock]:
        return [self.order.pop(0) for _ in range(n)]

    def remove(self, block: FakeBlock) -> None:
        self.order.remove(block)

    def append(self, block: FakeBlock) -> None:
        self.order.append(block)

    def append_n(self, blocks: list[FakeBlock]) -> None:
        self.order += blocks

    def prepend_n(self, blocks: list[FakeBlock]) -> None:
        self.order[:0] = blocks

    def get_all_free_blocks(self) -> list[FakeBlock]:
        return list(self.order)

    def iter_blocks_after(self, cursor: FakeBlock | None) -> Iterable[FakeBlock]:
        return self.order[0 if cursor is None else self.order.index(cursor) + 1 :]


class FakePool:
    """`victims`: hashes of contents in the order in which they were handed out for something else."""

    enable_caching = True
    hash_block_size = SIZE

    def __init__(self, blocks: int) -> None:
        self.num_gpu_blocks = blocks + 1
        self.blocks = [FakeBlock(i) for i in range(1, blocks + 1)]
        self.free_block_queue: Any = FakeQueue(self.blocks)
        self.cached: dict[bytes, dict[int, FakeBlock]] = {}
        self.victims: list[bytes] = []

    def get_new_blocks(self, n: int) -> list[FakeBlock]:
        out = self.free_block_queue.popleft_n(n)
        for block in out:
            assert block.ref_cnt == 0
            block.ref_cnt = 1
            if block.block_hash is not None:
                self.victims.append(block.block_hash)
                self._forget(block)
        return list(out)

    def touch(self, blocks: Sequence[FakeBlock]) -> None:
        for block in blocks:
            if block.ref_cnt == 0:
                self.free_block_queue.remove(block)
            block.ref_cnt += 1

    @property
    def cached_block_hash_to_block(self) -> FakePool:
        return self

    def get_one_block(self, key: bytes) -> FakeBlock | None:
        return next(iter(self.cached.get(key, {}).values()), None)

    def cache_full_blocks(
        self, request: Any, blocks: list[Any], num_cached_blocks: int, num_full_blocks: int, *_: int
    ) -> None:
        for i in range(num_cached_blocks, num_full_blocks):
            blocks[i].block_hash = request.block_hashes[i]
            self.cached.setdefault(request.block_hashes[i], {})[blocks[i].block_id] = blocks[i]

    def free_blocks(self, ordered_blocks: Iterable[FakeBlock]) -> None:
        first, last = [], []
        for block in ordered_blocks:
            block.ref_cnt -= 1
            if block.ref_cnt == 0:
                (first if block.block_hash is None else last).append(block)
        self.free_block_queue.prepend_n(first)
        self.free_block_queue.append_n(last)

    def reset_prefix_cache(self) -> bool:
        if self.free_block_queue.num_free_blocks != len(self.blocks):
            return False
        self.cached.clear()
        for block in self.blocks:
            block.block_hash = None
        return True

    def evict_blocks(self, block_ids: set[int]) -> None:
        for block in self.blocks:
            if block.block_id in block_ids and block.block_hash is not None:
                self._forget(block)

    def _forget(self, block: FakeBlock) -> None:
        assert block.block_hash is not None
        copies = self.cached[block.block_hash]
        del copies[block.block_id]
        if not copies:
            del self.cached[block.block_hash]
        block.block_hash = None


Path = tuple[int, ...]


def hashed(path: Path) -> bytes:
    return bytes(path).ljust(8, b"\xff") + b"h"


@dataclass
class FakeEngine:
    """Begins and ends requests on a pool, as a scheduler does, with or without a host."""

    pool: Any
    host: EvictionHost | None = None
    requests: dict[int, tuple[Any, list[Any]]] = field(default_factory=dict)
    number: int = 0
    hits: int = 0

    def begin(self, path: Path, extra: int = 1, blind: bool = False, **sender: Any) -> int | None:
        """Hold the blocks of `path` and `extra` unfilled ones; None when they do not fit. blind: find no hits."""
        hit = []
        for i in range(0 if blind else len(path)):
            copies = self.pool.cached.get(hashed(path[: i + 1]))
            if copies is None:
                break
            hit.append(next(iter(copies.values())))
        need = len(path) + extra - len(hit)
        queue = self.pool.free_block_queue
        if need > queue.num_free_blocks - sum(b.ref_cnt == 0 for b in hit):
            return None
        self.number += 1
        request = SimpleNamespace(
            request_id=str(self.number),
            sampling_params=SimpleNamespace(extra_args=sender),
            num_prompt_tokens=len(path) * SIZE,
            num_tokens=len(path) * SIZE,
            num_output_tokens=1,
            num_preemptions=0,
            status=SimpleNamespace(name="FINISHED_LENGTH_CAPPED"),
            block_hashes=[hashed(path[: i + 1]) for i in range(len(path))],
        )
        if self.host is not None:
            self.host.arrived(request)
            self.host.offered(request, len(hit) * SIZE)
        self.hits += len(hit)
        self.pool.touch(hit)
        blocks = hit + self.pool.get_new_blocks(need)
        self.pool.cache_full_blocks(request, blocks, len(hit), len(path))
        if self.host is not None:
            self.host.admitted(request)
            self.host.step({request.request_id: len(path) * SIZE}, lambda _: 0)
        self.requests[self.number] = (request, blocks)
        return self.number

    def end(self, number: int) -> None:
        request, blocks = self.requests.pop(number)
        if self.host is not None:
            self.host.ended(request)
        self.pool.free_blocks(reversed(blocks))

    def serve(self, path: Path, **sender: Any) -> None:
        number = self.begin(path, **sender)
        assert number is not None, "the pool is too small"
        self.end(number)


def info(blocks: int, agents: tuple[str, ...] = ()) -> HostInfo:
    toy = toy_host()
    return HostInfo(profile=toy.profile, block_tokens=SIZE, capacity_tokens=blocks * SIZE, agents=agents)


def hosted(blocks: int, settings: EvictionSettings) -> FakeEngine:
    """An engine whose pool of `blocks` is in the hands of a host."""
    pool, host = FakePool(blocks), EvictionHost(settings)
    host.bind(pool, info(blocks, settings.agents))
    return FakeEngine(pool, host)
