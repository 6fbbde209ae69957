"""One graph for every number of tokens that a rectangular decode step can have, all captured before serving."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass

from policies._rectangles import check_width, distinct_products, fits
from policies.api import BatchShape, Bucketer, GraphChoice, HostInfo


@dataclass(frozen=True)
class AllShapes(Bucketer[None]):
    """Captures each distinct M = B d; a step runs in the graph of its own rectangle, without padding beyond it.

    d_max   most new tokens of one sequence

    Steps with a prefill, and steps beyond the captured space, run eagerly. Source: PolyGraph, Table 1 (AllShapes).
    """

    d_max: int = 8

    label = "all shapes"
    source = "PolyGraph, Table 1"

    def __post_init__(self) -> None:
        check_width(self.d_max)

    def new_state(self, host: HostInfo) -> None:
        """There is nothing to remember."""

    def plan(self, host: HostInfo) -> tuple[int, ...]:
        """Return the distinct products of a batch size and a draft width."""
        return distinct_products(host.max_num_seqs, self.d_max)

    def pick(self, state: None, captured: Sequence[int], shape: BatchShape) -> GraphChoice:
        """Return the graph of the step's rectangle."""
        width = shape.rectangle_tokens
        at = bisect_left(captured, width)
        if not fits(shape, self.d_max) or at == len(captured) or captured[at] != width:
            return GraphChoice(None, shape.tokens, shape.tokens)
        return GraphChoice(width, width, width)
