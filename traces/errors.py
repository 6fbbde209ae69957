"""The one error a user sees: what was given, where, what is allowed, the nearest valid name."""

from __future__ import annotations

import difflib
from collections.abc import Iterable


class InputError(ValueError):
    """Input a user can mend. Every command line prints it as one line and exits with status 2."""


def at(path: object, line: int | None = None, field: str | None = None) -> str:
    """Format a place, `file:line: field`, for the front of an error.

    >>> at("w.csv", 3, "prompt_tokens")
    "w.csv:3: field 'prompt_tokens'"
    """
    place = str(path) if line is None else f"{path}:{line}"
    return place if field is None else f"{place}: field {field!r}"


def nearest(given: str, allowed: Iterable[str], *, what: str) -> str:
    """Say that `given` is no valid `what`, with the nearest valid name and the whole list.

    >>> nearest("lur", ["lru", "lfu"], what="evictor")
    "unknown evictor 'lur'; did you mean 'lru'? allowed: lfu, lru"
    """
    names = sorted(allowed)
    close = difflib.get_close_matches(given, names, n=1, cutoff=0.5)
    hint = f"; did you mean {close[0]!r}?" if close else ";"
    return f"unknown {what} {given!r}{hint} allowed: {', '.join(names) or '(none)'}"
