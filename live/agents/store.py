"""What finished work said, in SQLite: texts by value, and the records that a reuse policy keeps beyond a run.

Write-ahead logging, one short transaction a save: a process that dies at any moment leaves a file that opens, and
several runs may share one. A record that
read a resource is not taken into a later run: nobody saw what was written in between.
"""

from __future__ import annotations

import json
import sqlite3
from hashlib import blake2b
from pathlib import Path
from typing import Any

from policies.reuse_index import Provenance, Record
from policies.views import ReuseName
from traces.errors import InputError

_VERSION = 1
_BUSY_S = 0.5  # the event loop waits as long for another process's transaction
_TABLES = """
CREATE TABLE IF NOT EXISTS about (key TEXT PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS texts (value INTEGER PRIMARY KEY, text TEXT NOT NULL);
CREATE TABLE IF NOT EXISTS records (
  scope TEXT NOT NULL, name INTEGER NOT NULL, stages INTEGER NOT NULL,
  vals TEXT NOT NULL, reads TEXT NOT NULL, workflow INTEGER NOT NULL, stage INTEGER NOT NULL, fill INTEGER NOT NULL,
  PRIMARY KEY (scope, name, stages)
) WITHOUT ROWID;
"""


def value_of(text: str) -> int:
    """Return the number that stands for a text: 63 bits.

    >>> value_of("a") == value_of("a") != value_of("b")
    True
    """
    return int.from_bytes(blake2b(text.encode(), digest_size=8, person=b"live-text").digest(), "little") >> 1


class ResultStore:
    """Texts and records. A context manager; methods mutate unless they say otherwise.

    path    of the file, None: in memory
    about   what results depend on beside their names (the model, its sampling, lengths): a file made for something
            else is refused with InputError
    trouble   why something was not kept, "" while all is; the run goes on with what it has in memory
    """

    def __init__(self, path: Path | None, about: str) -> None:
        self._path = path
        self.trouble = ""
        expected = {"version": str(_VERSION), "about": about}
        try:
            self._db = sqlite3.connect(path or ":memory:", isolation_level=None, timeout=_BUSY_S)
        except sqlite3.Error as e:
            raise InputError(f"{path}: no store of results: {e}") from e
        try:
            self._db.execute("PRAGMA journal_mode=WAL")
            self._db.execute("PRAGMA synchronous=NORMAL")
            self._db.executescript(_TABLES)
            self._db.executemany("INSERT OR IGNORE INTO about VALUES (?, ?)", expected.items())
            known = dict(self._db.execute("SELECT key, value FROM about").fetchall())
            self._db.execute("SELECT value, text FROM texts LIMIT 1")
        except sqlite3.Error as e:
            self._db.close()
            raise InputError(f"{path}: no store of results: {e}") from e
        if known != expected:
            self._db.close()
            raise InputError(
                f"{path}: holds results of {known.get('about', '?')} (version {known.get('version', '?')}), "
                f"expected {about} (version {_VERSION}); give another file"
            )
        self._texts: dict[int, str] = {}
        self._changes: dict[ReuseName, Record | None] = {}

    def add(self, text: str) -> int:
        """Keep a text; return its value."""
        value = value_of(text)
        self._texts[value] = text
        return value

    def text(self, value: int) -> str | None:
        """Return the text of a value, None for one that is not here. Does not mutate."""
        if value in self._texts:
            return self._texts[value]
        if not -(1 << 63) <= value < 1 << 63:
            return None  # a tool's: 64 bits
        try:
            row = self._db.execute("SELECT text FROM texts WHERE value = ?", (value,)).fetchone()
        except sqlite3.Error:
            return None
        return None if row is None else str(row[0])

    def kept(self, name: ReuseName, record: Record) -> None:
        """A record entered the index."""
        self._changes[name] = record

    def dropped(self, name: ReuseName) -> None:
        """A record left the index."""
        self._changes[name] = None

    def records(self) -> list[tuple[ReuseName, Record]]:
        """Return the records of earlier runs that may serve this one: those that read nothing. Drops the others.

        Raises InputError for a file that somebody damaged.
        """
        try:
            self._db.execute("DELETE FROM records WHERE reads != '[]'")
            rows = self._db.execute("SELECT * FROM records ORDER BY scope, name, stages").fetchall()
            return [_record(row) for row in rows]
        except (sqlite3.Error, ValueError, TypeError) as e:
            raise InputError(f"{self._path}: no store of results: {e}") from e

    def save(self) -> None:
        """Make durable what was added, in one short transaction; where that fails, it stays in memory (`trouble`)."""
        gone = [(n.scope, n.value, n.stages) for n, record in self._changes.items() if record is None]
        new = [_row(n, record) for n, record in self._changes.items() if record is not None]
        if not (self._texts or gone or new):
            return
        try:
            self._db.execute("BEGIN IMMEDIATE")
            try:
                self._db.executemany("INSERT OR IGNORE INTO texts VALUES (?, ?)", self._texts.items())
                self._db.executemany("DELETE FROM records WHERE scope = ? AND name = ? AND stages = ?", gone)
                self._db.executemany("INSERT OR REPLACE INTO records VALUES (?, ?, ?, ?, ?, ?, ?, ?)", new)
                self._db.execute("COMMIT")
            except sqlite3.Error:
                self._db.execute("ROLLBACK")
                raise
        except sqlite3.Error as e:
            self.trouble = f"{self._path}: {e}"
            return
        self.trouble = ""
        self._texts.clear()
        self._changes.clear()

    def close(self) -> None:
        """Save and close."""
        self.save()
        self._db.close()

    def __enter__(self) -> ResultStore:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _row(name: ReuseName, record: Record) -> tuple[object, ...]:
    source = record.source
    values, reads = json.dumps(record.values), json.dumps(record.reads)
    return name.scope, name.value, name.stages, values, reads, source.workflow, source.stage, source.fill


def _record(row: tuple[Any, ...]) -> tuple[ReuseName, Record]:
    """Return a record of a row; ValueError or TypeError for what is none."""
    scope, name, stages, text, _, *source = row
    values = json.loads(text)
    numbers = [name, stages, *source, *values]
    if not isinstance(scope, str) or any(type(n) is not int for n in numbers) or len(values) != stages:
        raise ValueError(f"record {scope} {name}: {text[:40]}")
    return ReuseName(scope, name, stages), Record(tuple(values), (), Provenance(*source))
