"""The benchmark's rows: one JSON object a line, written as they are measured, so that an interrupted run goes on."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from traces.errors import InputError, at

SCHEMA = 1
_MAX_BYTES = 64 << 20


def key(row: Mapping[str, Any]) -> str:
    """Return what identifies a row: all but what was measured."""
    names = ("kind", "strategy", "variant", "batch", "draft", "context", "rows", "serving")
    return json.dumps([row.get(n) for n in names])


class RowFile:
    """Appends rows; knows which are there. A line that a kill cut short is dropped when the file is opened."""

    def __init__(self, path: Path, about: Mapping[str, Any]) -> None:
        self._path = path
        self.rows: list[dict[str, Any]] = []
        head = {"kind": "about", "schema": SCHEMA, **about}
        if path.exists():
            self.rows = read_rows(path, cut_short=True)
            if self.rows and _comparable(self.rows[0]) != _comparable(head):
                raise InputError(
                    f"{path}: holds rows of another machine or setup ({_said(self.rows[0])}); this is {_said(head)}; "
                    "give another --out"
                )
            whole = "".join(json.dumps(r) + "\n" for r in self.rows)
            if path.stat().st_size != len(whole):
                path.write_text(whole, encoding="utf-8")
        self._known = {key(r) for r in self.rows}
        if not self.rows:
            path.parent.mkdir(parents=True, exist_ok=True)
            self.add(head)

    def has(self, row: Mapping[str, Any]) -> bool:
        """Say whether this was measured already."""
        return key(row) in self._known

    def add(self, row: Mapping[str, Any]) -> None:
        """Append a row and flush it to the disk. Mutates."""
        with self._path.open("a", encoding="utf-8") as f:
            f.write(json.dumps(row) + "\n")
            f.flush()
            os.fsync(f.fileno())
        self.rows.append(dict(row))
        self._known.add(key(row))


def read_rows(path: Path, *, cut_short: bool = False) -> list[dict[str, Any]]:
    """Return all rows, the first one about the machine. `cut_short`: drop a last line that is not whole.

    Raises InputError with file, line and what is wrong.
    """
    try:
        if path.stat().st_size > _MAX_BYTES:
            raise InputError(f"{path}: at most {_MAX_BYTES >> 20} MiB of rows")
        lines = path.read_text(encoding="utf-8").splitlines()
    except OSError as e:
        raise InputError(f"{path}: {e.strerror}") from None
    except UnicodeDecodeError:
        raise InputError(f"{path}: not UTF-8 text") from None
    rows: list[dict[str, Any]] = []
    for number, line in enumerate(lines, 1):
        try:
            row = json.loads(line)
        except json.JSONDecodeError as e:
            if cut_short and number == len(lines):
                break
            raise InputError(f"{at(str(path), number)}: not JSON: {e.msg}") from None
        if not isinstance(row, dict) or "kind" not in row:
            raise InputError(f"{at(str(path), number)}: expected an object with 'kind'")
        rows.append(row)
    if rows and (rows[0]["kind"] != "about" or rows[0].get("schema") != SCHEMA):
        raise InputError(f"{at(str(path), 1)}: expected a row 'about' of schema {SCHEMA}")
    return rows


def _comparable(about: Mapping[str, Any]) -> dict[str, Any]:
    return {k: v for k, v in about.items() if k not in ("started", "clocks")}


def _said(about: Mapping[str, Any]) -> str:
    return f"{about.get('device')}, {about.get('model')}, torch {about.get('torch')}, triton {about.get('triton')}"
