"""Distributions of whole numbers (tokens, turns, milliseconds): fixed, lognormal, empirical."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from traces import draws, portable
from traces.errors import InputError, nearest
from traces.fields import MAX_TOKENS

Int64 = NDArray[np.int64]
FORMS = "fixed:N, lognormal:MEDIAN:SIGMA[:LOW:HIGH], empirical:FILE"


class Lengths(Protocol):
    """A distribution that can be drawn from by ids; equal (seed, purpose, ids) give equal numbers."""

    def draw(self, seed: int, purpose: str, *ids: Int64) -> Int64:
        """Return int64 of the broadcast shape of `ids`."""
        ...


@dataclass(frozen=True)
class Fixed:
    """Always `value`."""

    value: int

    def draw(self, seed: int, purpose: str, *ids: Int64) -> Int64:
        """Return `value` for each id."""
        return np.full(np.broadcast_shapes(*(np.shape(i) for i in ids)), self.value, dtype=np.int64)


@dataclass(frozen=True)
class Lognormal:
    """exp(N(ln median, sigma^2)), rounded; what falls outside [low, high] is set to the bound."""

    median: float
    sigma: float
    low: int = 1
    high: int = 1 << 20

    def draw(self, seed: int, purpose: str, *ids: Int64) -> Int64:
        """Return rounded lognormal draws."""
        z = portable.normal(seed, purpose, *ids)
        values = self.median * portable.exp(np.clip(self.sigma * z, -600.0, 600.0))
        return np.rint(np.clip(values, self.low, self.high)).astype(np.int64)


@dataclass(frozen=True, eq=False)
class Empirical:
    """Values drawn with replacement from `values`[n].

    The row drawn depends on (seed, ids) but not on the purpose: prompt and output lengths that come from one
    trace stay paired as they were recorded.
    """

    values: Int64

    def draw(self, seed: int, purpose: str, *ids: Int64) -> Int64:
        """Return recorded values."""
        row = draws.bits_array(seed, "recorded row", *ids) % np.uint64(len(self.values))
        return self.values[row.astype(np.int64)]


def parse(spec: str, what: str, low: int) -> Fixed | Lognormal:
    """Return the distribution that `fixed:..` or `lognormal:..` describes; values below `low` are refused."""
    kind, *given = spec.split(":")
    if kind not in ("fixed", "lognormal"):
        raise InputError(f"{what}: {nearest(kind, ('fixed', 'lognormal', 'empirical'), what='distribution')}")
    try:
        numbers = [float(g) for g in given]
    except ValueError:
        raise InputError(f"{what}: got {spec!r}, expected numbers, as in {FORMS}") from None
    counts = {"fixed": (1,), "lognormal": (2, 4)}[kind]
    if len(numbers) not in counts:
        raise InputError(f"{what}: got {spec!r}, expected the form {FORMS}")
    whole = numbers if kind == "fixed" else numbers[2:]
    if any(not low <= n <= MAX_TOKENS or n != int(n) for n in whole):
        raise InputError(f"{what}: got {spec!r}, expected whole numbers from {low} to {MAX_TOKENS}")
    if kind == "fixed":
        return Fixed(int(numbers[0]))
    if not (0 < numbers[0] <= MAX_TOKENS and 0 <= numbers[1] <= 10):
        raise InputError(f"{what}: got {spec!r}, expected a median above 0 and a sigma from 0 to 10")
    bounds = (int(numbers[2]), int(numbers[3])) if len(numbers) == 4 else (max(low, 1), 1 << 20)
    if bounds[0] > bounds[1]:
        raise InputError(f"{what}: got {spec!r}, the lower bound is above the upper")
    return Lognormal(numbers[0], numbers[1], *bounds)
