"""One direction of a host link: its copies are served one after the other, each with its overhead."""

from __future__ import annotations

from sim.clock import PS_PER_S


class Link:
    """A FIFO link. Mutated by `transfer`. Copies of one direction serialise on the device's copy engine, so
    two that overlap share the bandwidth by waiting for each other.
    """

    def __init__(self, bytes_per_s: int, copy_overhead_ps: int) -> None:
        self.bytes_per_s = bytes_per_s
        self.copy_overhead_ps = copy_overhead_ps
        self.free_at_ps = 0
        self.bytes_moved = 0

    def duration_ps(self, size_bytes: int, copies: int = 1) -> int:
        """Return how long a transfer takes on an idle link, in ps. Does not mutate."""
        return copies * self.copy_overhead_ps + size_bytes * PS_PER_S // self.bytes_per_s

    def transfer(self, size_bytes: int, now_ps: int, copies: int = 1) -> int:
        """Queue a transfer and return when it ends, in ps."""
        self.free_at_ps = max(self.free_at_ps, now_ps) + self.duration_ps(size_bytes, copies)
        self.bytes_moved += size_bytes
        return self.free_at_ps
