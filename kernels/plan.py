"""The plan: the shape of one step as eight int32 words on the device, which every kernel reads (paper, section 3).

A captured graph fixes the buffer's address, not its values. The order of the seven named words is a layout; the
eighth is reserved. A ragged plan appends the rows' offsets, one a sequence and one more, to the same buffer: with
them drafts of one step may differ in length, and no row is padding.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import accumulate
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from kernels.shapes import Bounds, DecodeShape
from kernels.staging import Copies, StagingRing
from traces.errors import InputError, nearest

if TYPE_CHECKING:
    import torch

SLOTS = ("M", "B", "d", "H", "I", "N_h", "s")
WORDS = 8
UPDATE_BYTES = 4 * len(SLOTS)


@dataclass(frozen=True)
class PlanLayout:
    """Which of the words 0 to 6 holds which field; word 7 is reserved. The paper does not give the order.

    >>> PlanLayout().slot("d"), PlanLayout(("s", "M", "B", "d", "H", "I", "N_h")).slot("d")
    (2, 3)
    """

    slots: tuple[str, ...] = SLOTS

    def __post_init__(self) -> None:
        if sorted(self.slots) != sorted(SLOTS):
            raise InputError(
                f"plan layout {','.join(self.slots)}; allowed: an order of all of {','.join(SLOTS)}"
            )

    def slot(self, name: str) -> int:
        """Return the word of a field; raises InputError for a name the plan has not."""
        if name not in self.slots:
            raise InputError(nearest(name, self.slots, what="plan field"))
        return self.slots.index(name)


@dataclass(frozen=True)
class Plan:
    """The shape of one step.

    rows         tokens of the step (M)
    batch        sequences (B)
    draft        new tokens a sequence (d); of the longest draft in a ragged plan
    hidden, intermediate, heads   the model's widths (H, I, N_h)
    slot_base    first KV slot of the region the block tables count from (s)
    drafts       new tokens of each sequence in a ragged plan, else empty
    """

    rows: int
    batch: int
    draft: int
    hidden: int
    intermediate: int
    heads: int
    slot_base: int = 0
    drafts: tuple[int, ...] = field(default=())

    @classmethod
    def rectangular(cls, shape: DecodeShape, batch: int, draft: int, slot_base: int = 0) -> Plan:
        """Return the plan of `batch` sequences with `draft` new tokens each: M = B d."""
        return cls(
            batch * draft, batch, draft, shape.hidden, shape.intermediate, shape.heads, slot_base=slot_base
        )

    @classmethod
    def ragged(cls, shape: DecodeShape, drafts: Sequence[int], slot_base: int = 0) -> Plan:
        """Return the plan of one sequence a draft, each with its own number of new tokens: M = their sum."""
        return cls(
            sum(drafts), len(drafts), max(drafts, default=0), shape.hidden, shape.intermediate, shape.heads,
            slot_base=slot_base, drafts=tuple(drafts),
        )  # fmt: skip

    def check(self, bounds: Bounds) -> None:
        """Raise InputError unless the step lies within `bounds`: a kernel beyond its grid computes nothing."""
        for name, value in (("rows", self.rows), ("batch", self.batch), ("draft", self.draft)):
            if not 0 <= value <= getattr(bounds, name):
                raise InputError(f"plan: {name} {value}; allowed: 0 to the captured {getattr(bounds, name)}")
        if any(d < 1 for d in self.drafts):
            raise InputError(f"plan: drafts {self.drafts}; allowed: 1 or more each")

    def words(self, layout: PlanLayout) -> NDArray[np.int32]:
        """Return the seven words in the layout's order; for a ragged plan all eight and then the row offsets."""
        values = {
            "M": self.rows, "B": self.batch, "d": self.draft,
            "H": self.hidden, "I": self.intermediate, "N_h": self.heads, "s": self.slot_base,
        }  # fmt: skip
        words = [values[name] for name in layout.slots]
        if self.drafts:
            words += [0, *accumulate(self.drafts, initial=0)]
        return np.array(words, dtype=np.int32)


class PlanBuffer:
    """The plan on the device, at an address that never changes.

    tensor   int32[8], or int32[8 + batch_max + 1] where plans are ragged
    """

    def __init__(
        self, bounds: Bounds, layout: PlanLayout, copies: Copies, *, ragged: bool = False, depth: int = 4
    ) -> None:
        self.bounds, self.layout, self.is_ragged = bounds, layout, ragged
        words = WORDS + (bounds.batch + 1 if ragged else 0)
        self.tensor: torch.Tensor = copies.device_words(words)
        self._ring = StagingRing(copies, words, depth)

    def update(self, plan: Plan) -> int:
        """Enqueue one copy of the plan on the launch stream; return its bytes (28 for a rectangle).

        Mutates the device's plan when the stream comes to it: what was launched before still sees the old one.
        Raises InputError for a step that the captured bounds do not cover.
        """
        plan.check(self.bounds)
        if bool(plan.drafts) != self.is_ragged and plan.batch:
            kinds = {True: "a ragged plan (one draft a sequence)", False: "a rectangular plan"}
            raise InputError(
                f"plan: {kinds[bool(plan.drafts)]} for kernels captured for {kinds[self.is_ragged]}"
            )
        return self._ring.write(plan.words(self.layout), self.tensor)
