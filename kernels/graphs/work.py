"""What one decode step is given: the new tokens of each sequence, and where its keys and values are."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from kernels.plan import Plan
from kernels.shapes import DecodeShape
from policies.api import BatchShape

Ints = NDArray[np.int64]


@dataclass(frozen=True)
class StepWork:
    """New tokens of the sequences of one step.

    tokens     for each sequence, int64[its new tokens], at least one: the last accepted token, then its draft
    contexts   int64[batch]: KV tokens each holds before the step
    tables     int64[batch, blocks]: its KV blocks, enough for the widest query that it may be padded to
    """

    tokens: tuple[Ints, ...]
    contexts: Ints
    tables: Ints

    @property
    def widths(self) -> tuple[int, ...]:
        """New tokens of each sequence."""
        return tuple(len(t) for t in self.tokens)

    def shape(self) -> BatchShape:
        """Return the step as a bucketing policy sees it."""
        widths = self.widths
        widest = max(widths)
        uniform = widest if min(widths) == widest else 0
        context = self.contexts + np.array(widths)
        return BatchShape(
            len(widths), uniform, sum(widths), 0, int(context.sum()), widest, int(context.max())
        )

    def rectangle(self, shape: DecodeShape, width: int) -> tuple[Plan, Ints]:
        """Return the plan and int64[batch · width] tokens where every sequence has `width`, short ones padded.

        A padded position computes a token that nobody reads, and writes keys and values beyond the sequence's end,
        which its next tokens overwrite before they are read.
        """
        rows = np.zeros((len(self.tokens), width), dtype=np.int64)
        for row, tokens in zip(rows, self.tokens, strict=True):
            row[: len(tokens)] = tokens
        return Plan.rectangular(shape, len(self.tokens), width), rows.reshape(-1)

    def ragged(self, shape: DecodeShape) -> tuple[Plan, Ints]:
        """Return the plan with row offsets and the tokens one after the other."""
        return Plan.ragged(shape, self.widths), np.concatenate(self.tokens)

    def split(self, results: Sequence[int] | Ints, width: int | None) -> list[Ints]:
        """Return each sequence's own results; `width` is that of the rectangle, None for a ragged plan."""
        flat = np.asarray(results, dtype=np.int64)
        starts = np.cumsum([0, *self.widths]) if width is None else np.arange(len(self.tokens)) * width
        return [flat[s : s + n] for s, n in zip(starts.tolist(), self.widths, strict=False)]
