"""Random draws as a counter-based hash of (seed, purpose, ids...): no stream, no state, no order.

Two arms of a paired comparison that ask for the same (seed, purpose, ids) meet the same luck, and adding a
component never shifts another's draws (architecture law 2). The mixer is the splitmix64 finaliser.
"""

from __future__ import annotations

import hashlib
from functools import lru_cache

import numpy as np
from numpy.typing import ArrayLike, NDArray

_MASK = (1 << 64) - 1
_GAMMA = 0x9E3779B97F4A7C15
_M1 = 0xBF58476D1CE4E5B9
_M2 = 0x94D049BB133111EB


def mix(x: int) -> int:
    """Return the splitmix64 finaliser of `x`: a bijection on 64-bit integers."""
    x = (x + _GAMMA) & _MASK
    x = ((x ^ (x >> 30)) * _M1) & _MASK
    x = ((x ^ (x >> 27)) * _M2) & _MASK
    return x ^ (x >> 31)


@lru_cache(maxsize=4096)
def key(seed: int, purpose: str) -> int:
    """Return the 64-bit key of a named stream of draws."""
    digest = hashlib.blake2b(f"{seed}/{purpose}".encode(), digest_size=8).digest()
    return int.from_bytes(digest, "little")


def bits(seed: int, purpose: str, *ids: int) -> int:
    """Return 64 random bits that depend on nothing but the arguments."""
    x = key(seed, purpose)
    for i in ids:
        x = mix(x ^ (i & _MASK))
    return mix(x)


def uniform(seed: int, purpose: str, *ids: int) -> float:
    """Return a float in [0, 1) with 53 random bits.

    >>> uniform(0, "arrival", 3) == uniform(0, "arrival", 3)
    True
    """
    return (bits(seed, purpose, *ids) >> 11) * 2.0**-53


def bits_array(seed: int, purpose: str, *ids: ArrayLike) -> NDArray[np.uint64]:
    """Vectorised `bits`: `ids` broadcast together; element i equals `bits(seed, purpose, ids[0][i], ...)`."""
    arrays = np.broadcast_arrays(*[np.asarray(i, dtype=np.int64) for i in ids])
    x = np.full(arrays[0].shape, key(seed, purpose), dtype=np.uint64)
    for a in arrays:
        x = _mix_array(x ^ a.astype(np.uint64))
    return _mix_array(x)


def uniform_array(seed: int, purpose: str, *ids: ArrayLike) -> NDArray[np.float64]:
    """Vectorised `uniform`; float64 in [0, 1) of the broadcast shape of `ids`."""
    return (bits_array(seed, purpose, *ids) >> np.uint64(11)).astype(np.float64) * 2.0**-53


def _mix_array(x: NDArray[np.uint64]) -> NDArray[np.uint64]:
    with np.errstate(over="ignore"):
        x = x + np.uint64(_GAMMA)
        x = (x ^ (x >> np.uint64(30))) * np.uint64(_M1)
        x = (x ^ (x >> np.uint64(27))) * np.uint64(_M2)
        return x ^ (x >> np.uint64(31))
