"""Capture a graph when its shape first occurs: nothing before serving, and every first time waits for a build."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from policies._rectangles import check_width, fits
from policies.api import BatchShape, Bucketer, GraphChoice, HostInfo
from traces.errors import InputError

_CONTEXT_BITS = 24


@dataclass(frozen=True)
class OnDemand(Bucketer[set[int]]):
    """A cache of graphs keyed by the step's rectangle M, and by its longest context in buckets.

    context_bucket_tokens  1: the exact context is in the key (as PolyGraph's text has it); 256: contexts of one
                           bucket share a graph; 0: one graph holds every context
    d_max                  most new tokens of one sequence; wider steps, and steps with a prefill, run eagerly

    Graphs are never dropped. Source: PolyGraph, Table 1 (OnDemand).
    """

    context_bucket_tokens: int = 256
    d_max: int = 8

    label = "capture on demand"
    source = "PolyGraph, Table 1"
    reads_context = True

    def __post_init__(self) -> None:
        check_width(self.d_max)
        if self.context_bucket_tokens < 0:
            raise InputError(
                f"context_bucket_tokens={self.context_bucket_tokens}: expected at least 0 (0: not in the key)"
            )

    def new_state(self, host: HostInfo) -> set[int]:
        """Return the keys captured so far: none."""
        return set()

    def plan(self, host: HostInfo) -> tuple[int, ...]:
        """Capture nothing before serving."""
        return ()

    def pick(self, state: set[int], captured: Sequence[int], shape: BatchShape) -> GraphChoice:
        """Return the graph of this shape, to be built if it is new. Mutates state."""
        width = shape.rectangle_tokens
        if not fits(shape, self.d_max):
            return GraphChoice(None, shape.tokens, shape.tokens)
        key = width << _CONTEXT_BITS
        if self.context_bucket_tokens:
            key += -(-shape.context_tokens_max // self.context_bucket_tokens)
        build = key not in state
        state.add(key)
        return GraphChoice(key, width, width, build)
