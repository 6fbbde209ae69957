"""The worker's side of the host tier: host memory in slots of one KV block, and copies to it and from it.

Every slot remembers which content was stored and a checksum of its bytes. A load compares both first: a slot that was
zeroed, overwritten or never written is reported, and the engine computes the block again.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from live.vllm.copies import Copies, Load, LoadReport


class HostMemory:
    """`slots` slots behind the KV caches of one worker. `store` and `load` mutate; all copies are synchronous.

    layers   per layer, the pool's tensor with its blocks along the first dimension
    host     per layer, the host's, with its slots along the first dimension
    """

    def __init__(self, layers: Mapping[str, Any], slots: int) -> None:
        self.layers = dict(layers)
        self.host: dict[str, Any] = {}
        for name, cache in self.layers.items():
            self.host[name] = cache.new_empty((slots, *cache.shape[1:]), device="cpu")
        self._content = [-1] * slots
        self._checksum = [0] * slots
        self._failed: set[int] = set()
        self._report: LoadReport | None = None

    def store(self, copies: Copies) -> None:
        """Copy blocks to slots; a later store to the same slot wins."""
        for block, slot, content in copies.stores:
            for name, cache in self.layers.items():
                self.host[name][slot].copy_(cache[block])
            self._content[slot] = content
            self._checksum[slot] = self.checksum(slot)

    def load(self, copies: Copies) -> None:
        """Copy slots to blocks; note what could not be trusted."""
        if not copies.loads:
            return
        report = LoadReport(loads=len(copies.loads))
        for load in copies.loads:
            if self._sound(load):
                for name, cache in self.layers.items():
                    cache[load.block].copy_(self.host[name][load.slot])
                continue
            report.bad.append((load.slot, load.block))
            if load.requested:
                self._failed.add(load.block)
        self._report = report

    def take_failed(self) -> set[int]:
        """Return the blocks that requests wait for and did not get, since the last call."""
        failed, self._failed = self._failed, set()
        return failed

    def take_report(self) -> LoadReport | None:
        """Return what became of the loads since the last call; None when there were none."""
        report, self._report = self._report, None
        return report

    def checksum(self, slot: int) -> int:
        """Return a checksum of a slot's bytes, which depends on their order. Does not mutate."""
        total = 0
        for name in sorted(self.host):
            words = self.host[name][slot].contiguous().flatten().view(_torch().int16).to(_torch().int64)
            places = _torch().arange(1, len(words) + 1)
            total = (total * 1_000_003 + int((words * places).sum())) & (1 << 62) - 1
        return total

    def _sound(self, load: Load) -> bool:
        if load.slot < 0 or self._content[load.slot] != load.content:
            return False
        return self.checksum(load.slot) == self._checksum[load.slot]


def _torch() -> Any:
    import torch

    return torch
