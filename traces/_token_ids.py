"""Token ids without their text: a keyed hash keeps which tokens are equal and nothing else.

The key is made from the source's own content. Whoever holds the source can make the same ids again; who holds
only the ids cannot run through the vocabulary to read them.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from traces import draws


def content_key(parts: Iterable[bytes]) -> bytes:
    """Return a 32-byte key made from `parts` in their order."""
    h = hashlib.blake2b(digest_size=32, person=b"foreserve-ids")
    for part in parts:
        h.update(len(part).to_bytes(8, "little"))
        h.update(part)
    return h.digest()


class KeyedIds:
    """Maps token ids to uint32 through a keyed hash, one to one. `of` mutates: it remembers what it gave."""

    def __init__(self, key: bytes) -> None:
        self._key = key
        self._given: dict[int, int] = {}
        self._taken: set[int] = set()

    def of(self, tokens: Iterable[int]) -> NDArray[np.uint32]:
        """Return uint32[n], equal where the tokens are equal."""
        return np.array([self._given.get(t) or self._new(t) for t in tokens], dtype=np.uint32)

    def _new(self, token: int) -> int:
        # Two of 100,000 tokens meet in 32 bits once in a while: the later one moves on. 0 is never given.
        for turn in range(2**16):
            message = token.to_bytes(8, "little") + turn.to_bytes(2, "little")
            value = int.from_bytes(hashlib.blake2b(message, key=self._key, digest_size=4).digest(), "little")
            if value and value not in self._taken:
                self._taken.add(value)
                self._given[token] = value
                return value
        raise OverflowError("no free 32-bit id left")


def block_units(ids: NDArray[np.uint32] | NDArray[np.uint64], block_tokens: int) -> NDArray[np.uint64]:
    """Return uint64[len(ids) // block_tokens]: one id for each full block, equal for equal blocks."""
    full = len(ids) // block_tokens
    mixed = draws.bits_array(0, "token-block", ids[: full * block_tokens].astype(np.int64))
    # Sums modulo 2^64 of independent hashes, weighted by place: no order of tokens is lost.
    units: NDArray[np.uint64] = (mixed.reshape(full, block_tokens) * _weights(block_tokens)).sum(
        axis=1, dtype=np.uint64
    )
    return units


@lru_cache(maxsize=8)
def _weights(block_tokens: int) -> NDArray[np.uint64]:
    return draws.bits_array(0, "token-block/place", np.arange(block_tokens)) | np.uint64(1)
