"""What finished work said, in SQLite: texts by value, and the records that a reuse policy keeps beyond a run.

Write-ahead logging, one transaction a batch: a process that dies at any moment leaves a file that opens. A record that
read a resource is not taken into a later run: nobody saw what was written in between.
"""

from __future__ import annotations

import json
import sqlite3
from hashlib import blake2b
from pathlib import Path

from policies.reuse_index import Provenance, Record
from policies.views import ReuseName
from traces.errors import InputError

_VERSION = 1
_BATCH = 64
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
    about   what results depend on beside their names (the model, its sampling): a file made for something else is
            refused with InputError
    """

    def __init__(self, path: Path | None, about: str) -> None:
        try:
            self._db = sqlite3.connect(path or ":memory:", isolation_level=None)
            self._db.execute("PRAGMA journal_mode=WAL")
            self._db.execute("PRAGMA synchronous=NORMAL")
            self._db.executescript(_TABLES)
            known = dict(self._db.execute("SELECT key, value FROM about").fetchall())
        except sqlite3.Error as e:
            raise InputError(f"{path}: no store of results: {e}") from e
        expected = {"version": str(_VERSION), "about": about}
        if known and known != expected:
            self._db.close()
            raise InputError(
                f"{path}: holds results of {known.get('about', '?')} (version {known.get('version', '?')}), "
                f"expected {about} (version {_VERSION}); give another file"
            )
        self._db.execute("BEGIN")
        self._db.executemany("INSERT OR IGNORE INTO about VALUES (?, ?)", expected.items())
        self._open = 0
        self._recent: dict[int, str] = {}

    def add(self, text: str) -> int:
        """Keep a text; return its value."""
        value = value_of(text)
        if value not in self._recent:
            self._recent[value] = text
            self._write("INSERT OR IGNORE INTO texts VALUES (?, ?)", (value, text))
        return value

    def text(self, value: int) -> str | None:
        """Return the text of a value, None for one that is not here. Does not mutate."""
        if value in self._recent:
            return self._recent[value]
        if not -(1 << 63) <= value < 1 << 63:
            return None  # a tool's: 64 bits
        row = self._db.execute("SELECT text FROM texts WHERE value = ?", (value,)).fetchone()
        return None if row is None else str(row[0])

    def kept(self, name: ReuseName, record: Record) -> None:
        """A record entered the index."""
        source = record.source
        self._write(
            "INSERT OR REPLACE INTO records VALUES (?, ?, ?, ?, ?, ?, ?, ?)",
            (
                name.scope, name.value, name.stages, json.dumps(record.values), json.dumps(record.reads),
                source.workflow, source.stage, source.fill,
            ),
        )  # fmt: skip

    def dropped(self, name: ReuseName) -> None:
        """A record left the index."""
        self._write(
            "DELETE FROM records WHERE scope = ? AND name = ? AND stages = ?",
            (name.scope, name.value, name.stages),
        )

    def records(self) -> list[tuple[ReuseName, Record]]:
        """Return the records of earlier runs that may serve this one: those that read nothing. Drops the others."""
        self._write("DELETE FROM records WHERE reads != '[]'", ())
        rows = self._db.execute("SELECT * FROM records ORDER BY scope, name, stages").fetchall()
        return [
            (ReuseName(scope, name, stages), Record(tuple(json.loads(values)), (), Provenance(*source)))
            for scope, name, stages, values, _, *source in rows
        ]

    def save(self) -> None:
        """Make durable what was added."""
        self._db.execute("COMMIT")
        self._db.execute("BEGIN")
        self._open = 0
        self._recent.clear()

    def close(self) -> None:
        """Save and close."""
        self._db.execute("COMMIT")
        self._db.close()

    def _write(self, statement: str, row: tuple[object, ...]) -> None:
        self._db.execute(statement, row)
        self._open += 1
        if self._open >= _BATCH:
            self.save()

    def __enter__(self) -> ResultStore:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
