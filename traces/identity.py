"""Identity of text without the text: a keyed hash that keeps which pieces are equal and nothing else.

Importers whose sources are texts (questions, titles, arguments) turn each piece into a number here, where the text
is. The key is public, so that whoever holds the source makes the same numbers again.
"""

from __future__ import annotations

import hashlib
import json
import re
from functools import lru_cache
from typing import Any

from traces.draws import mix

BYTES_PER_TOKEN = (444, 100)  # English of HoVer's claims in cl100k: 4.44 UTF-8 bytes a token
_KEY = b"foreserve/identity/1"
_NOT_WORD = re.compile(r"[\W_]+")


@lru_cache(maxsize=1 << 16)
def identity(kind: str, *parts: str | int) -> int:
    """Return a number from 0 to 2^63-1, equal for equal (kind, parts); a text and a number are never equal.

    >>> identity("title", "a", "b") == identity("title", "ab")
    False
    """
    h = hashlib.blake2b(digest_size=8, key=_KEY, person=kind.encode()[:16])
    for part in parts:
        data = part.encode() if isinstance(part, str) else str(part).encode() + b"#"
        h.update(len(data).to_bytes(8, "little") + data)
    return int.from_bytes(h.digest(), "little") >> 1


def joined(*numbers: int) -> int:
    """Return a number from 0 to 2^63-1 that depends on all of `numbers` and their order."""
    x = len(numbers)
    for n in numbers:
        x = mix(x ^ n)
    return x >> 1


def text_tokens(text: str) -> int:
    """Return the length of a text in tokens, at least 1, by its UTF-8 bytes (`BYTES_PER_TOKEN`)."""
    return max(1, len(text.encode()) * BYTES_PER_TOKEN[1] // BYTES_PER_TOKEN[0])


def plain(text: str) -> str:
    """Return a text in lower case, each run of punctuation and white space one space.

    >>> plain("The  Beatles' (UK)")
    'the beatles uk'
    """
    return _NOT_WORD.sub(" ", text.casefold()).strip()


def canonical_json(value: Any) -> str:
    """Return JSON text that is equal for equal values, whatever the order of keys (numbers as written)."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False, default=str)
