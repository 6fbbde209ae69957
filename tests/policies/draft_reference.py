"""Brute force: what the drafters' rules say, by scanning whole histories. Shares no code with the policies."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from fractions import Fraction

Timed = list[tuple[int, int]]  # (token, when it came)


def ngram(tokens: list[int], n_min: int, n_max: int, k: int) -> list[int]:
    """Slide a window over the text from its start for every length, longest first."""
    for n in range(n_max, n_min - 1, -1):
        tail = tokens[-n:]
        for start in range(len(tokens) - n):
            if n <= len(tokens) and tokens[start : start + n] == tail:
                return tokens[start + n : start + n + k]
    return []


def consensus(
    segments: Sequence[Timed], tail: Sequence[int], match_min: int, match_max: int, limit: int
) -> tuple[list[int], int, int, int, list[float]]:
    """Return (draft, n, c, |CT*|, shares) of the longest tail that occurred with something after it."""
    for length in range(min(match_max, len(tail)), match_min - 1, -1):
        wanted = list(tail[len(tail) - length :])
        rests: list[Timed] = []
        for segment in segments:
            words = [w for w, _ in segment]
            for start in range(len(words) - length):
                if words[start : start + length] == wanted:
                    rests.append(segment[start + length :])
        if not rests:
            continue
        counts = Counter(rest[0][0] for rest in rests)
        latest = {rest[0][0]: rest[0][1] for rest in sorted(rests, key=lambda r: r[0][1])}
        first = max(counts, key=lambda w: (counts[w], latest[w]))
        group = [[w for w, _ in rest] for rest in rests if rest[0][0] == first]
        newest = max((rest for rest in rests if rest[0][0] == first), key=lambda r: r[0][1])
        draft = [w for w, _ in newest][:limit]
        shares = [sum(g[: i + 1] == draft[: i + 1] for g in group) / len(rests) for i in range(len(draft))]
        agreed = 0
        while agreed < len(draft) and all(g[: agreed + 1] == draft[: agreed + 1] for g in group):
            agreed += 1
        return draft, len(rests), len(group), agreed, shares
    return [], 0, 0, 0, []


def suffix_path(
    texts: Sequence[Sequence[int]], pattern: Sequence[int], depth: int, k: int, factor: float, floor: float
) -> tuple[list[int], list[Fraction], Fraction]:
    """Return (draft, products, score) of one tree that holds `texts` to a depth."""

    def count(words: Sequence[int]) -> int:
        n = len(words)
        return sum(list(t[i : i + n]) == list(words) for t in texts for i in range(len(t) - n + 1))

    best: tuple[list[int], list[Fraction], Fraction] = ([], [], Fraction(0))
    alphabet = sorted({w for t in texts for w in t})
    pattern = pattern[-depth:]
    for m in range(1, len(pattern)):
        string = list(pattern[-m:])
        if not count(string):
            break
        product, products, draft = Fraction(1), [], []
        while len(draft) < min(k, int(m * factor + 1e-6)) and len(string) < depth:
            before = count(string)
            word = max(alphabet, key=lambda w: (count([*string, w]), -w))
            after = count([*string, word])
            product *= Fraction(after, before)
            if not after or product < floor:
                break
            draft.append(word)
            products.append(product)
            string.append(word)
        if sum(products) >= best[2]:
            best = (draft, products, sum(products))
    return best
