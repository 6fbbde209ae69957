"""Objects of one large JSON array, read piece by piece: a file of the array never has to fit in memory."""

from __future__ import annotations

import codecs
import json
from collections.abc import Iterator
from decimal import Decimal, InvalidOperation
from pathlib import Path
from typing import Any, BinaryIO

from traces.errors import InputError, at
from traces.reading import (
    MAX_FILE_BYTES,
    MAX_LINE_BYTES,
    json_reason,
    kind_of,
    no_constant,
    open_bytes,
    read_some,
)

_BLANK = " \t\r\n"
_CHUNK_BYTES = 1 << 20


def array_records(path: Path) -> Iterator[tuple[int, dict[str, Any]]]:
    """Yield (line on which it begins, object) of a file that is one JSON array of objects."""
    with open_bytes(path) as file:
        text = _Pieces(file, path)
        text.take("[")
        more = text.peek() != "]" or text.take("]") == ""
        while more:
            text.peek()
            line = text.line
            value = text.value()
            if not isinstance(value, dict):
                raise InputError(f"{at(path, line)}: got a JSON {kind_of(value)}, expected an object")
            yield line, value
            more = text.take(",]") == ","
        if text.peek():
            raise InputError(f"{at(path, text.line)}: content after the end of the JSON array")


class _Pieces:
    """Text of a file from `position` on, extended as needed. Mutated by every method."""

    def __init__(self, file: BinaryIO, path: Path) -> None:
        self.file, self.path = file, path
        self.decoder = codecs.getincrementaldecoder("utf-8-sig")()
        self.json = json.JSONDecoder(parse_float=Decimal, parse_constant=no_constant)
        self.buffer, self.position, self.line = "", 0, 1
        self.read_bytes = 0

    def peek(self) -> str:
        """Skip white space; return the next character, "" at the end of the file."""
        while True:
            start = self.position
            while self.position < len(self.buffer) and self.buffer[self.position] in _BLANK:
                self.position += 1
            self.line += self.buffer.count("\n", start, self.position)
            if self.position < len(self.buffer):
                return self.buffer[self.position]
            if not self._more():
                return ""

    def take(self, allowed: str) -> str:
        """Consume and return the next character, which must be one of `allowed`."""
        found = self.peek()
        if not found or found not in allowed:
            got = repr(found) if found else "the end of the file (cut off?)"
            raise InputError(
                f"{at(self.path, self.line)}: got {got}, expected {' or '.join(map(repr, allowed))}"
            )
        self.position += 1
        return found

    def value(self) -> Any:
        """Consume and return the JSON value at the position."""
        while True:
            try:
                value, end = self.json.raw_decode(self.buffer, self.position)
            except RecursionError:
                raise InputError(f"{at(self.path, self.line)}: JSON is nested too deeply") from None
            except (InvalidOperation, ValueError) as e:
                # A value cut by the end of the buffer looks like a malformed one: read on and try again.
                if self._more():
                    continue
                raise InputError(f"{at(self.path, self.line)}: not JSON: {json_reason(e)}") from None
            self.line += self.buffer.count("\n", self.position, end)
            self.position = end
            return value

    def _more(self) -> bool:
        chunk = read_some(self.file, self.path, max(_CHUNK_BYTES, len(self.buffer) - self.position))
        self.read_bytes += len(chunk)
        try:
            text = self.decoder.decode(chunk, final=not chunk)
        except UnicodeDecodeError:
            raise InputError(f"{at(self.path, self.line)}: not UTF-8 text") from None
        self.buffer, self.position = self.buffer[self.position :] + text, 0
        if self.read_bytes > MAX_FILE_BYTES:
            raise InputError(f"{at(self.path, self.line)}: content is larger than {MAX_FILE_BYTES} bytes")
        if len(self.buffer) > 2 * MAX_LINE_BYTES:
            raise InputError(f"{at(self.path, self.line)}: a record is at most {MAX_LINE_BYTES >> 20} MiB")
        return bool(chunk)
