"""Drafts read from a suffix pool: the buffers that the compiled functions fill, and the `Draft` made of them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from policies import _draft_paths as paths
from policies._draft_fast import plain, views
from policies._draft_pool import History, Run, SuffixPool
from policies.views import Draft

NOTHING = Draft(tokens=np.zeros(0, dtype=np.uint32), confidence=np.zeros(0, dtype=np.float32))


class Reader:
    """Reads one kind of pool. longest: the most tokens a draft has. Its methods mutate its buffers only."""

    def __init__(self, longest: int, *, fast: bool) -> None:
        self._fast = fast
        self._longest = longest
        self._consensus: Any = paths.consensus if fast else plain(paths.consensus)
        self._after: Any = paths.consensus_after if fast else plain(paths.consensus_after)
        self._frequent: Any = paths.frequent if fast else plain(paths.frequent)
        self._rows(2)

    def _rows(self, rows: int) -> tuple[Any, ...]:
        """Make new buffers: drafts are slices of them."""
        self._words = np.zeros(rows * self._longest, dtype=np.uint32)
        self._shares = np.zeros(rows * self._longest, dtype=np.float32)
        self._said = np.zeros(rows * paths.SAID, dtype=np.int64)
        self._buffers = views(self._fast, self._words.view(np.int32), self._shares, self._said)
        return self._buffers

    def consensus(
        self,
        pool: SuffixPool,
        sequences: Sequence[Run],
        match_min: int,
        match_max: int,
        limit: int,
        permille: int = 0,
    ) -> list[Draft]:
        """Return AgentSpec's draft after the end of each sequence (`_draft_paths.consensus`)."""
        S, E, H, T, _, C, _ = pool.arrays
        buffers = self._rows(len(sequences))
        cursors = views(self._fast, np.array([s.cursor for s in sequences], dtype=np.int32))
        self._consensus(
            S, E, H, T, C, *cursors, match_min, match_max, limit, permille, *buffers, self._longest
        )
        words, shares, longest = self._words, self._shares, self._longest
        said = self._said.tolist()
        out = []
        for start in range(0, len(sequences) * longest, longest):
            note = start // longest * paths.SAID
            n = said[note]
            if n:
                _, matches, agreeing, agreed, _ = said[note : note + paths.SAID]
                end = start + n
                out.append(Draft(words[start:end], shares[start:end], agreed, matches, agreeing))
            else:
                out.append(NOTHING)
        return out

    def matched(self, row: int) -> int:
        """Return how many tokens the draft of a row matched by, 0 if nothing did."""
        return int(self._said[row * paths.SAID + paths.MATCHED])

    def consensus_after(
        self,
        pool: SuffixPool,
        history: History,
        tail: NDArray[np.uint32],
        match_min: int,
        limit: int,
        permille: int = 0,
    ) -> int:
        """Find AgentSpec's draft after `tail` in a history; return how many tokens matched."""
        S, E, H, T, _, _, _ = pool.arrays
        tails = views(self._fast, tail.view(np.int32))
        self._after(S, E, H, T, history.root, *tails, match_min, limit, permille, *self._buffers)
        return self.matched(0)

    def frequent(
        self, pool: SuffixPool, at: Run | History, tail: NDArray[np.uint32],
        depth: int, limit: int, factor: float, offset: float, floor: float,
    ) -> float:  # fmt: skip
        """Find SuffixDecoding's path after the end of a sequence, or after `tail` in a history; return its score."""
        S, E, H, _, _, C, _ = pool.arrays
        cursor, root = (at.cursor, 0) if isinstance(at, Run) else (-1, at.root)
        tails = views(self._fast, tail.view(np.int32))
        score: float = self._frequent(
            S, E, H, C, cursor, root, *tails, depth, limit, factor, offset, floor, *self._buffers
        )
        return score

    def draft(self) -> Draft:
        """Return what `consensus_after` or `frequent` found last."""
        drafted, matches, agreeing, consensus, _ = self._said[: paths.SAID].tolist()
        if not drafted:
            return NOTHING
        return Draft(
            self._words[:drafted].copy(), self._shares[:drafted].copy(), consensus, matches, agreeing
        )
