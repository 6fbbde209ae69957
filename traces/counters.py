"""Token counters by name: text to token ids under a keyed hash, so that equality stays and content goes.

words            one token a run of letters and digits, one a punctuation mark
bytes4           one token four bytes of UTF-8, the last may be shorter
tiktoken:<name>  a real tokenizer, where the `tokenizers` extra is installed and its vocabulary is at hand
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from traces import draws
from traces.errors import InputError, nearest

Counter = Callable[[str], NDArray[np.uint64]]
NAMES = ("words", "bytes4", "tiktoken:<encoding>")
_WORD = re.compile(r"\w+|[^\w\s]")


def counter(name: str, key: int = 0) -> tuple[Counter, bool]:
    """Return (function from text to uint64[tokens] keyed-hash ids, whether tokens are a real tokenizer's).

    Raises InputError for an unknown name, and where a tokenizer cannot be loaded.
    """
    if name == "words":
        return _words(key), False
    if name == "bytes4":
        return lambda text: hashed_ids(_bytes4(text), key), False
    if name.startswith("tiktoken:"):
        return _tiktoken(name.partition(":")[2], key), True
    raise InputError(nearest(name, NAMES, what="token counter"))


def hashed_ids(ids: NDArray[Any], key: int) -> NDArray[np.uint64]:
    """Return uint64[n]: token ids under the keyed hash."""
    return draws.bits_array(key, "token", ids) if len(ids) else np.zeros(0, np.uint64)


def block_units(ids: NDArray[np.uint64], block_tokens: int) -> NDArray[np.uint64]:
    """Return one 64-bit hash for each full block of `block_tokens` ids; a partial last block has none."""
    full = len(ids) // block_tokens
    if not full:
        return np.zeros(0, np.uint64)
    blocks = ids[: full * block_tokens].reshape(full, block_tokens)
    return draws.bits_array(0, "block", *blocks.T)


def _words(key: int) -> Counter:
    known: dict[str, int] = {}
    salt = key.to_bytes(16, "little", signed=True)

    def one(word: str) -> int:
        value = known.get(word)
        if value is None:
            digest = hashlib.blake2b(word.encode("utf-8", "surrogatepass"), digest_size=8, key=salt).digest()
            value = known[word] = int.from_bytes(digest, "little")
        return value

    return lambda text: np.array([one(w) for w in _WORD.findall(text)], dtype=np.uint64)


def _bytes4(text: str) -> NDArray[np.int64]:
    data = text.encode("utf-8", "surrogatepass")
    padded = data + b"\x00" * (-len(data) % 4)
    return np.frombuffer(padded, dtype="<u4").astype(np.int64)


def _tiktoken(encoding: str, key: int) -> Counter:
    try:
        import tiktoken
    except ImportError:
        raise InputError("token counter 'tiktoken': needs the 'tokenizers' extra of this package") from None
    try:
        tokenizer = tiktoken.get_encoding(encoding)
    except ValueError:
        raise InputError(
            nearest(encoding, tiktoken.list_encoding_names(), what="tiktoken encoding")
        ) from None
    except Exception as e:
        # The vocabulary is fetched on first use; without a network any of many transport errors arrives here.
        raise InputError(
            f"token counter 'tiktoken:{encoding}': vocabulary not at hand ({type(e).__name__})"
        ) from None
    return lambda text: hashed_ids(np.array(tokenizer.encode_ordinary(text), dtype=np.int64), key)
