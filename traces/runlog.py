"""The run log as metrics see it: columns of the tables of `traces/tables.py`, read only when asked for."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from traces.errors import InputError, at, nearest
from traces.tables import SCHEMAS, TABLES_VERSION

VERSION_KEY = b"foreserve.tables_version"
KV_BLOCKS_KEY = b"foreserve.kv_blocks"
Batch = dict[str, NDArray[Any]]


class _Source(Protocol):
    def schema(self, table: str) -> pa.Schema: ...
    def rows(self, table: str) -> int: ...
    def read(self, table: str, columns: Sequence[str]) -> pa.Table: ...
    def batches(self, table: str, columns: Sequence[str], rows: int) -> Iterator[pa.RecordBatch]: ...


class RunLog:
    """Tables of one run. Columns are cached once read; arrays handed out are read-only.

    Columns of names (dictionary columns) are queried with `select`. The log itself never changes.
    """

    def __init__(self, source: _Source, name: str, kv_blocks: int | None = None) -> None:
        self.name = name
        self._kv_blocks = kv_blocks
        self._source = source
        self._columns: dict[tuple[str, str], NDArray[Any]] = {}

    def rows(self, table: str) -> int:
        """Return the number of rows of `table`."""
        _known(table, ())
        return self._source.rows(table)

    def table(self, table: str, columns: Sequence[str] | None = None) -> pa.Table:
        """Return `table` (by default all columns) as Arrow; InputError for an unknown name or a bad file."""
        names = tuple(SCHEMAS[table].names) if columns is None and table in SCHEMAS else tuple(columns or ())
        _known(table, names)
        return self._source.read(table, names)

    def column(self, table: str, column: str) -> NDArray[Any]:
        """Return one column as an array of `rows(table)` values, in the order of the log."""
        return self.columns(table, column)[0]

    def columns(self, table: str, *columns: str) -> tuple[NDArray[Any], ...]:
        """Return several columns of `table` at once; one read for all that are not cached yet."""
        missing = [c for c in columns if (table, c) not in self._columns]
        if missing:
            _known(table, missing)
            data = self._source.read(table, missing)
            for c in missing:
                values = data.column(c)
                if pa.types.is_dictionary(values.type):
                    raise InputError(f"{table}.{c} holds names, not numbers: use select()")
                array = values.to_numpy()
                array.flags.writeable = False
                self._columns[table, c] = array
        return tuple(self._columns[table, c] for c in columns)

    def select(self, table: str, column: str, name: str) -> NDArray[np.bool_]:
        """Return bool[rows]: where the dictionary column `column` of `table` equals `name`."""
        _known(table, (column,))
        parts = [np.zeros(0, dtype=bool)]
        for chunk in self._source.read(table, (column,)).column(column).chunks:
            code = chunk.dictionary.index(name).as_py()
            parts.append(np.asarray(chunk.indices) == code if code >= 0 else np.zeros(len(chunk), dtype=bool))
        return np.concatenate(parts)

    def batches(self, table: str, columns: Sequence[str], rows: int = 65_536) -> Iterator[Batch]:
        """Yield number columns of `table` in slices of at most `rows` rows; nothing is cached."""
        _known(table, columns)
        for batch in self._source.batches(table, columns, rows):
            yield {c: batch.column(i).to_numpy(zero_copy_only=False) for i, c in enumerate(columns)}

    def token_gaps(self) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Return (time_ns, gap_ns) of each token whose predecessor did not come from the step just before.

        The steps table cannot show them; they are the decisions (engine, gap). First tokens have no gap.
        """
        if self.rows("decisions") == 0:
            return np.zeros(0, dtype=np.int64), np.zeros(0, dtype=np.int64)
        at = self.select("decisions", "family", "engine") & self.select("decisions", "action", "gap")
        time, value = self.columns("decisions", "time_ns", "value")
        return time[at], value[at]

    @property
    def kv_blocks(self) -> int | None:
        """KV blocks of one replica: as given by the caller, else from the metadata of `steps`, else None."""
        if self._kv_blocks is not None:
            return self._kv_blocks
        value = (self._source.schema("steps").metadata or {}).get(KV_BLOCKS_KEY)
        return int(value) if value is not None else None

    @property
    def replicas(self) -> int:
        """Replicas that appear in the log: 1 + the largest index in `steps` and `requests`, at least 1."""
        top = [int(c.max()) for t in ("steps", "requests") if len(c := self.column(t, "replica"))]
        return max([0, *top]) + 1


def read_run(directory: Path | str, kv_blocks: int | None = None) -> RunLog:
    """Open the run in `directory` (`requests.parquet`, ...); columns are read when asked for.

    kv_blocks: blocks of one replica's pool, for occupancy shares, where the log does not state them. Raises
    InputError for a missing directory or file, a file that was cut off, another schema version or a missing
    column.
    """
    root = Path(directory)
    if not root.is_dir():
        raise InputError(f"{root}: no such run directory")
    source = _Files(root)
    for name in SCHEMAS:
        _check(source.schema(name), name, str(source.path(name)))
    return RunLog(source, str(root), kv_blocks)


def from_tables(tables: dict[str, pa.Table], name: str = "memory", kv_blocks: int | None = None) -> RunLog:
    """Wrap tables held in memory; one that is not given is empty. Raises InputError as `read_run` does."""
    for table in tables:
        _known(table, ())
    full = {t: tables[t] if t in tables else schema.empty_table() for t, schema in SCHEMAS.items()}
    for table, data in full.items():
        _check(data.schema, table, f"{name}: {table}")
    return RunLog(_Memory(full), name, kv_blocks)


class _Memory:
    def __init__(self, tables: dict[str, pa.Table]) -> None:
        self._tables = tables

    def schema(self, table: str) -> pa.Schema:
        return self._tables[table].schema

    def rows(self, table: str) -> int:
        return int(self._tables[table].num_rows)

    def read(self, table: str, columns: Sequence[str]) -> pa.Table:
        return self._tables[table].select(list(columns))

    def batches(self, table: str, columns: Sequence[str], rows: int) -> Iterator[pa.RecordBatch]:
        yield from self.read(table, columns).to_batches(max_chunksize=rows)


class _Files:
    def __init__(self, root: Path) -> None:
        self._root = root
        self._meta: dict[str, tuple[pa.Schema, int]] = {}

    def path(self, table: str) -> Path:
        return self._root / f"{table}.parquet"

    def _open(self, table: str) -> pq.ParquetFile:
        try:
            return pq.ParquetFile(self.path(table))
        except FileNotFoundError:
            raise InputError(f"{self.path(table)}: missing; a run holds {', '.join(SCHEMAS)}") from None
        except (pa.ArrowException, OSError) as e:
            raise self._broken(table, e) from None

    def _broken(self, table: str, error: Exception) -> InputError:
        line = (str(error).splitlines() or [type(error).__name__])[0]
        return InputError(f"{self.path(table)}: not a whole Parquet file, was the write cut off? ({line})")

    def _head(self, table: str) -> tuple[pa.Schema, int]:
        if table not in self._meta:
            with self._open(table) as f:
                self._meta[table] = f.schema_arrow, f.metadata.num_rows
        return self._meta[table]

    def schema(self, table: str) -> pa.Schema:
        return self._head(table)[0]

    def rows(self, table: str) -> int:
        return self._head(table)[1]

    def read(self, table: str, columns: Sequence[str]) -> pa.Table:
        with self._open(table) as f:
            try:
                return f.read(columns=list(columns), use_threads=False)
            except (pa.ArrowException, OSError) as e:
                raise self._broken(table, e) from None

    def batches(self, table: str, columns: Sequence[str], rows: int) -> Iterator[pa.RecordBatch]:
        with self._open(table) as f:
            try:
                for batch in f.iter_batches(batch_size=rows, columns=list(columns), use_threads=False):
                    # Parquet gives columns in file order, callers index them in the order they asked for.
                    yield batch.select(list(columns))
            except (pa.ArrowException, OSError) as e:
                raise self._broken(table, e) from None


def _known(table: str, columns: Sequence[str]) -> None:
    if table not in SCHEMAS:
        raise InputError(nearest(table, SCHEMAS, what="table"))
    for c in columns:
        if c not in SCHEMAS[table].names:
            raise InputError(nearest(c, SCHEMAS[table].names, what=f"column of {table}"))


def _check(schema: pa.Schema, table: str, place: str) -> None:
    version = (schema.metadata or {}).get(VERSION_KEY)
    if version is None:
        raise InputError(f"{place}: no run log: the metadata lacks {VERSION_KEY.decode()!r}")
    if version != str(TABLES_VERSION).encode():
        raise InputError(
            f"{place}: run log version {version.decode(errors='replace')}, "
            f"this program reads {TABLES_VERSION}"
        )
    for field in SCHEMAS[table]:
        i = schema.get_field_index(field.name)
        if i < 0:
            raise InputError(f"{at(place, field=field.name)}: missing column")
        if schema.field(i).type != field.type:
            raise InputError(
                f"{at(place, field=field.name)}: type {schema.field(i).type}, expected {field.type}"
            )
