"""Sessions that public sets hold more than once."""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Sequence

LEAST_SHARED = 3  # calls; shorter sessions coincide by chance


def near_duplicates(sessions: Sequence[Sequence[Hashable]]) -> set[int]:
    """Return the indices of sessions that repeat another: the same session recorded twice, or a fork of it.

    A session is given by one fingerprint a call (say, its token counts). Two are near-duplicates when at
    least half the calls of the shorter one, and at least 3, have a call of equal fingerprint in the other;
    the longer one is kept, of equals the first.
    """
    bags = [Counter(s) for s in sessions]
    having: dict[Hashable, list[int]] = {}
    out: set[int] = set()
    for i in sorted(range(len(sessions)), key=lambda i: (-len(sessions[i]), i)):
        met: Counter[int] = Counter()
        for call, count in bags[i].items():
            for j in having.get(call, ()):
                met[j] += min(count, bags[j][call])
        if any(n >= LEAST_SHARED and 2 * n >= len(sessions[i]) for n in met.values()):
            out.add(i)
            continue
        for call in bags[i]:
            having.setdefault(call, []).append(i)
    return out
