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
    """What has been asked for so far.

    sizes   the ladder
    widths  by query length: the sizes rounded up to whole sequences where a query has several
    built   widths captured while serving (`lazy`)
    """

    sizes: tuple[int, ...]
    widths: dict[int, list[int]]
    built: set[int]


@dataclass(frozen=True)
class VllmLadder(Bucketer[LadderState]):
    """Pads a step to the next captured width: 1, 2, 4, then every 8 to 256, then every 16.

    mode         which steps have graphs: full_and_piecewise (uniform decoding in full graphs, other steps in
                 piecewise ones), full_decode_only (only uniform decoding), piecewise (all), none
    max_tokens   widest capture; none: twice the engine's max_num_seqs, at most 512

    lazy         capture a graph when a step first needs it, on the serving path, instead of all at start
    eager_above  run eagerly where the graph is more than this many times as wide as the step (SGLang's rule has
                 2); none: never

    A step wider than the widest capture runs eagerly at its own width. A full graph holds whole sequences, so
    that with 1 + k tokens a query its widths are rounded up to multiples of that. Piecewise graphs launch
    attention kernel by kernel; the profile has one launch cost for both, so they differ in padding only.
    Source: vLLM V1, `cudagraph_mode` and `cudagraph_capture_sizes`.
    """

    mode: Literal["full_and_piecewise", "full_decode_only", "piecewise", "none"] = "full_and_piecewise"
    max_tokens: int | None = None
    lazy: bool = False
    eager_above: int | None = None

    label = "vLLM capture sizes"
    source = "vLLM V1 compilation config"

    def __post_init__(self) -> None:
        if self.max_tokens is not None and self.max_tokens < 1:
            raise InputError(f"max_tokens={self.max_tokens}: expected at least 1, or none")
        if self.eager_above is not None and self.eager_above < 1:
            raise InputError(f"eager_above={self.eager_above}: expected at least 1, or none")

    def new_state(self, host: HostInfo) -> LadderState:
        """Return the ladder for one token a sequence."""
        sizes = self._sizes(host)
        return LadderState(sizes, {1: list(sizes)}, set())

    def plan(self, host: HostInfo) -> tuple[int, ...]:
        """Return the widths to capture at start."""
        return () if self.lazy else self._sizes(host)

    def _sizes(self, host: HostInfo) -> tuple[int, ...]:
        if self.mode == "none":
            return ()
        top = self.max_tokens if self.max_tokens is not None else min(2 * host.max_num_seqs, _MAX_TOKENS)
        sizes = [1, 2, 4, *range(8, 256, 8), *range(256, top + 1, 16)]
        return tuple(n for n in sizes if n <= top)

    def pick(self, state: LadderState, captured: Sequence[int], shape: BatchShape) -> GraphChoice:
        """Return the narrowest graph that holds the step. Mutates state (ladders, lazy captures)."""
        query = shape.query_tokens if shape.prefill_seqs == 0 else 0
        if query == 0 and self.mode == "full_decode_only":
            return GraphChoice(None, shape.tokens, shape.tokens)
        unit = query if query > 1 and self.mode != "piecewise" else 1
        widths = state.widths.get(unit)
        if widths is None:
            widths = state.widths[unit] = sorted(
                {-(-n // unit) * unit for n in (state.sizes if self.lazy else captured)}
            )
        at = bisect_left(widths, shape.tokens)
        if at == len(widths):
            return GraphChoice(None, shape.tokens, shape.tokens)
        width = widths[at]
        if self.eager_above is not None and width > self.eager_above * shape.tokens:
            return GraphChoice(None, shape.tokens, shape.tokens)
        build = self.lazy and width not in state.built
        if build:
            state.built.add(width)
        return GraphChoice(width, width, width, build, holds_until_tokens=width)
