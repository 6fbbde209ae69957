"""Intervals that include calibration error, beside those over seeds: what drawn profiles do to a figure.

A run under draw d of the profile has the seed of a run under the profile itself, so their difference holds the
profile's part alone. The profile's error is one unknown shared by all seeds: averaging over draws does not
shrink it, as averaging over seeds shrinks luck. With n seeds and D draws:

    variance = variance over seeds / n + variance of the differences · (1 + 1/D)

and the bounds are Student's t, degrees of freedom after Welch and Satterthwaite.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from scipy.special import stdtr, stdtrit

from experiments.columns import Column
from experiments.stats import CONFIDENCE, Interval

Values = Mapping[int, float]


@dataclass(frozen=True)
class Draws:
    """A metric of one arm under drawn profiles: draw -> value, and the seed each draw ran with."""

    values: Values
    seed_of: Callable[[int], int]


def with_calibration(
    over_seeds: Values, drawn: Values, seed_of: Callable[[int], int], confidence: float = CONFIDENCE
) -> Interval | None:
    """Return the mean with an interval for seeds and calibration together; `n` is the draws it rests on.

    over_seeds: seed -> value under the profile. drawn: draw -> value under a drawn profile. None where there is
    no spread to estimate: fewer than two finite seeds or draws.

    >>> i = with_calibration({0: 9.0, 1: 11.0}, {0: 9.0, 1: 11.0, 2: 9.0, 3: 11.0}, lambda d: d % 2)
    >>> i.mean, i.n
    (10.0, 4)
    """
    base = {s: v for s, v in over_seeds.items() if math.isfinite(v)}
    moved = [
        v - base[seed_of(d)] for d, v in sorted(drawn.items()) if seed_of(d) in base and math.isfinite(v)
    ]
    n, count = len(base), len(moved)
    if n < 2 or count < 2:
        return None
    center, luck = _mean_variance(list(base.values()))
    shift, error = _mean_variance(moved)
    parts = (luck / n, n - 1), (error * (1 + 1 / count), count - 1)
    total = math.fsum(v for v, _ in parts)
    mean = center + shift
    if total == 0:
        return Interval(mean, mean, mean, count, 1.0 if mean == 0 else 0.0)
    freedom = total**2 / math.fsum(v**2 / f for v, f in parts)
    half = float(stdtrit(freedom, 0.5 + confidence / 2)) * math.sqrt(total)
    p = 2.0 * float(stdtr(freedom, -abs(mean) / math.sqrt(total)))
    return Interval(mean, mean - half, mean + half, count, p)


def change(
    column: Column, base: Values, other: Values, base_drawn: Draws, other_drawn: Draws
) -> Interval | None:
    """Return the change of `other` against `base` in the column's unit, paired seed by seed and draw by draw.

    Times and rates as log-ratios, as without draws; None where a pair is not positive.
    """
    percent = column.change == "percent"
    over_seeds = _paired(base, other, percent, column.scale)
    drawn = _paired(base_drawn.values, other_drawn.values, percent, column.scale)
    if over_seeds is None or drawn is None:
        return None
    found = with_calibration(over_seeds, drawn, base_drawn.seed_of)
    if found is None or not percent:
        return found
    assert found.low is not None
    assert found.high is not None
    mean, low, high = (100.0 * math.expm1(x) for x in (found.mean, found.low, found.high))
    return Interval(mean, low, high, found.n, found.p)


def _paired(base: Values, other: Values, percent: bool, scale: float) -> dict[int, float] | None:
    out = {}
    for key in sorted(set(base) & set(other)):
        b, o = base[key], other[key]
        if not (math.isfinite(b) and math.isfinite(o)):
            continue
        if percent and (b <= 0 or o <= 0):
            return None
        out[key] = math.log(o / b) if percent else scale * (o - b)
    return out


def _mean_variance(values: Sequence[float]) -> tuple[float, float]:
    mean = math.fsum(values) / len(values)
    return mean, math.fsum((v - mean) ** 2 for v in values) / (len(values) - 1)
