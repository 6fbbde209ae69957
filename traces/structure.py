"""Semantic blocks of a request: paired delimiters, read from its tokens' text by a pushdown automaton.

AgentSpec (section 4.1, listing in A.1) names the blocks of an application by groups of (open, close) pairs; all pairs
of a group delimit one kind of block, and text outside every pair is a kind of its own. Rules, where the paper is
silent: the innermost open pair decides; its closing delimiter goes before any opening one; among opening ones
the longest wins, so that a delimiter that may still grow into a longer one waits for the next character; a
delimiter may come in pieces, over several tokens; what is open at the end of a generation just ends.
"""

from __future__ import annotations

import ast
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import lru_cache

from traces.errors import InputError

OUTSIDE = 0
_WANTED = "a list of groups, each a list of (open, close) pairs of texts"
_TOKENS_REMEMBERED = 1 << 17


@dataclass(frozen=True, slots=True)
class Pair:
    """Two delimiters and the kind of block they enclose: 1 for the first group."""

    opening: str
    closing: str
    block: int


class Structure:
    """The delimiters of an application. Read-only but for what it remembers of tokens' texts.

    groups: the pairs of each group. Raises InputError for an empty delimiter or an opening one given twice.
    """

    def __init__(self, groups: tuple[tuple[tuple[str, str], ...], ...]) -> None:
        self.pairs = tuple(Pair(a, b, g) for g, pairs in enumerate(groups, 1) for a, b in pairs)
        self.opens: dict[str, Pair] = {}
        for pair in self.pairs:
            if not pair.opening or not pair.closing:
                raise InputError(f"structure: a delimiter of group {pair.block} is empty")
            if pair.opening in self.opens:
                raise InputError(f"structure: {pair.opening!r} opens two pairs")
            self.opens[pair.opening] = pair
        self.longest = max((len(p.opening) for p in self.pairs), default=0)
        # What a text may be while some opening delimiter is still to come in full.
        self.prefixes = frozenset(p.opening[:n] for p in self.pairs for n in range(1, len(p.opening)))
        self._first = frozenset(x[0] for p in self.pairs for x in (p.opening, p.closing))
        self._texts: dict[int, str] = {}

    def text(self, token: int, token_text: Callable[[int], str]) -> str:
        """Return the token's text, empty where it holds no first character of a delimiter. Remembers."""
        text = self._texts.get(token)
        if text is None:
            if len(self._texts) >= _TOKENS_REMEMBERED:
                self._texts.clear()
            text = token_text(token)
            if self._first.isdisjoint(text):
                text = ""
            self._texts[token] = text
        return text


@lru_cache(maxsize=256)
def parse_structure(text: str) -> Structure:
    """Read the `structure` of a request: a Python literal, a list of groups of (open, close) pairs.

    Raises InputError in one line. Equal texts give one object.

    >>> parse_structure('[[("$$", "$$"), ("$", "$")], [("<a>", "</a>")]]').pairs[2].block
    2
    """
    if len(text) > 1 << 16:
        raise InputError(f"structure: {len(text)} characters, at most {1 << 16} are read")
    try:
        value = ast.literal_eval(text.strip())
    except (ValueError, SyntaxError, MemoryError, RecursionError):
        raise InputError(f"structure={_short(text)}: no Python literal; expected {_WANTED}") from None
    if not isinstance(value, list | tuple):
        raise InputError(f"structure={_short(text)}: expected {_WANTED}")
    for group in value:
        ok = isinstance(group, list | tuple) and all(
            isinstance(p, list | tuple) and len(p) == 2 and all(isinstance(x, str) for x in p) for p in group
        )
        if not ok:
            raise InputError(f"structure: group {_short(repr(group))}: expected {_WANTED}")
    return Structure(tuple(tuple((a, b) for a, b in group) for group in value))


@dataclass(slots=True)
class Blocks:
    """Where one request is: the pairs that are open, and the text that may yet become a delimiter."""

    structure: Structure
    stack: list[Pair] = field(default_factory=list)
    pending: str = ""

    @property
    def block(self) -> int:
        """Block of the innermost open pair, OUTSIDE if none is open."""
        return self.stack[-1].block if self.stack else OUTSIDE

    def feed(self, token: int, token_text: Callable[[int], str]) -> None:
        """Read one token. Mutates; O(1) amortised but for the length of the delimiters."""
        text = self.structure.text(token, token_text)
        if text:
            self.read(self.pending + text)
        elif self.pending:
            self.read(self.pending + token_text(token))

    def read(self, text: str, *, last: bool = False) -> None:
        """Read `text` (pending text first); keep what may yet become a delimiter, unless it is the `last`. Mutates."""
        s = self.structure
        i = 0
        while i < len(text):
            closing = self.stack[-1].closing if self.stack else ""
            if closing and text.startswith(closing, i):
                self.stack.pop()
                i += len(closing)
                continue
            rest = text[i : i + s.longest + len(closing)]
            open_ended = i + len(rest) == len(text) and not last
            if open_ended and (rest in s.prefixes or (closing and closing.startswith(rest))):
                self.pending = rest
                return
            for n in range(min(s.longest, len(rest)), 0, -1):
                pair = s.opens.get(rest[:n])
                if pair is not None:
                    self.stack.append(pair)
                    i += n
                    break
            else:
                i += 1
        self.pending = ""


def _short(text: str) -> str:
    return repr(text if len(text) <= 60 else text[:57] + "...")
