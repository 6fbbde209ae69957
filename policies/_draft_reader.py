"""Drafts read from a suffix pool: the buffers that the compiled functions fill, and the `Draft` made of them."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from policies import _draft_paths as paths
from policies._draft_fast import plain, views
from policies._draft_pool import History, Sequence, SuffixPool
from policies.views import Draft

NOTHING = Draft(tokens=np.zeros(0, dtype=np.uint32), confidence=np.zeros(0, dtype=np.float32))
_NO_TAIL = np.zeros(0, dtype=np.uint32)


class Reader:
    """Reads one kind of pool. longest: the most tokens a draft has. Its methods mutate its buffers only."""

    def __init__(self, longest: int, *, fast: bool) -> None:
        self._fast = fast
        self._words = np.zeros(2 * longest, dtype=np.int32)
        self._shares = np.zeros(2 * longest, dtype=np.float64)
        self._said = np.zeros(paths.SAID, dtype=np.int64)
        self._buffers = views(fast, self._words, self._shares, self._said)
        self._consensus: Any = paths.consensus if fast else plain(paths.consensus)
        self._frequent: Any = paths.frequent if fast else plain(paths.frequent)

    def consensus(
        self, pool: SuffixPool, at: Sequence | History, tail: NDArray[np.uint32] | None,
        match_min: int, match_max: int, limit: int,
    ) -> int:  # fmt: skip
        """Find AgentSpec's draft after the end of a sequence, or after `tail` in a history; return what matched."""
        S, E, H, T, _, C, _ = pool.arrays
        cursor, root = self._place(at)
        self._consensus(
            S, E, H, T, C, cursor, root, self._view(tail), match_min, match_max, limit, *self._buffers
        )
        return int(self._said[paths.MATCHED])

    def frequent(
        self, pool: SuffixPool, at: Sequence | History, tail: NDArray[np.uint32] | None,
        depth: int, limit: int, factor: float, offset: float, floor: float,
    ) -> float:  # fmt: skip
        """Find SuffixDecoding's path; return its score. `draft` makes the draft of it."""
        S, E, H, _, _, C, _ = pool.arrays
        cursor, root = self._place(at)
        score: float = self._frequent(
            S, E, H, C, cursor, root, self._view(tail), depth, limit, factor, offset, floor, *self._buffers
        )
        return score

    def draft(self) -> Draft:
        """Return what was found last."""
        drafted, matches, agreeing, consensus, _ = self._said.tolist()
        if not drafted:
            return NOTHING
        tokens = self._words[:drafted].copy().view(np.uint32)
        return Draft(tokens, self._shares[:drafted].astype(np.float32), consensus, matches, agreeing)

    def _place(self, at: Sequence | History) -> tuple[int, int]:
        return (at.cursor, 0) if isinstance(at, Sequence) else (-1, at.root)

    def _view(self, tail: NDArray[np.uint32] | None) -> Any:
        return views(self._fast, (_NO_TAIL if tail is None else tail).view(np.int32))[0]
