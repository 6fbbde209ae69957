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
    seqs    the engine's max_num_seqs: a full graph holds no more
    widths  by query length: the sizes rounded up to whole sequences where a query has several
    built   keys captured while serving (`lazy`)
    """

    sizes: tuple[int, ...]
    seqs: int
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

    uniform_tokens  query length that full graphs are captured for: 1, or 1 + k with k draft tokens; none: any that all
                 sequences of a step share. With more than 1 all sizes are rounded up to multiples of it, as vLLM does

    A step wider than the widest capture runs eagerly at its own width. A full graph holds whole sequences, so
    that with 1 + k tokens a query its widths are rounded up to multiples of that. Piecewise graphs launch
    attention layer by layer (`Profile.piecewise_launch_ps`).
    Source: vLLM V1, `cudagraph_mode` and `cudagraph_capture_sizes`.
    """

    mode: Literal["full_and_piecewise", "full_decode_only", "piecewise", "none"] = "full_and_piecewise"
    max_tokens: int | None = None
    lazy: bool = False
    eager_above: int | None = None
    uniform_tokens: int | None = None

    label = "vLLM capture sizes"
    source = "vLLM V1 compilation config"

    def __post_init__(self) -> None:
        if self.max_tokens is not None and self.max_tokens < 1:
            raise InputError(f"max_tokens={self.max_tokens}: expected at least 1, or none")
        if self.uniform_tokens is not None and self.uniform_tokens < 1:
            raise InputError(f"uniform_tokens={self.uniform_tokens}: expected at least 1, or none")
        if self.eager_above is not None and self.eager_above < 1:
            raise InputError(f"eager_above={self.eager_above}: expected at least 1, or none")

    def new_state(self, host: HostInfo) -> LadderState:
        """Return the ladder for one token a sequence."""
        sizes = self._sizes(host)
        return LadderState(sizes, host.max_num_seqs, {1: list(sizes)}, set())

    def plan(self, host: HostInfo) -> tuple[int, ...]:
        """Return the widths to capture at start."""
        return () if self.lazy else self._sizes(host)

    def _sizes(self, host: HostInfo) -> tuple[int, ...]:
        if self.mode == "none":
            return ()
        top = self.max_tokens if self.max_tokens is not None else min(2 * host.max_num_seqs, _MAX_TOKENS)
        sizes = [1, 2, 4, *range(8, 256, 8), *range(256, top + 1, 16)]
        unit = self.uniform_tokens or 1
        rounded = sorted({-(-n // unit) * unit for n in sizes if n <= top})
        return tuple(n for n in rounded if n <= max(top, unit))

    def pick(self, state: LadderState, captured: Sequence[int], shape: BatchShape) -> GraphChoice:
        """Return the narrowest graph that holds the step. Mutates state (ladders, lazy captures)."""
        query = shape.query_tokens if shape.prefill_seqs == 0 else 0
        if self.uniform_tokens is not None and query != self.uniform_tokens:
            query = 0
        piecewise = query == 0 or self.mode == "piecewise"
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
        if not piecewise and width > unit * state.seqs:
            # Padded to more sequences than the engine has: no full graph was captured for that.
            if self.mode == "full_decode_only":
                return GraphChoice(None, shape.tokens, shape.tokens)
            piecewise = True
        if self.eager_above is not None and width > self.eager_above * shape.tokens:
            return GraphChoice(None, shape.tokens, shape.tokens)
        # A full and a piecewise graph of one width are two graphs.
        key = -width if piecewise else width
        build = self.lazy and key not in state.built
        if build:
            state.built.add(key)
        return GraphChoice(key, width, width, build, holds_until_tokens=width, piecewise=piecewise)
