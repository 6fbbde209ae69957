"""The capture sizes of vLLM V1: a ladder of widths, full graphs for uniform decoding, piecewise ones else."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from policies.api import BatchShape, Bucketer, GraphChoice, HostInfo
from traces.errors import InputError

_MAX_TOKENS = 512


@dataclass
class LadderState:
    """`widths` by query length: captured sizes, rounded up to whole sequences where a query has several."""

    widths: dict[int, list[int]]


@dataclass(frozen=True)
class VllmLadder(Bucketer[LadderState]):
    """Pads a step to the next captured width: 1, 2, 4, then every 8 to 256, then every 16.

    mode         which steps have graphs: full_and_piecewise (uniform decoding in full graphs, other steps in
                 piecewise ones), full_decode_only (only uniform decoding), piecewise (all), none
    max_tokens   widest capture; none: twice the engine's max_num_seqs, at most 512

    A step wider than the widest capture runs eagerly at its own width. A full graph holds whole sequences, so
    that with 1 + k tokens a query its widths are rounded up to multiples of that. Piecewise graphs launch
    attention kernel by kernel; the profile has one launch cost for both, so they differ in padding only.
    Source: vLLM V1, `cudagraph_mode` and `cudagraph_capture_sizes`.
    """

    mode: Literal["full_and_piecewise", "full_decode_only", "piecewise", "none"] = "full_and_piecewise"
    max_tokens: int | None = None

    label = "vLLM capture sizes"
    source = "vLLM V1 compilation config"

    def __post_init__(self) -> None:
        if self.max_tokens is not None and self.max_tokens < 1:
            raise InputError(f"max_tokens={self.max_tokens}: expected at least 1, or none")

    def new_state(self, host: HostInfo) -> LadderState:
        """Return the ladder for one token a sequence."""
        return LadderState({1: list(self.plan(host))})

    def plan(self, host: HostInfo) -> tuple[int, ...]:
        """Return the widths to capture."""
        if self.mode == "none":
            return ()
        top = self.max_tokens if self.max_tokens is not None else min(2 * host.max_num_seqs, _MAX_TOKENS)
        sizes = [1, 2, 4, *range(8, 256, 8), *range(256, top + 1, 16)]
        return tuple(n for n in sizes if n <= top)

    def pick(self, state: LadderState, captured: Sequence[int], shape: BatchShape) -> GraphChoice:
        """Return the narrowest graph that holds the step. Mutates state (a ladder for each query length)."""
        query = shape.query_tokens if shape.prefill_seqs == 0 else 0
        if query == 0 and self.mode == "full_decode_only":
            return GraphChoice(None, shape.tokens, shape.tokens)
        unit = query if query > 1 and self.mode != "piecewise" else 1
        widths = state.widths.get(unit)
        if widths is None:
            widths = state.widths[unit] = sorted({-(-n // unit) * unit for n in captured})
        at = bisect_left(widths, shape.tokens)
        if at == len(widths):
            return GraphChoice(None, shape.tokens, shape.tokens)
        return GraphChoice(widths[at], widths[at], shape.tokens, holds_until_tokens=widths[at])
