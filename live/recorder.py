"""The live recorder: the simulator's tables, written by a running engine."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from traces.errors import InputError
from traces.tables import SCHEMAS


class TableRecorder:
    """Collects rows and writes all six tables at once. Every method mutates.

    The directory appears whole, under its name, when `write` ends: one that exists is complete.
    """

    def __init__(self) -> None:
        self._rows: dict[str, list[tuple[Any, ...]]] = {name: [] for name in SCHEMAS}

    def add(self, table: str, row: tuple[Any, ...]) -> None:
        """Append one row, in schema order."""
        self._rows[table].append(row)

    def count(self, table: str) -> int:
        """Return how many rows a table has by now. Does not mutate."""
        return len(self._rows[table])

    def tables(self) -> dict[str, pa.Table]:
        """Return the tables as they are by now. Does not mutate."""
        return {name: _table(schema, self._rows[name]) for name, schema in SCHEMAS.items()}

    def write(self, directory: Path, about: dict[str, Any]) -> None:
        """Write `<table>.parquet` for every table, and `live.json` with what else is known of the run.

        Raises InputError where the directory exists already.
        """
        if directory.exists():
            raise InputError(f"{directory}: exists already; a run is never written over another")
        directory.parent.mkdir(parents=True, exist_ok=True)
        aside = directory.parent / f".{directory.name}.{os.getpid()}"
        shutil.rmtree(aside, ignore_errors=True)
        aside.mkdir()
        for name, table in self.tables().items():
            pq.write_table(table, aside / f"{name}.parquet", compression="zstd")
        text = json.dumps(about, indent=1, sort_keys=True) + "\n"
        (aside / "live.json").write_text(text, encoding="utf-8")
        aside.rename(directory)


def _table(schema: pa.Schema, rows: list[tuple[Any, ...]]) -> pa.Table:
    columns = list(zip(*rows, strict=True)) if rows else [()] * len(schema)
    arrays = []
    for field, values in zip(schema, columns, strict=True):
        if pa.types.is_dictionary(field.type):
            arrays.append(pa.array(values, pa.string()).dictionary_encode().cast(field.type))
        else:
            arrays.append(pa.array(values, field.type))
    return pa.table(arrays, schema=schema)
