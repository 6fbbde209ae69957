"""One graph for every batch size, always executed at the widest query: the draft length leaves the key."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from policies._rectangles import check_width, fits
from policies.api import BatchShape, Bucketer, GraphChoice, HostInfo


@dataclass(frozen=True)
class MaxPad(Bucketer[None]):
    """Captures B d_max for each B; every token position of the graph is computed, wanted or not.

    d_max   most new tokens of one sequence; steps with a longer query or a prefill run eagerly

    Relative padding is d_max / d - 1. Source: PolyGraph, Table 1 (MaxPad).
    """

    d_max: int = 8

    label = "pad to the maximum"
    source = "PolyGraph, Table 1"

    def __post_init__(self) -> None:
        check_width(self.d_max)

    def new_state(self, host: HostInfo) -> None:
        """There is nothing to remember."""

    def plan(self, host: HostInfo) -> tuple[int, ...]:
        """Return one width for each batch size."""
        return tuple(b * self.d_max for b in range(1, host.max_num_seqs + 1))

    def pick(self, state: None, captured: Sequence[int], shape: BatchShape) -> GraphChoice:
        """Return the graph of the step's batch size, fully padded."""
        width = shape.decode_seqs * self.d_max
        if not fits(shape, self.d_max) or not captured or width > captured[-1]:
            return GraphChoice(None, shape.tokens, shape.tokens)
        return GraphChoice(width, width, width)
