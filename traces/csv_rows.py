"""Rows of a plain CSV, checked one by one: the path that finds the line and the field of a mistake."""

from __future__ import annotations

import csv
import re
from collections.abc import Sequence
from dataclasses import dataclass
from decimal import ROUND_HALF_EVEN, Decimal
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from traces.errors import InputError, at, nearest
from traces.fields import MAX_NS, MAX_TOKENS
from traces.reading import shown, text_lines

REQUIRED = ("arrival_s", "prompt_tokens", "output_tokens")
OPTIONAL = ("workflow", "session")
_NUMBER = re.compile(r"(\d{1,40}(\.\d{0,400})?|\.\d{1,400})([eE][+-]?\d{1,3})?", re.ASCII)
_WHOLE = re.compile(r"\d{1,40}", re.ASCII)


@dataclass(frozen=True)
class Rows:
    """Columns of R rows: int64[R] ns, int32[R] tokens; names of groups where the file has them.

    rounded  rows whose arrival was finer than a nanosecond
    """

    arrival_ns: NDArray[np.int64]
    prompt_tokens: NDArray[np.int32]
    output_tokens: NDArray[np.int32]
    workflow: Sequence[str] | None
    session: Sequence[str] | None
    rounded: int


def parse_header(data: bytes, path: Path) -> tuple[list[str], int]:
    """Return the column names and the offset of the first byte after the header line."""
    if not data.strip():
        raise InputError(f"{path}: empty file, expected a header: {','.join(REQUIRED)}")
    if b"\x00" in data[:4096]:
        raise InputError(f"{path}: binary content, expected a CSV with the header {','.join(REQUIRED)}")
    end = data.find(b"\n")
    end = len(data) if end < 0 else end + 1
    try:
        text = data[:end].decode("utf-8-sig").strip()
    except UnicodeDecodeError:
        raise InputError(f"{at(path, 1)}: not UTF-8 text") from None
    columns = _cells(text, path, 1)
    allowed = (*REQUIRED, *OPTIONAL)
    missing = [c for c in REQUIRED if c not in columns]
    for column in columns:
        if column not in allowed:
            hint = f"; missing: {', '.join(missing)}" if missing else ""
            raise InputError(f"{at(path, 1)}: {nearest(column[:40], allowed, what='column')}{hint}")
    if missing:
        raise InputError(f"{at(path, 1, missing[0])}: missing column; the header has: {', '.join(columns)}")
    if len(set(columns)) != len(columns):
        twice = next(c for c in columns if columns.count(c) > 1)
        raise InputError(f"{at(path, 1, twice)}: column given twice")
    return columns, end


def parse_rows(data: bytes, path: Path, columns: list[str]) -> Rows:
    """Parse every row after the header; InputError at the first that is malformed."""
    where = {c: columns.index(c) for c in columns}
    arrival: list[int] = []
    prompt: list[int] = []
    output: list[int] = []
    names: dict[str, list[str]] = {c: [] for c in OPTIONAL if c in where}
    rounded = 0
    header = True
    for line, text in text_lines(data, path):
        if header:
            header = False
            continue
        cells = _cells(text, path, line)
        if len(cells) != len(columns):
            raise InputError(
                f"{at(path, line)}: {len(cells)} cells, expected {len(columns)} ({','.join(columns)})"
                + ("; is the file cut off?" if len(cells) < len(columns) else "")
            )
        time_ns, exact = _time_ns(cells[where["arrival_s"]], path, line)
        rounded += not exact
        arrival.append(time_ns)
        prompt.append(whole_tokens(cells[where["prompt_tokens"]], path, line, "prompt_tokens"))
        output.append(whole_tokens(cells[where["output_tokens"]], path, line, "output_tokens"))
        for column, values in names.items():
            cell = cells[where[column]]
            if not cell:
                raise InputError(f"{at(path, line, column)}: empty, expected a name")
            values.append(cell)
    workflow, session = names.get("workflow"), names.get("session")
    return Rows(
        np.array(arrival, dtype=np.int64),
        np.array(prompt, dtype=np.int32),
        np.array(output, dtype=np.int32),
        workflow if workflow is not None else session,
        session if workflow is not None else None,
        rounded,
    )


def _cells(text: str, path: Path, line: int) -> list[str]:
    if '"' not in text:
        return [c.strip() for c in text.split(",")]
    try:
        return [c.strip() for c in next(csv.reader([text], strict=True))]
    except csv.Error as e:
        raise InputError(f"{at(path, line)}: not CSV: {' '.join(str(e).split())}") from None


def _time_ns(cell: str, path: Path, line: int) -> tuple[int, bool]:
    """Return (nanoseconds, whether that is exact) of a decimal number of seconds."""
    whole, _, fraction = cell.partition(".")
    if whole.isascii() and whole.isdigit() and len(whole) <= 9 and len(fraction) <= 9:
        if not fraction:
            return int(whole) * 1_000_000_000, True
        if fraction.isascii() and fraction.isdigit():
            return int(whole) * 1_000_000_000 + int(fraction.ljust(9, "0")), True
    if _NUMBER.fullmatch(cell):
        number = Decimal(cell).scaleb(9)
        if number <= MAX_NS:
            time_ns = int(number.to_integral_value(rounding=ROUND_HALF_EVEN))
            return time_ns, number == time_ns
    raise InputError(f"{at(path, line, 'arrival_s')}: got {shown(cell)}, expected seconds of at least 0")


def whole_tokens(cell: str, path: Path, line: int, field: str) -> int:
    """Return a token count from 0 to 2^31 - 1; InputError names file, line and field."""
    if _WHOLE.fullmatch(cell) and int(cell) <= MAX_TOKENS:
        return int(cell)
    raise InputError(
        f"{at(path, line, field)}: got {shown(cell)}, "
        f"expected a whole number of tokens from 0 to {MAX_TOKENS}"
    )
