"""The structured drafter's rule in its usual form, a dictionary for each state, to compare the flat arrays with."""

from __future__ import annotations

import sys
from typing import Any

import numpy as np
from numpy.typing import NDArray

from policies.api import Draft, Drafter, HostInfo, RequestView
from policies.drafters.structured import Structured

Ids = NDArray[np.uint32]


class Dictionaries(Drafter[dict[int, Any]]):
    """The structured drafter's rule on suffix automata with a dictionary for each state: the form to compare with."""

    label = "automaton of dictionaries"

    def __init__(self, rule: Structured) -> None:
        self.rule = rule

    def new_state(self, host: HostInfo) -> dict[int, Any]:
        """Return no automata."""
        return {"queries": {}}  # type: ignore[dict-item]

    def begin(self, state: Any, request: RequestView, prompt_ids: Ids) -> None:
        """Start a sequence in the query's automaton. Mutates state."""
        queries = state["queries"]
        automaton = queries.setdefault(request.query, DictAutomaton(self.rule.match_max + self.rule.longest))
        state[request.request] = [automaton, 0, 0, 0, -1]

    def commit(self, state: Any, request: int, tokens: Ids, blocks: NDArray[np.int8] | None = None) -> None:
        """Append the tokens. Mutates state."""
        automaton = state[request][0]
        for token in tokens.tolist():
            automaton.append(state[request], token)

    def finish(self, state: Any, request: int) -> None:
        """The sequence stays. Mutates state."""
        del state[request]

    def propose(self, state: Any, request: int, limit: int) -> Draft:
        """Return the same draft as the structured drafter."""
        automaton: DictAutomaton = state[request][0]
        found = automaton.consensus(
            state[request], self.rule.match_min, self.rule.match_max, min(limit, self.rule.longest)
        )
        tokens, counts, agreed, total = found
        return Draft(
            np.array(tokens, dtype=np.uint32),
            np.array([c / total for c in counts], dtype=np.float32),
            agreed,
            total,
            counts[0] if counts else 0,
        )


class DictAutomaton:
    """A suffix automaton with counted, dated states; a cursor is [automaton, last, active, reach, position]."""

    def __init__(self, depth: int) -> None:
        self.depth = depth
        self.next: list[dict[int, int]] = [{}]
        self.link, self.length, self.count, self.seen = [-1], [0], [0], [-1]
        self.words: list[int] = []
        self.after: list[int] = []

    def append(self, cursor: list[Any], token: int) -> None:
        """Append a token to a cursor's sequence. Mutates both."""
        _, last, active, reach, at = cursor
        position = len(self.words)
        self.words.append(token)
        self.after.append(-1)
        if at >= 0:
            self.after[at] = position
        last = self._extend(last, token)
        active = self.next[self._holding(active, reach)][token]
        reach = min(reach + 1, self.depth)
        active = up = self._holding(active, reach)
        while up:
            self.count[up] += 1
            self.seen[up] = position
            up = self.link[up]
        cursor[1:] = last, active, reach, position

    def consensus(
        self, cursor: list[Any], match_min: int, match_max: int, limit: int
    ) -> tuple[list[int], list[int], int, int]:
        """Return (tokens, occurrences so far along them, tokens that all agree on, matches)."""
        length = min(cursor[3], match_max)
        state = self._holding(cursor[2], length)
        if self.count[state] < 2 and state:
            state = self.link[state]
            length = min(length, self.length[state])
        while length >= match_min and not self.next[state]:
            state = self.link[state]
            length = self.length[state]
        if length < match_min or limit < 1:
            return [], [], 0, 0
        nexts = self.next[state]
        token = max(nexts, key=lambda w: (self.count[nexts[w]], self.seen[nexts[w]]))
        best = nexts[token]
        at = self.seen[best]
        tokens, counts = [token], [self.count[best]]
        while (at := self.after[at]) >= 0 and len(tokens) < limit:
            token = self.words[at]
            best = self.next[best][token]
            tokens.append(token)
            counts.append(self.count[best])
        return tokens, counts, counts.count(counts[0]), sum(self.count[s] for s in nexts.values())

    def memory_bytes(self) -> int:
        """Bytes of its dictionaries and lists, and of a whole number for each entry of the lists."""
        lists = (self.link, self.length, self.count, self.seen, self.words, self.after)
        held = sum(sys.getsizeof(part) + 28 * len(part) for part in lists)
        return held + sys.getsizeof(self.next) + sum(map(sys.getsizeof, self.next))

    def _holding(self, state: int, length: int) -> int:
        while state and self.length[self.link[state]] >= length:
            state = self.link[state]
        return state

    def _state(self, length: int, link: int, nexts: dict[int, int], count: int, seen: int) -> int:
        self.length.append(length)
        self.link.append(link)
        self.next.append(nexts)
        self.count.append(count)
        self.seen.append(seen)
        return len(self.next) - 1

    def _extend(self, last: int, token: int) -> int:
        known = self.next[last].get(token, -1)
        if known >= 0:
            return known if self.length[known] == self.length[last] + 1 else self._split(last, token, known)
        new = self._state(self.length[last] + 1, 0, {}, 0, -1)
        at = last
        while at >= 0 and token not in self.next[at]:
            self.next[at][token] = new
            at = self.link[at]
        if at >= 0:
            known = self.next[at][token]
            same = self.length[known] == self.length[at] + 1
            self.link[new] = known if same else self._split(at, token, known)
        return new

    def _split(self, at: int, token: int, known: int) -> int:
        part = self._state(
            self.length[at] + 1, self.link[known], dict(self.next[known]), self.count[known], self.seen[known]
        )
        self.link[known] = part
        while at >= 0 and self.next[at].get(token) == known:
            self.next[at][token] = part
            at = self.link[at]
        return part
