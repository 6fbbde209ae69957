"""Tokenizers for importers that get text: found by name or file, never downloaded behind the user's back."""

from __future__ import annotations

import base64
import binascii
import importlib
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from traces.errors import InputError, at, nearest
from traces.reading import lines

Tokenize = Callable[[str], Sequence[int]]


class Tokenizer:
    """Text to token ids, and the text of each token: `pieces`. Read-only.

    encode: text -> ids. spell: (text, ids) -> the text of each id, "\ufffd" for bytes that are no whole character.
    """

    def __init__(self, encode: Tokenize, spell: Callable[[str, Sequence[int]], list[str]]) -> None:
        self._encode = encode
        self._spell = spell

    def __call__(self, text: str) -> Sequence[int]:
        """Return the ids of a text."""
        return self._encode(text)

    def pieces(self, text: str) -> tuple[Sequence[int], list[str]]:
        """Return the ids of a text and the text of each, as many."""
        ids = self._encode(text)
        return ids, self._spell(text, ids)


# How a ranks file's text is split before merging: published with each encoding, not part of the file.
_SPLIT = {
    "cl100k_base": (
        r"'(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?+\p{L}++|\p{N}{1,3}+| ?[^\s\p{L}\p{N}]++[\r\n]*+"
        r"|\s++$|\s*[\r\n]|\s+(?!\S)|\s"
    ),
}


def load(tokenizer: str) -> Tokenizer:
    """Return a function from text to token ids; special tokens in the text are read as plain text.

    tokenizer: a `*.tiktoken` ranks file named after its encoding (`cl100k_base.tiktoken`), a tokenizers
    `*.json` file, or the name of an encoding that the installed tiktoken has at hand. Raises InputError.
    """
    path = Path(tokenizer)
    if path.suffix == ".tiktoken":
        return _from_ranks(path)
    if path.suffix == ".json":
        return _from_json(path)
    tiktoken = _package("tiktoken", tokenizer)
    allowed = tiktoken.list_encoding_names()
    if tokenizer not in allowed:
        raise InputError(nearest(tokenizer, allowed, what="tokenizer") + ", or a file *.tiktoken or *.json")
    try:
        return _tiktoken(tiktoken.get_encoding(tokenizer))
    except Exception as e:  # whatever its own loader raises: no network, a proxy, a wrong digest
        raise InputError(
            f"tokenizer {tokenizer!r} could not be loaded ({type(e).__name__});"
            " give a file *.tiktoken or *.json"
        ) from None


def _tiktoken(encoding: Any) -> Tokenizer:
    def spell(_: str, ids: Sequence[int]) -> list[str]:
        return [encoding.decode_single_token_bytes(i).decode(errors="replace") for i in ids]

    return Tokenizer(encoding.encode_ordinary, spell)


def _from_ranks(path: Path) -> Tokenizer:
    split = _SPLIT.get(path.stem)
    if split is None:
        raise InputError(f"{path}: {nearest(path.stem, _SPLIT, what='encoding of a ranks file')}")
    ranks: dict[bytes, int] = {}
    for line, text in lines(path):
        try:
            token, rank = text.split()
            ranks[base64.b64decode(token, validate=True)] = int(rank)
        except (ValueError, binascii.Error):
            raise InputError(f"{at(path, line)}: expected a base64 token and its rank") from None
    missing = [b for b in range(256) if bytes([b]) not in ranks]
    if missing:
        raise InputError(f"{path}: no rank for the single byte 0x{missing[0]:02x}: the file is cut off")
    tiktoken = _package("tiktoken", str(path))
    return _tiktoken(tiktoken.Encoding(path.stem, pat_str=split, mergeable_ranks=ranks, special_tokens={}))


def _from_json(path: Path) -> Tokenizer:
    if not path.is_file():
        raise InputError(f"{path}: no such file")
    tokenizers = _package("tokenizers", str(path))
    try:
        inner = tokenizers.Tokenizer.from_file(str(path))
    except Exception as e:  # the package raises bare Exception
        raise InputError(f"{path}: not a tokenizers file ({' '.join(str(e).split())[:80]})") from None

    def encode(text: str) -> list[int]:
        return list(inner.encode(text, add_special_tokens=False).ids)

    def spell(text: str, _: Sequence[int]) -> list[str]:
        return [text[a:b] for a, b in inner.encode(text, add_special_tokens=False).offsets]

    return Tokenizer(encode, spell)


def _package(name: str, given: str) -> Any:
    try:
        return importlib.import_module(name)
    except ImportError:
        raise InputError(f"tokenizer {given!r} needs the package {name}: pip install {name}") from None
