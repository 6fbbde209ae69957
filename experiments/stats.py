"""Intervals over seeds: what one arm does, and how two arms differ when they met the same luck.

Seeds are the independent units; requests of one run are not. Every interval here is Student's t over one
value a seed. Arms are compared by the difference within each seed (paired), which removes shared luck.
With fewer than two seeds there is no spread to estimate, and the interval is None, never zero wide.

A mean of values that are never negative is not negative either, yet with few noisy seeds Student's t reaches
below 0. Such an interval is cut at the values the metric can have: it then covers the true mean exactly as
often as before, since the mean never lies in what is cut off. The other remedy, a t interval of the logarithm,
would be one for the geometric mean, which is not the mean the table shows.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from scipy.special import stdtr, stdtrit

CONFIDENCE = 0.95


@dataclass(frozen=True)
class Interval:
    """A mean over seeds with its two-sided t interval, in the unit of the values.

    n: values used. low, high, p: None with fewer than two values. p: two-sided, of "the mean is 0".
    """

    mean: float
    low: float | None
    high: float | None
    n: int
    p: float | None = None

    def within(self, least: float, most: float = math.inf) -> Interval:
        """Return the interval without what lies below `least` or above `most`; it keeps its mean.

        >>> mean_interval([1.0, 2.0, 3.0]).within(0.0).low
        0.0
        """
        if self.low is None or self.high is None:
            return self
        return replace(
            self, low=min(max(self.low, least), self.mean), high=max(min(self.high, most), self.mean)
        )

    @property
    def excludes_zero(self) -> bool:
        """Say whether the interval exists and lies on one side of 0."""
        return self.low is not None and self.high is not None and (self.low > 0 or self.high < 0)

    @property
    def largest(self) -> float | None:
        """Return the largest size of the mean the interval allows, None without an interval."""
        return None if self.low is None or self.high is None else max(abs(self.low), abs(self.high))


def mean_interval(values: Sequence[float], confidence: float = CONFIDENCE) -> Interval | None:
    """Return the mean with its Student t interval over n - 1 degrees of freedom; None without finite values.

    >>> i = mean_interval([1.0, 2.0, 3.0])
    >>> (i.mean, round(i.low, 3), round(i.high, 3), i.n)
    (2.0, -0.484, 4.484, 3)
    >>> mean_interval([5.0])
    Interval(mean=5.0, low=None, high=None, n=1, p=None)
    """
    xs = [float(v) for v in values if math.isfinite(v)]
    n = len(xs)
    if n == 0:
        return None
    mean = math.fsum(xs) / n
    if n == 1:
        return Interval(mean, None, None, 1)
    deviation = math.sqrt(math.fsum((x - mean) ** 2 for x in xs) / (n - 1))
    error = deviation / math.sqrt(n)
    half = float(stdtrit(n - 1, 0.5 + confidence / 2)) * error
    if error == 0.0:
        p = 1.0 if mean == 0.0 else 0.0
    else:
        p = 2.0 * float(stdtr(n - 1, -abs(mean) / error))
    return Interval(mean, mean - half, mean + half, n, p)


def paired_difference(
    base: Mapping[int, float], other: Mapping[int, float], confidence: float = CONFIDENCE
) -> Interval | None:
    """Return `other` minus `base` over the seeds both have (keys are seeds); None when they share none.

    >>> paired_difference({0: 10.0, 1: 20.0}, {0: 11.0, 1: 21.0, 2: 5.0}).mean
    1.0
    """
    return mean_interval([o - b for b, o in _pairs(base, other)], confidence)


def paired_percent(
    base: Mapping[int, float], other: Mapping[int, float], confidence: float = CONFIDENCE
) -> Interval | None:
    """Return the change of `other` against `base` in percent, from the mean log-ratio of the pairs.

    The interval is symmetric on the log scale, so that halving and doubling weigh the same; None unless every
    shared pair is positive (a log-ratio over a chosen subset would not be paired any more).

    >>> round(paired_percent({0: 100.0, 1: 200.0}, {0: 90.0, 1: 180.0}).mean, 6)
    -10.0
    """
    pairs = _pairs(base, other)
    if any(b <= 0 or o <= 0 for b, o in pairs):
        return None
    logs = mean_interval([math.log(o / b) for b, o in pairs], confidence)
    if logs is None:
        return None
    low, high = (None if x is None else 100.0 * math.expm1(x) for x in (logs.low, logs.high))
    return Interval(100.0 * math.expm1(logs.mean), low, high, logs.n, logs.p)


def holm(p_values: Sequence[float | None]) -> list[float | None]:
    """Return Holm's step-down adjusted p-values, in the order given; None stays None and is not counted.

    Source: S. Holm, "A simple sequentially rejective multiple test procedure", 1979.

    >>> holm([0.01, 0.04, None, 0.03])
    [0.03, 0.06, None, 0.06]
    """
    known = sorted((p, i) for i, p in enumerate(p_values) if p is not None)
    out: list[float | None] = [None] * len(p_values)
    running = 0.0
    for rank, (p, i) in enumerate(known):
        running = max(running, min(1.0, (len(known) - rank) * p))
        out[i] = running
    return out


def _pairs(base: Mapping[int, float], other: Mapping[int, float]) -> list[tuple[float, float]]:
    shared = sorted(set(base) & set(other))
    return [(base[s], other[s]) for s in shared if math.isfinite(base[s]) and math.isfinite(other[s])]
