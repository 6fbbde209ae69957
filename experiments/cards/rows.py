"""One row of the card, and how checks become a verdict."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from experiments.stats import Interval, mean_interval, paired_difference, paired_percent

REPRODUCED, SHAPE, NOT, INCONSISTENT, NOT_ATTEMPTED = (
    "reproduced", "shape only", "not reproduced", "inconsistent in the paper", "not attempted",
)  # fmt: skip
RATIO_TOLERANCE = 0.15  # of ratios between arms (protocol P-1)
VALUE_TOLERANCE = 0.25  # of absolute values
BySeed = Mapping[int, float]


@dataclass(frozen=True)
class Check:
    """One question put to our numbers. `of`: "shape" (orders, signs, peaks) or "value" (sizes)."""

    text: str
    ok: bool
    of: str = "shape"


@dataclass(frozen=True)
class Row:
    """One target on the card.

    ours     our values with their intervals
    reading  which reading of the paper, and of the engine, they hold for
    """

    id: str
    ours: str
    reading: str
    verdict: str
    checks: tuple[Check, ...] = ()
    note: str = ""


def judged(id: str, ours: str, reading: str, checks: Sequence[Check], note: str = "") -> Row:
    """Return a row whose verdict follows from its checks.

    Every shape check and every value check holds: reproduced. Every shape check: shape only. Else, and without a check
    of shape, not reproduced.
    """
    shape = [c.ok for c in checks if c.of == "shape"]
    value = [c.ok for c in checks if c.of == "value"]
    verdict = NOT
    if shape and all(shape):
        verdict = REPRODUCED if value and all(value) else SHAPE
    return Row(id, ours, reading, verdict, tuple(checks), note)


def rises(name: str, base: BySeed, other: BySeed, unit: str = "pt") -> Check:
    """Check that `other` is above `base`, the 95 % interval of the paired difference excluding 0."""
    change = paired_difference(base, other)
    ok = change is not None and change.mean > 0 and change.excludes_zero
    return Check(f"{name}: {shown(change)} {unit}", ok)


def falls(name: str, base: BySeed, other: BySeed) -> Check:
    """Check that `other` is below `base`, by the interval of the paired ratio."""
    change = paired_percent(base, other)
    ok = change is not None and change.mean < 0 and change.excludes_zero
    return Check(f"{name}: {shown(change)} %", ok)


def near(name: str, ours: float, paper: float, tolerance: float) -> Check:
    """Check that `ours` is within a relative tolerance of the published value."""
    ok = math.isfinite(ours) and abs(ours - paper) <= tolerance * abs(paper)
    return Check(f"{name}: {ours:.3g} for {paper:.3g} (±{100 * tolerance:.0f} %)", ok, "value")


def mean(values: BySeed) -> float:
    """Return the mean over seeds, NaN without any."""
    found = mean_interval(list(values.values()))
    return math.nan if found is None else found.mean


def shown(interval: Interval | None, digits: int = 2) -> str:
    """Return `mean [low, high]`, or the mean alone where there is no interval.

    >>> shown(mean_interval([1.0, 2.0, 3.0]))
    '2.00 [-0.48, 4.48]'
    """
    if interval is None:
        return "nothing to compare"
    if interval.low is None or interval.high is None:
        return f"{interval.mean:.{digits}f} [one seed]"
    return f"{interval.mean:.{digits}f} [{interval.low:.{digits}f}, {interval.high:.{digits}f}]"


def over_seeds(values: BySeed, digits: int = 1) -> str:
    """Return the mean over seeds with its interval as text."""
    return shown(mean_interval(list(values.values())), digits)
