"""Checked fields of nested JSON records: a defect becomes one InputError line with file and field path."""

from __future__ import annotations

from collections.abc import Sequence
from decimal import ROUND_HALF_EVEN, Decimal
from pathlib import Path
from typing import Any, TypeVar

from traces import store
from traces.errors import InputError, at, nearest
from traces.reading import head_bytes, lines, parse_json, read_bytes, shown

T = TypeVar("T")
_NAMES: dict[type, str] = {
    dict: "an object", list: "a list", str: "a text", int: "a whole number", Decimal: "a number"
}  # fmt: skip


def source_files(path: Path, suffixes: Sequence[str]) -> list[Path]:
    """Return `path` itself, or the files below the folder `path` with one of `suffixes`, sorted by name.

    Raises InputError when there is none.
    """
    if path.is_file():
        return [path]
    if not path.exists():
        raise InputError(f"{path}: no such file or folder")
    files = sorted(p for p in path.rglob("*") if p.is_file() and p.name.endswith(tuple(suffixes)))
    if not files:
        raise InputError(f"{path}: the folder holds no file named {' or '.join('*' + s for s in suffixes)}")
    return files


def head_of(path: Path, head: bytes, suffixes: Sequence[str]) -> bytes:
    """Return `head`; for a folder the first 64 KiB of its first file with one of `suffixes`, b"" if none."""
    if not path.is_dir():
        return head
    files = sorted(p for p in path.rglob("*") if p.is_file() and p.name.endswith(tuple(suffixes)))
    return head_bytes(files[0]) if files else b""


def wanted(only: Path | None) -> frozenset[str] | None:
    """Return the workflow names in a text file (one a line) or a `.workload`; None for None."""
    if only is None:
        return None
    if only.suffix == store.SUFFIX:
        return frozenset(store.open(only).workflow_names)
    return frozenset(text.decode(errors="replace") for _, text in lines(only))


def load_json(path: Path) -> Any:
    """Return the JSON value of a plain or gzipped file; fractions are Decimal."""
    return parse_json(read_bytes(path), path)


def get(record: Any, name: str, kind: type[T], path: Path, inside: str = "") -> T:
    """Return `record[name]` if it is of `kind` (whole numbers are Decimals, too; a bool is no number).

    `inside` is put before the field's name in an error, e.g. "requests[3].".
    """
    if not isinstance(record, dict):
        raise InputError(
            f"{at(path, None, inside.rstrip('.') or None)}: got {_kind(record)}, expected an object"
        )
    place = at(path, None, inside + name)
    if name not in record:
        raise InputError(f"{place}: missing; {nearest(name, record, what='field')}")
    value = record[name]
    if kind is Decimal and type(value) is int:
        value = Decimal(value)
    if not isinstance(value, kind) or isinstance(value, bool):
        raise InputError(f"{place}: got {_kind(value)}, expected {_NAMES[kind]}")
    return value


def get_or(record: Any, name: str, kind: type[T], default: T, path: Path, inside: str = "") -> T:
    """Return `record[name]` if it is of `kind`, `default` where it is missing or null."""
    if isinstance(record, dict) and record.get(name) is None:
        return default
    return get(record, name, kind, path, inside)


def objects(record: Any, name: str, path: Path, inside: str = "") -> list[dict[str, Any]]:
    """Return the list `record[name]`, each item of which must be an object."""
    rows = get(record, name, list, path, inside)
    for i, row in enumerate(rows):
        if not isinstance(row, dict):
            raise InputError(
                f"{at(path, None, f'{inside}{name}[{i}]')}: got {_kind(row)}, expected an object"
            )
    return rows


def get_at_least(record: Any, name: str, low: int, path: Path, inside: str = "") -> int:
    """Return the whole number `record[name]`, from `low` to 2^31-1."""
    value = get(record, name, int, path, inside)
    if not low <= value < 2**31:
        raise InputError(f"{at(path, None, inside + name)}: got {shown(value)}, allowed: {low} to 2^31-1")
    return value


def get_ns(record: Any, name: str, path: Path, inside: str = "") -> int:
    """Return `record[name]`, seconds from 0 to ten years, as integer nanoseconds rounded half to even."""
    value = get(record, name, Decimal, path, inside)
    if not 0 <= value < 315_576_000:
        raise InputError(
            f"{at(path, None, inside + name)}: got {shown(value)}, expected seconds, 0 to ten years"
        )
    return int((value * 1_000_000_000).to_integral_value(rounding=ROUND_HALF_EVEN))


def _kind(value: Any) -> str:
    return "null" if value is None else _NAMES.get(type(value), type(value).__name__)
