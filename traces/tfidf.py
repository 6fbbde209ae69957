"""Term weights (tf-idf) of short texts, and how alike two are: the plain retriever of importers."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Iterable, Sequence

_CAMEL = re.compile(r"(?<=[a-z0-9])(?=[A-Z])")
_TERM = re.compile(r"[a-z0-9]+")


def terms(text: str) -> list[str]:
    """Return the words of a text in lower case; names of code are taken apart.

    >>> terms("getUser_name of v2")
    ['get', 'user', 'name', 'of', 'v2']
    """
    return _TERM.findall(_CAMEL.sub(" ", text).lower())


class TfIdf:
    """Cosine of (1 + ln tf) (1 + ln((1 + N) / (1 + df))) vectors; df over the documents given. Read-only once made."""

    def __init__(self, documents: Iterable[Sequence[str]]) -> None:
        self._frequency: Counter[str] = Counter()
        self._documents = 0
        for words in documents:
            self._documents += 1
            self._frequency.update(set(words))

    def weight(self, term: str) -> float:
        """Return how rare a term is, at least 1."""
        return 1.0 + math.log((1 + self._documents) / (1 + self._frequency[term]))

    def score(self, query: Sequence[str], document: Sequence[str]) -> float:
        """Return the likeness in [0, 1], rounded to 4 digits so that every machine's is the same."""
        left, right = self._vector(query), self._vector(document)
        dot = sum(left[t] * right[t] for t in sorted(left.keys() & right.keys()))
        size = math.sqrt(self._square(left) * self._square(right))
        return round(min(dot / size, 1.0), 4) if size else 0.0

    def _vector(self, words: Sequence[str]) -> dict[str, float]:
        return {t: (1.0 + math.log(n)) * self.weight(t) for t, n in Counter(words).items()}

    @staticmethod
    def _square(vector: dict[str, float]) -> float:
        return sum(vector[t] ** 2 for t in sorted(vector))
