"""`name(option=value, ...)`: how a policy is written in one line."""

from __future__ import annotations

import re

from traces.errors import InputError

_SPEC = re.compile(r"\s*([A-Za-z_][A-Za-z0-9_]*)\s*(?:\((.*)\))?\s*", re.DOTALL)


def parse(text: str, what: str) -> tuple[str, dict[str, str]]:
    """Return (name, options) of `name` or `name(option=value, ...)`. what: the setting, for messages.

    >>> parse("lookahead(horizon=2)", "evictor")
    ('lookahead', {'horizon': '2'})
    """
    match = _SPEC.fullmatch(text)
    if match is None:
        raise InputError(f"{what}={text}: expected a policy's name, or name(option=value, ...)")
    options: dict[str, str] = {}
    for part in split(match[2]) if match[2] else []:
        name, equals, value = part.partition("=")
        if not equals or not name.strip():
            raise InputError(
                f"{what}={text}: expected option=value inside the parentheses, got {part.strip()!r}"
            )
        options[name.strip()] = value.strip()
    return match[1], options


def split(text: str) -> list[str]:
    """Split at the commas that are outside brackets; raises InputError for an empty part.

    >>> split("lru,lifecycle(a=1,b=2)")
    ['lru', 'lifecycle(a=1,b=2)']
    """
    parts, depth, start = [], 0, 0
    for i, c in enumerate(text):
        depth += (c in "([{") - (c in ")]}")
        if c == "," and depth == 0:
            parts.append(text[start:i])
            start = i + 1
    parts.append(text[start:])
    if any(not p.strip() for p in parts) or depth != 0:
        raise InputError(f"{text!r}: an empty name or an unclosed bracket in a list")
    return [p.strip() for p in parts]
