"""log, exp and sine from additions, multiplications and divisions alone, and the variates built on them.

numpy's own differ in the last bit between CPUs, and a last bit can turn a rounded token count. IEEE
arithmetic does not differ, so that generated workloads are the same on every machine. Float64 arrays
throughout.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from traces import draws

Floats = NDArray[np.float64]
_LN2_HIGH = 0.693147180369123816490  # 32 leading bits of ln 2: exact products with small integers
_LN2_LOW = 1.90821492927058770002e-10
_SQRT_HALF = 0.7071067811865476


def log(x: Floats) -> Floats:
    """Return the natural logarithm of positive `x`, to a few units of the last place."""
    mantissa, exponent = np.frexp(x)
    low = mantissa < _SQRT_HALF
    mantissa = np.where(low, mantissa * 2.0, mantissa)
    power = (exponent - low).astype(np.float64)
    # ln m = 2 artanh((m - 1) / (m + 1)), whose argument is at most 0.172 in size
    s = (mantissa - 1.0) / (mantissa + 1.0)
    square = s * s
    series = np.full_like(s, 1.0 / 25.0)
    for odd in range(23, 0, -2):
        series = series * square + 1.0 / odd
    return power * _LN2_HIGH + (power * _LN2_LOW + 2.0 * s * series)


def exp(x: Floats) -> Floats:
    """Return e to the power of `x`, |x| below 700, to a few units of the last place."""
    power = np.rint(x * 1.4426950408889634)
    rest = (x - power * _LN2_HIGH) - power * _LN2_LOW
    series = np.ones_like(rest)
    for n in range(16, 0, -1):
        series = series * (rest / n) + 1.0
    return np.ldexp(series, power.astype(np.int64).astype(np.int32))


def sin_turns(x: Floats) -> Floats:
    """Return the sine of `x` full turns (1 is a whole period)."""
    turn = x - np.rint(x)  # -0.5 to 0.5
    turn = np.where(np.abs(turn) > 0.25, np.where(turn > 0, 0.5, -0.5) - turn, turn)
    angle = turn * 6.283185307179586
    square = angle * angle
    series = np.ones_like(angle)
    for n in range(22, 0, -2):
        series = 1.0 - series * square / (n * (n + 1.0))
    return angle * series


def exponential(seed: int, purpose: str, *ids: NDArray[np.int64]) -> Floats:
    """Return exponential variates of mean 1, one for each element of the broadcast `ids`."""
    return -log(1.0 - draws.uniform_array(seed, purpose, *ids))


def normal(seed: int, purpose: str, *ids: NDArray[np.int64]) -> Floats:
    """Return standard normal variates (Marsaglia's polar method), one for each element of broadcast `ids`."""
    grids = np.broadcast_arrays(*ids)
    flat = [np.ravel(g) for g in grids]
    out = np.zeros(flat[0].shape)
    left = np.arange(len(out))
    attempt = 0
    while len(left):
        at = [f[left] for f in flat]
        a = 2.0 * draws.uniform_array(seed, f"{purpose} a{attempt}", *at) - 1.0
        b = 2.0 * draws.uniform_array(seed, f"{purpose} b{attempt}", *at) - 1.0
        square = a * a + b * b
        inside = (square < 1.0) & (square > 0.0)
        s = square[inside]
        out[left[inside]] = a[inside] * np.sqrt(-2.0 * log(s) / s)
        left = left[~inside]
        attempt += 1
    return out.reshape(grids[0].shape)


def gamma(shape: float, seed: int, purpose: str, ids: NDArray[np.int64]) -> Floats:
    """Return gamma variates of scale 1 (Marsaglia and Tsang 2000), one for each of `ids`[n]."""
    raised = shape if shape >= 1.0 else shape + 1.0
    d = raised - 1.0 / 3.0
    c = 1.0 / np.sqrt(9.0 * d)
    out = np.zeros(len(ids))
    left = np.arange(len(ids))
    attempt = 0
    while len(left):
        at = ids[left]
        z = normal(seed, f"{purpose} n{attempt}", at)
        u = 1.0 - draws.uniform_array(seed, f"{purpose} u{attempt}", at)
        root = 1.0 + c * z
        cube = root * root * root
        good = root > 0.0
        bound = 0.5 * z * z + d * (1.0 - cube + log(np.where(good, cube, 1.0)))
        good &= log(u) < bound
        out[left[good]] = d * cube[good]
        left = left[~good]
        attempt += 1
    if shape < 1.0:  # gamma(k) = gamma(k + 1) * u^(1/k)
        u = 1.0 - draws.uniform_array(seed, f"{purpose} boost", ids)
        out = out * exp(np.maximum(log(u) / shape, -690.0))
    return out
