"""Graphs of maximal grids whose kernels read the step's extent from a plan buffer: few graphs, little padding."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass

from policies._rectangles import check_width, fits, geometric_widths
from policies.api import BatchShape, Bucketer, GraphChoice, HostInfo
from traces.errors import InputError

_BUCKETS_MAX = 64


@dataclass(frozen=True)
class PlanBuffer(Bucketer[None]):
    """K buckets up to B_max d_max in geometric steps; tiles beyond the active extent stop at their guard.

    buckets  K; the paper evaluates one
    d_max    most new tokens of one sequence; wider steps, and steps with a prefill, run eagerly
    ragged   the plan holds row offsets, so that the active extent is the sum of the sequences' tokens; False: a
             rectangle as long as the longest query (the paper's M = B max d)

    A replay costs the work of the active tokens, the guards of the others and one update of the plan. Source:
    PolyGraph, section 3 and Table 1; K above 1 and `ragged` are left open there.
    """

    buckets: int = 1
    d_max: int = 8
    ragged: bool = False

    label = "plan buffer"
    source = "PolyGraph, section 3"

    def __post_init__(self) -> None:
        check_width(self.d_max)
        if not 1 <= self.buckets <= _BUCKETS_MAX:
            raise InputError(f"buckets={self.buckets}: expected from 1 to {_BUCKETS_MAX}")

    def new_state(self, host: HostInfo) -> None:
        """There is nothing to remember."""

    def plan(self, host: HostInfo) -> tuple[int, ...]:
        """Return the buckets' grids."""
        return geometric_widths(host.max_num_seqs * self.d_max, self.buckets)

    def pick(self, state: None, captured: Sequence[int], shape: BatchShape) -> GraphChoice:
        """Return the smallest bucket that covers the step."""
        active = shape.tokens if self.ragged else shape.rectangle_tokens
        at = bisect_left(captured, active)
        if not fits(shape, self.d_max) or at == len(captured):
            return GraphChoice(None, shape.tokens, shape.tokens)
        return GraphChoice(captured[at], captured[at], active, plan_update=True)
