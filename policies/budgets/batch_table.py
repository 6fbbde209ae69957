"""Draft length by batch size from a table: vLLM's `num_speculative_tokens_per_batch_size`."""

from __future__ import annotations

import re
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from policies.api import BatchView, Budget, HostInfo, Proposals
from traces.errors import InputError

Ranges = tuple[tuple[int, int, int], ...]


@dataclass(frozen=True)
class BatchTable(Budget[tuple[int, ...]]):
    """Gives every request the table's number for the batch; between and after its ranges the last one holds.

    table   ranges of batch sizes with their draft length, first-last:k, divided by '/'; the first starts at 1
    """

    label = "table by batch size"
    source = "vLLM num_speculative_tokens_per_batch_size"

    table: str = "1-4:5/5-16:3/17-64:1/65-256:0"

    def __post_init__(self) -> None:
        parse_table(self.table)

    def new_state(self, host: HostInfo) -> tuple[int, ...]:
        """Return k by batch size, 0 to the engine's most sequences."""
        k = [0] * (host.max_num_seqs + 1)
        for first, _, tokens in parse_table(self.table):
            for seqs in range(first, len(k)):
                k[seqs] = tokens
        return tuple(k)

    def limit(self, state: tuple[int, ...], batch: BatchView) -> int:
        """Return the table's number."""
        return state[min(batch.seqs, len(state) - 1)]

    def allocate(self, state: tuple[int, ...], proposals: Proposals, batch: BatchView) -> NDArray[np.int32]:
        """Return int32[B]: the table's number, or what was drafted if that is less."""
        return np.minimum(proposals.length, np.int32(self.limit(state, batch)))


def parse_table(text: str) -> Ranges:
    """Return (first, last, k) ascending; InputError unless ranges start at 1 and do not overlap.

    >>> parse_table("9-32:1/1-4:3")
    ((1, 4, 3), (9, 32, 1))
    """
    ranges = []
    for part in text.split("/"):
        match = re.fullmatch(r"\s*(\d+)-(\d+):(\d+)\s*", part)
        if match is None:
            raise InputError(f"table={text!r}: {part!r} is not first-last:k, such as 1-16:5")
        ranges.append(tuple(int(x) for x in match.groups()))
    ranges.sort()
    end = 0
    for first, last, _ in ranges:
        if first > last or first <= end:
            raise InputError(f"table={text!r}: {first}-{last} ends before it starts, or overlaps")
        end = last
    if ranges[0][0] != 1:
        raise InputError(f"table={text!r}: the first range starts at 1")
    return tuple((a, b, k) for a, b, k in ranges)
