"""An engine on the fake pool whose blocks hold something, so that a copy that comes too late or goes astray shows."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from types import SimpleNamespace
from typing import Any

import torch
from fake_pool import SIZE, FakePool, Path, hashed, info

from live.vllm.copies import LoadReport
from live.vllm.host import EvictionHost
from live.vllm.memory import HostMemory
from live.vllm.settings import EvictionSettings
from policies.views import BatchShape


def value_of(content: bytes) -> int:
    return int.from_bytes(content, "big") % 30_011 + 1


@dataclass
class TieredEngine:
    """Steps as vLLM's: schedule, copies to the host, garbage in new blocks, copies from it, the forward pass, ends.

    `requested_loads_first`: what a request waits for is loaded before the forward pass, the rest after it
    """

    blocks: int
    settings: EvictionSettings
    pool: Any = None
    host: Any = None
    requests: dict[str, Any] = field(default_factory=dict)
    number: int = 0
    loaded: int = 0
    recomputed: int = 0

    def __post_init__(self) -> None:
        self.pool, self.host = FakePool(self.blocks), EvictionHost(self.settings)
        given = replace(
            info(self.blocks, self.settings.agents), host_capacity_tokens=self.settings.host_blocks
        )
        self.host.bind(self.pool, given)
        self.device = torch.zeros((self.blocks + 1, 2), dtype=torch.int32)
        self.memory = HostMemory({"layer": self.device}, self.settings.host_blocks)
        self._new: list[int] = []
        stock = self.pool.get_new_blocks

        def watched(n: int) -> Any:
            out = stock(n)
            self._new += [b.block_id for b in out]
            return out

        self.pool.get_new_blocks = watched

    def begin(self, path: Path, **sender: Any) -> str | None:
        """Schedule a request that computes `path` and decodes; None when it does not fit."""
        hashes = [hashed(path[: i + 1]) for i in range(len(path))]
        self.number += 1
        request = SimpleNamespace(
            request_id=str(self.number), sampling_params=SimpleNamespace(extra_args=sender),
            num_prompt_tokens=len(path) * SIZE + 1, num_tokens=len(path) * SIZE + 1, num_output_tokens=1,
            num_preemptions=0, status=SimpleNamespace(name="FINISHED_LENGTH_CAPPED"), block_hashes=hashes,
        )  # fmt: skip
        hit = []
        for key in hashes:
            block = self.pool.get_one_block(key)
            if block is None:
                break
            hit.append(block)
        self.host.arrived(request)
        external = self.host.offered(request, len(hit) * SIZE) // SIZE
        need = len(path) + 1 - len(hit)
        if need > self.pool.free_block_queue.num_free_blocks - sum(b.ref_cnt == 0 for b in hit):
            return None
        self.pool.touch(hit)
        held = hit + self.pool.get_new_blocks(need)
        self.pool.cache_full_blocks(request, held, len(hit), len(path))
        self.host.admitted(request, [b.block_id for b in held], external * SIZE)
        self.loaded += external
        self.requests[request.request_id] = SimpleNamespace(
            request=request, held=held, external=range(len(hit), len(hit) + external),
            compute=list(range(len(hit) + external, len(path))),
        )  # fmt: skip
        return request.request_id

    def step(self) -> None:
        """Run what was scheduled."""
        decodes = not any(r.compute or r.external for r in self.requests.values())
        shape = BatchShape(len(self.requests), 1, len(self.requests), 0, SIZE) if decodes else None
        tokens = {n: len(r.compute) * SIZE + 1 for n, r in self.requests.items()}
        copies = self.host.step(tokens, lambda _: 1, shape)
        self.memory.store(copies)
        for block in self._new:
            self.device[block] = -1
        self._new.clear()
        waits = any(load.requested for load in copies.loads)
        if waits:
            self.memory.load(copies)
        for r in self.requests.values():
            for i in r.compute:
                self.device[r.held[i].block_id] = value_of(r.request.block_hashes[i])
            r.compute = []
        if not waits:
            self.memory.load(copies)
        failed, report = self.memory.take_failed(), self.memory.take_report()
        for r in self.requests.values():
            bad = [i for i in r.external if r.held[i].block_id in failed]
            if bad:  # computed again from the first of them on, in the next step
                r.compute = list(range(bad[0], len(r.request.block_hashes)))
                self.recomputed += 1
            r.external = range(0)
        if report is not None:
            self.host.landed(report)
        self.check()

    def end(self, request: str) -> None:
        """End a request."""
        r = self.requests.pop(request)
        self.host.ended(r.request)
        self.pool.free_blocks(reversed(r.held))

    def serve(self, path: Path, steps: int = 3, **sender: Any) -> None:
        """Serve one request alone."""
        request = self.begin(path, **sender)
        assert request is not None, "the pool is too small"
        for _ in range(steps):
            self.step()
        self.end(request)

    def check(self) -> None:
        """Every block that the cache knows holds its content, unless it is being computed again."""
        again = {r.held[i].block_id for r in self.requests.values() for i in r.compute}
        for block in self.pool.blocks:
            if block.block_hash is not None and block.block_id not in again:
                assert self.device[block.block_id].tolist() == [value_of(block.block_hash)] * 2
        self.host.tree.check_integrity()
        self.host.tiering.tier.tree.check_integrity()
        assert not self.host.failed, self.host.failed


__all__ = ["LoadReport", "TieredEngine", "value_of"]
