"""What is measured: strategies, and the shapes of steps."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from kernels.op import VARIANTS


@dataclass(frozen=True)
class Strategy:
    """One policy over one variant of the matrix kernels.

    bucketer, options   the policy (`policies.bucketers`)
    variant             "guard" or "versions" (`kernels.op`)
    """

    bucketer: str
    options: tuple[tuple[str, Any], ...] = ()
    variant: str = "versions"

    @property
    def name(self) -> str:
        """The policy as it is written on a command line."""
        given = ", ".join(f"{k}={str(v).lower() if isinstance(v, bool) else v}" for k, v in self.options)
        return f"{self.bucketer}({given})" if given else self.bucketer

    @property
    def ragged(self) -> bool:
        """Whether the plan holds row offsets."""
        return bool(dict(self.options).get("ragged"))


@dataclass(frozen=True)
class Point:
    """One step: sequences, new tokens of each, KV tokens each holds before it."""

    batch: int
    draft: int
    context: int

    @property
    def rows(self) -> int:
        """Tokens of the step."""
        return self.batch * self.draft


_POLICIES: tuple[tuple[str, tuple[tuple[str, Any], ...]], ...] = (
    ("eager", ()), ("all_shapes", ()), ("max_pad", ()), ("plan_buffer", ()), ("plan_buffer", (("buckets", 4),)),
    ("plan_buffer", (("ragged", True),)),
)  # fmt: skip


def strategies(d_max: int) -> tuple[Strategy, ...]:
    """Return every policy under every variant; graph policies are told the widest query."""
    out = []
    for variant in VARIANTS:
        for bucketer, options in _POLICIES:
            given = options if bucketer == "eager" else (*options, ("d_max", d_max))
            out.append(Strategy(bucketer, given, variant))
    return tuple(out)


def points(batch_max: int, d_max: int, contexts: tuple[int, ...]) -> tuple[Point, ...]:
    """Return the steps: batches and widths by halves and quarters up to the bounds, at each context."""

    def parts(top: int) -> list[int]:
        return sorted({1, *(max(1, top * n // 8) for n in (1, 2, 4, 6, 8))})

    return tuple(Point(b, d, c) for c in contexts for b in parts(batch_max) for d in parts(d_max))
