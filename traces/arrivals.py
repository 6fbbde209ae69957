"""Arrival times: Poisson, gamma (bursty or regular) and diurnal. Seeded; int64 nanoseconds, ascending."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from traces import draws, portable
from traces.errors import InputError

Int64 = NDArray[np.int64]


def poisson(count: int, rate_per_s: float, seed: int) -> Int64:
    """Return int64[count] ns of a Poisson process; gaps are exponential."""
    _check(count, rate_per_s)
    return _times(portable.exponential(seed, "arrival", np.arange(count)) / rate_per_s)


def gamma(count: int, rate_per_s: float, cv: float, seed: int) -> Int64:
    """Return int64[count] ns with gamma gaps of mean 1/rate and variation `cv` (1 is Poisson)."""
    _check(count, rate_per_s)
    if not 0.05 <= cv <= 50:
        raise InputError(f"arrivals: cv={cv}: expected 0.05 to 50")
    shape = 1.0 / (cv * cv)
    return _times(portable.gamma(shape, seed, "arrival gamma", np.arange(count)) / (shape * rate_per_s))


def diurnal(count: int, rate_per_s: float, amplitude: float, period_s: float, seed: int) -> Int64:
    """Return int64[count] ns of a Poisson process whose rate is a wave around `rate_per_s`.

    The rate at t is rate_per_s * (1 + amplitude * sin(2 pi t / period_s)). Thinning (Lewis and Shedler 1979):
    candidates at the highest rate, each kept with the ratio of the rate at its time to the highest.
    """
    _check(count, rate_per_s)
    if not 0 <= amplitude <= 1:
        raise InputError(f"arrivals: amplitude={amplitude}: expected 0 to 1")
    if not 0 < period_s <= 1e9:
        raise InputError(f"arrivals: period_s={period_s}: expected more than 0, at most 1e9")
    candidates = count
    while True:
        candidates = candidates * 2 + 64
        ids = np.arange(candidates)
        times = _times(portable.exponential(seed, "arrival", ids) / (rate_per_s * (1.0 + amplitude)))
        wave = portable.sin_turns(times / 1e9 / period_s)
        keep = draws.uniform_array(seed, "arrival kept", ids) * (1.0 + amplitude) < 1.0 + amplitude * wave
        if np.count_nonzero(keep) >= count:
            return times[keep][:count]


def _times(gaps_s: NDArray[np.float64]) -> Int64:
    """Return the running sum of gaps, each rounded to a nanosecond first: sums of integers have no order."""
    return np.cumsum(np.rint(gaps_s * 1e9).astype(np.int64))


def _check(count: int, rate_per_s: float) -> None:
    if not 1 <= count <= 100_000_000:
        raise InputError(f"arrivals: count={count}: expected 1 to 100000000")
    if not 1e-6 <= rate_per_s <= 1e9:
        raise InputError(f"arrivals: rate_per_s={rate_per_s}: expected 1e-6 to 1e9")


def drawn_order(n: int, seed: int) -> list[int]:
    """Return the order in which `n` workflows are taken from a workload."""
    order: list[int] = np.argsort(
        draws.uniform_array(seed, "workflow order", np.arange(n)), kind="stable"
    ).tolist()
    return order
