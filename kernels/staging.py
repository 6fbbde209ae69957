"""Small updates of device memory from a host that runs ahead: a ring of pinned slots, each guarded by an event.

An asynchronous copy reads its pinned source when the stream comes to it, not when it is enqueued. A slot is therefore
filled again only after the event recorded behind its last copy has passed (paper, section 3).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

import numpy as np
import torch
from numpy.typing import NDArray

from traces.errors import InputError


class Event(Protocol):
    """A point in a stream, passed while it was never recorded."""

    def record(self) -> None:
        """Move the point behind all that is enqueued on the launch stream so far."""
        ...

    def synchronize(self) -> None:
        """Wait until the stream has passed the point."""
        ...


class Copies(Protocol):
    """How words travel from the host to one device."""

    def device_words(self, n: int) -> torch.Tensor:
        """Return int32[n] of zeros on the device."""
        ...

    def host_words(self, n: int) -> torch.Tensor:
        """Return int32[n] on the host, pinned where copies need it."""
        ...

    def event(self) -> Event:
        """Return an event that was never recorded."""
        ...

    def enqueue(self, source: torch.Tensor, target: torch.Tensor) -> None:
        """Enqueue one copy on the launch stream."""
        ...


class _Done:
    """The event of a CPU: whatever was enqueued is done."""

    def record(self) -> None:
        """Do nothing."""

    def synchronize(self) -> None:
        """Do nothing."""


class HostCopies:
    """A CPU: copies are done when they return."""

    def device_words(self, n: int) -> torch.Tensor:
        """Return int32[n] of zeros."""
        return torch.zeros(n, dtype=torch.int32)

    def host_words(self, n: int) -> torch.Tensor:
        """Return int32[n] of zeros."""
        return torch.zeros(n, dtype=torch.int32)

    def event(self) -> Event:
        """Return an event that is always passed."""
        return _Done()

    def enqueue(self, source: torch.Tensor, target: torch.Tensor) -> None:
        """Copy at once. Mutates `target`."""
        target.copy_(source)


class CudaCopies:
    """A GPU: copies run on the stream that is current when they are enqueued, where graphs are launched too."""

    def __init__(self, device: str = "cuda") -> None:
        self._device = device

    def device_words(self, n: int) -> torch.Tensor:
        """Return int32[n] of zeros in device memory."""
        return torch.zeros(n, dtype=torch.int32, device=self._device)

    def host_words(self, n: int) -> torch.Tensor:
        """Return int32[n] in pinned memory: a copy from pageable memory would wait for the stream."""
        return torch.zeros(n, dtype=torch.int32, pin_memory=True)

    def event(self) -> Event:
        """Return a CUDA event; it keeps no time, which would cost."""
        make: Callable[[], Event] = torch.cuda.Event
        return make()

    def enqueue(self, source: torch.Tensor, target: torch.Tensor) -> None:
        """Enqueue the copy. Mutates `target` when the stream comes to it."""
        target.copy_(source, non_blocking=True)


def copies_for(device: str) -> Copies:
    """Return how words travel to "cpu" or "cuda..."."""
    return HostCopies() if device == "cpu" else CudaCopies(device)


class StagingRing:
    """Slots of pinned host memory in turn. Holds `depth` x `words` x 4 bytes."""

    def __init__(self, copies: Copies, words: int, depth: int) -> None:
        if depth < 1:
            raise InputError(f"staging ring: depth {depth}; allowed: 1 or more")
        self._copies = copies
        self._slots = [copies.host_words(words) for _ in range(depth)]
        self._events = [copies.event() for _ in range(depth)]
        self._next = 0

    def write(self, words: NDArray[np.int32], target: torch.Tensor) -> int:
        """Enqueue a copy of `words` to the front of `target`; return its bytes.

        Waits for the copy that used the slot `depth` writes ago, if it is still in flight. Mutates `target` when
        the stream comes to it.
        """
        i, n = self._next, len(words)
        self._next = (i + 1) % len(self._slots)
        self._events[i].synchronize()
        staged = self._slots[i][:n]
        staged.numpy()[:] = words
        self._copies.enqueue(staged, target[:n])
        self._events[i].record()
        return 4 * n
