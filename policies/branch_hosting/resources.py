"""Versions of the resources that stages read and write."""

from __future__ import annotations


class Resources:
    """Current versions: 0 before any write. `write` mutates."""

    def __init__(self) -> None:
        self._versions: dict[int, int] = {}

    def read(self, keys: tuple[int, ...]) -> tuple[tuple[int, int], ...]:
        """Return (key, version) of each key as of now."""
        return tuple((k, self._versions.get(k, 0)) for k in keys)

    def write(self, key: int) -> int:
        """Give a key its next version; return it."""
        self._versions[key] = version = self._versions.get(key, 0) + 1
        return version
