"""vLLM's own block pool, without an engine: requests that begin, overlap and end, with the host and without."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from vllm.v1.core.block_pool import BlockPool
from vllm.v1.core.kv_cache_utils import BlockHash

from live.vllm.host import EvictionHost
from live.vllm.settings import EvictionSettings
from policies.registry import names
from policies.views import HostInfo
from traces import draws

SIZE, BLOCKS = 32, 30
ONLINE = [n for n in names("evictors") if n != "belady_leaf"]


def hashed(path: tuple[int, ...]) -> BlockHash:
    return BlockHash(b"".join(draws.bits(1, "pool", part, *path).to_bytes(8, "big") for part in range(4)))


def play(evictor: str, seed: int, *, overlap: bool) -> tuple[list[bytes], int, EvictionHost | None]:
    """Return (victims, hit blocks, host) of 150 steps; no evictor: the pool as it is."""
    pool: Any = BlockPool(BLOCKS + 1, True, SIZE)
    host: EvictionHost | None = None
    if evictor:
        host = EvictionHost(EvictionSettings(evictor=evictor, agents=("a",), call_ms_max=0))
        profile = host.settings.load_profile(2048, 1)
        host.bind(
            pool, HostInfo(profile=profile, block_tokens=SIZE, capacity_tokens=BLOCKS * SIZE, agents=("a",))
        )
    victims: list[bytes] = []
    evicted = pool._maybe_evict_cached_block

    def witness(block: Any) -> bool:
        if block.block_hash is not None:
            victims.append(bytes(block.block_hash))
        return bool(evicted(block))

    pool._maybe_evict_cached_block = witness
    running: list[tuple[Any, list[Any]]] = []
    hits = 0

    def end(at: int) -> None:
        request, blocks = running.pop(at)
        if host is not None:
            host.ended(request)
        pool.free_blocks(reversed(blocks))

    for step in range(150):
        if running and (len(running) >= 4 or draws.uniform(seed, "end", step) < (0.5 if overlap else 1)):
            end(draws.bits(seed, "who", step) % len(running))
            continue
        depth = 1 + draws.bits(seed, "depth", step) % 5
        path = tuple(draws.bits(seed, "path", step, i) % (3 if i < 2 else 2) for i in range(depth))
        hashes = [hashed(path[: i + 1]) for i in range(depth)]
        request = SimpleNamespace(
            request_id=str(step), block_hashes=hashes, num_prompt_tokens=depth * SIZE, num_tokens=depth * SIZE,
            num_output_tokens=1, num_preemptions=0, status=SimpleNamespace(name="FINISHED_STOPPED"),
            sampling_params=SimpleNamespace(extra_args={"wf_id": step % 3, "agent": "a", "stage": step}),
        )  # fmt: skip
        hit: list[Any] = []
        for key in hashes:
            found = pool.get_cached_block(key, [0])
            if not found:
                break
            hit += found
        need = depth + 1 - len(hit)
        if need > pool.get_num_free_blocks() - sum(b.ref_cnt == 0 for b in hit):
            continue
        if host is not None:
            host.arrived(request)
            host.offered(request, len(hit) * SIZE)
        hits += len(hit)
        pool.touch(hit)
        blocks = hit + pool.get_new_blocks(need)
        pool.cache_full_blocks(request, blocks, len(hit), depth, SIZE, 0)
        running.append((request, blocks))
        if host is not None:
            host.admitted(request)
            host.tree.check_integrity()
    while running:
        end(0)
    return victims, hits, host


@pytest.mark.parametrize("overlap", [False, True])
def test_lru_leaves_the_order_of_the_free_queue(overlap: bool) -> None:
    total = 0
    for seed in range(60):
        stock, stock_hits, _ = play("", seed, overlap=overlap)
        ours, hits, host = play("lru", seed, overlap=overlap)
        assert host is not None
        assert not host.failed
        assert (ours, hits) == (stock, stock_hits), seed
        total += len(stock)
    assert total > 1000


@pytest.mark.parametrize("evictor", ONLINE)
def test_every_online_evictor_serves_the_pool(evictor: str) -> None:
    for seed in range(10):
        victims, _, host = play(evictor, seed, overlap=True)
        assert host is not None
        assert host.evictor.alive, host.evictor.dropped
        assert not host.failed
        assert victims


def test_a_reset_of_the_pool_empties_the_tree() -> None:
    _, _, host = play("lifecycle", 0, overlap=True)
    assert host is not None
    assert host.tree.nodes
    assert host._pool.reset_prefix_cache()
    assert not host.tree.nodes
    host.tree.check_integrity()
    assert not host.failed
