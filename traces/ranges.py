"""Rows of picked groups of a table."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from traces.prefix import Int64


@dataclass(frozen=True)
class Ranges:
    """Rows of picked groups end to end: `rows` index the old table, `copy` says of which pick each is.

    start   new row at which each pick begins
    """

    rows: Int64
    copy: Int64
    start: Int64

    @property
    def ptr(self) -> Int64:
        """Return the CSR pointers of the picks."""
        return np.append(self.start, len(self.rows))


def ranges(ptr: Int64, pick: Int64) -> Ranges:
    """Return the rows of groups `pick` of a table whose groups begin at `ptr` (one more than groups)."""
    count = ptr[pick + 1] - ptr[pick]
    start = np.cumsum(count) - count
    copy = np.repeat(np.arange(len(pick)), count)
    rows = np.arange(int(count.sum())) - start[copy] + ptr[pick][copy]
    return Ranges(rows, copy, start)
