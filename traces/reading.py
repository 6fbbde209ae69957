"""Bounded reading of trace files: plain or gzip, whole or line by line, JSON records with named places.

Importers read through here, so that a file that is cut off, huge, binary or malformed ends in one clear line.
"""

from __future__ import annotations

import gzip
import hashlib
import io
import json
import zlib
from collections import Counter
from collections.abc import Iterator
from decimal import Decimal, InvalidOperation
from pathlib import Path
from typing import Any, BinaryIO, NoReturn, cast

from traces.errors import InputError, at

MAX_FILE_BYTES = 2 << 30  # of content, after decompression
MAX_LINE_BYTES = 64 << 20
_GZIP_MAGIC = b"\x1f\x8b"
_CHUNK_BYTES = 1 << 20


def open_bytes(path: Path) -> BinaryIO:
    """Open a plain or gzip file for reading bytes; the content decides which, not the name."""
    try:
        if path.is_dir():
            raise InputError(f"{path}: a folder, expected a file")
        if not path.is_file():
            raise InputError(f"{path}: {'not a regular file' if path.exists() else 'no such file'}")
        if path.stat().st_size > MAX_FILE_BYTES:
            raise InputError(f"{path}: a trace is at most {MAX_FILE_BYTES >> 30} GiB; split it")
        file = path.open("rb")
    except OSError as e:
        raise InputError(f"{path}: {e.strerror}") from None
    magic = file.read(2)
    file.seek(0)
    if magic == _GZIP_MAGIC:
        file.close()  # a GzipFile closes only a file that it opened itself
        return cast(BinaryIO, gzip.open(path, "rb"))
    return file


def read_bytes(path: Path, limit_bytes: int = MAX_FILE_BYTES) -> bytes:
    """Return the whole content, decompressed; InputError when it is larger than `limit_bytes`."""
    parts: list[bytes] = []
    size = 0
    with open_bytes(path) as file:
        while chunk := read_some(file, path, _CHUNK_BYTES):
            size += len(chunk)
            if size > limit_bytes:
                raise InputError(f"{path}: content is larger than {limit_bytes} bytes")
            parts.append(chunk)
    return b"".join(parts)


def head_bytes(path: Path, size: int = 1 << 16) -> bytes:
    """Return the first bytes of the content, decompressed; b"" for a folder."""
    if path.is_dir():
        return b""
    with open_bytes(path) as file:
        return read_some(file, path, size)


def lines(path: Path) -> Iterator[tuple[int, bytes]]:
    """Yield (line number from 1, line without its end) of every line that is not blank."""
    size = 0
    with open_bytes(path) as file:
        number = 0
        while line := _readline(file, path, MAX_LINE_BYTES + 1):
            number += 1
            size += len(line)
            if len(line) > MAX_LINE_BYTES:
                raise InputError(f"{at(path, number)}: a line is at most {MAX_LINE_BYTES >> 20} MiB")
            if size > MAX_FILE_BYTES:
                raise InputError(f"{at(path, number)}: content is larger than {MAX_FILE_BYTES} bytes")
            text = line.strip()
            if text:
                yield number, text


def sha256(path: Path) -> str:
    """Return the hex digest of the file as stored."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def records(path: Path) -> Iterator[tuple[int, dict[str, Any]]]:
    """Yield (line number, object) of a JSON-lines file; fractions are Decimal, so that no digit is lost."""
    for number, line in lines(path):
        value = parse_json(line, path, number)
        if not isinstance(value, dict):
            raise InputError(f"{at(path, number)}: got a JSON {kind_of(value)}, expected an object")
        yield number, value


def parse_json(text: bytes, path: Path, line: int | None = None) -> Any:
    """Parse strict JSON (no NaN, no Infinity, no duplicate check); InputError says where it breaks."""
    try:
        return json.loads(text.decode("utf-8"), parse_float=Decimal, parse_constant=no_constant)
    except UnicodeDecodeError:
        raise InputError(f"{at(path, line)}: not UTF-8 text") from None
    except json.JSONDecodeError as e:
        column = e.colno if line is not None or e.lineno == 1 else f"{e.colno} of line {e.lineno}"
        raise InputError(f"{at(path, line)}: not JSON at column {column}: {e.msg}") from None
    except RecursionError:
        raise InputError(f"{at(path, line)}: JSON is nested too deeply") from None
    except (InvalidOperation, ValueError) as e:
        raise InputError(f"{at(path, line)}: not JSON: {json_reason(e)}") from None


def json_reason(error: Exception) -> str:
    """Return why JSON text was refused, in one line."""
    if isinstance(error, json.JSONDecodeError):
        return error.msg
    if "integer string conversion" in str(error):  # Python's guard against numbers of thousands of digits
        return "a number has too many digits"
    return " ".join(str(error).split()) or type(error).__name__


def shown(value: object) -> str:
    """Return a short one-line rendering of a value for an error."""
    if isinstance(value, bool) or value is None:
        return json.dumps(value)
    if isinstance(value, int) and value.bit_length() > 200:
        return f"a whole number of {value.bit_length()} bits"
    text = str(value) if isinstance(value, Decimal) else repr(value)
    return text if len(text) <= 40 else text[:37] + "..."


def kind_of(value: object) -> str:
    """Return the JSON name of a value's type."""
    names = {bool: "boolean", int: "number", Decimal: "number", str: "text", list: "list", dict: "object"}
    return names.get(type(value), "null")


def base_provenance(path: Path, form: str, records_read: int, options: dict[str, Any]) -> dict[str, Any]:
    """Return what every importer states: file name (no folder), digest, format, record count, options."""
    return {
        "source": path.name,
        "sha256": sha256(path),
        "format": form,
        "records": records_read,
        "options": options,
    }


def counted(counts: Counter[str]) -> dict[str, int]:
    """Return counts as a plain dict in the order of their names: the same provenance on every run."""
    return {name: counts[name] for name in sorted(counts)}


def read_some(file: BinaryIO, path: Path, size: int) -> bytes:
    """Read at most `size` bytes; InputError when gzip content is cut off or damaged."""
    try:
        return file.read(size)
    except (EOFError, gzip.BadGzipFile, zlib.error, OSError) as e:
        _broken(path, e)


def _readline(file: BinaryIO, path: Path, size: int) -> bytes:
    try:
        return file.readline(size)
    except (EOFError, gzip.BadGzipFile, zlib.error, OSError) as e:
        _broken(path, e)


def _broken(path: Path, error: Exception) -> NoReturn:
    if isinstance(error, EOFError):
        raise InputError(f"{path}: gzip content is cut off") from None
    raise InputError(f"{path}: gzip content is damaged: {json_reason(error)}") from None


def no_constant(name: str) -> NoReturn:
    """Refuse NaN and Infinity, which Python's JSON reader would accept."""
    raise ValueError(f"{name} is not a number")


def text_lines(data: bytes, path: Path) -> Iterator[tuple[int, str]]:
    """Yield (line number from 1, text without its end) of every line of `data` that is not blank."""
    for number, line in enumerate(io.BytesIO(data), start=1):
        try:
            text = line.decode("utf-8").strip()
        except UnicodeDecodeError:
            raise InputError(f"{at(path, number)}: not UTF-8 text") from None
        if text:
            yield number, text
