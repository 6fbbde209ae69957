"""Means and percentiles of observations that come with counts."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray


@dataclass(frozen=True)
class Sample:
    """Observations and how often each occurred.

    value   float64[N]
    count   int64[N], or None: once each
    """

    value: NDArray[np.float64]
    count: NDArray[np.int64] | None = None

    def __len__(self) -> int:
        return len(self.value) if self.count is None else int(self.count.sum())

    def mean(self) -> float:
        """Return the mean over occurrences; nan when there are none."""
        n = len(self)
        if n == 0:
            return math.nan
        if self.count is None:
            return float(self.value.mean())
        return float((self.value * self.count).sum() / n)

    def percentiles(self, *percents: float) -> list[float]:
        """Return, for each percent in (0, 100], the smallest value with at least that share at or below it.

        This is the inverse of the empirical distribution (no interpolation), so that a sample with counts and
        the same sample written out agree exactly; nan when there are no observations.
        """
        total = len(self)
        if total == 0:
            return [math.nan] * len(percents)
        # The subtraction keeps 99 % of 200 at rank 198 where the product in binary lands just above it.
        ranks = [max(math.ceil(total * p / 100 - 1e-9), 1) for p in percents]
        if self.count is None:
            kth = [r - 1 for r in ranks]
            part = np.partition(self.value, sorted(set(kth)))
            return [float(part[k]) for k in kth]
        order = np.argsort(self.value, kind="stable")
        cumulative = np.cumsum(self.count[order])
        return [float(self.value[order[i]]) for i in np.searchsorted(cumulative, ranks, side="left")]


def sample(value: ArrayLike, count: ArrayLike | None = None) -> Sample:
    """Build a Sample from anything array-like.

    >>> sample([5.0, 1.0, 3.0], [1, 2, 1]).percentiles(50, 99)
    [1.0, 5.0]
    """
    return Sample(
        np.asarray(value, dtype=np.float64), None if count is None else np.asarray(count, dtype=np.int64)
    )
