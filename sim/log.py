"""Where the run log goes. Rows are buffered as tuples, turned into columns by the thousand, and streamed out.

A fast-forwarded stretch is one buffered row and is expanded to its steps here, vectorised, on integers.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from types import TracebackType
from typing import Any, Protocol

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from sim.clock import PS_PER_NS
from traces.tables import SCHEMAS

_FLUSH_ROWS = 20_000
_FLUSH_STEPS = 200_000


class Sink(Protocol):
    """Takes Arrow tables of the run log, in order."""

    def write(self, table: str, rows: pa.Table) -> None:
        """Append rows to a table."""
        ...


class MemorySink:
    """Keeps the log in memory; `tables()` returns it."""

    def __init__(self) -> None:
        self._parts: dict[str, list[pa.Table]] = {name: [] for name in SCHEMAS}

    def write(self, table: str, rows: pa.Table) -> None:
        """Append rows to a table."""
        self._parts[table].append(rows)

    def tables(self) -> dict[str, pa.Table]:
        """Return all six tables."""
        out = {}
        for name, schema in SCHEMAS.items():
            parts = self._parts[name]
            table = pa.concat_tables(parts).unify_dictionaries() if parts else schema.empty_table()
            out[name] = table.combine_chunks()
        return out

    def __enter__(self) -> MemorySink:
        return self

    def __exit__(self, *_: object) -> None:
        return None


class ParquetSink:
    """Streams the log to `<directory>/<table>.parquet`; every table exists after the block ends."""

    def __init__(self, directory: Path) -> None:
        self._writers = {
            name: pq.ParquetWriter(
                directory / f"{name}.parquet",
                schema,
                compression="zstd",
                compression_level=1,
                write_statistics=False,
            )
            for name, schema in SCHEMAS.items()
        }

    def write(self, table: str, rows: pa.Table) -> None:
        """Append rows to a table."""
        self._writers[table].write_table(rows)

    def __enter__(self) -> ParquetSink:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for writer in self._writers.values():
            writer.close()


class RunLog:
    """Buffers rows and hands them to a sink. Every `add_*` mutates; `close` flushes the rest.

    `requests`, `blocks`, `decisions`, `branches`, `workflows` take tuples in the order of the schema, dictionary columns
    as strings. `stretch` takes what `_expand` needs for n >= 1 equal-shaped steps.
    """

    def __init__(self, sink: Sink, block_tokens: int) -> None:
        self._sink = sink
        self._block_tokens = block_tokens
        self._rows: dict[str, list[tuple[Any, ...]]] = {name: [] for name in SCHEMAS}
        self._stretches = self._rows["steps"]
        self._phases: list[list[int]] = []
        self._steps = 0

    def add(self, table: str, row: tuple[Any, ...]) -> None:
        """Append one row."""
        rows = self._rows[table]
        rows.append(row)
        if len(rows) >= _FLUSH_ROWS:
            self._flush(table)

    def stretch(self, row: tuple[int, ...], phases: list[int], steps: int) -> None:
        """Append a stretch of `steps` steps: (replica, n, start_ps, first_ps, growth_ps, decode, continuing,
        prefill_seqs, prefill_tokens, context, waiting, active, cached, free, step, drafted, accepted, graph).

        `active` and `cached` hold before the stretch allocates; `phases` is the batch's block phases.
        """
        self._stretches.append(row)
        self._phases.append(phases[:] if steps > 1 else phases[:])
        self._steps += steps
        if self._steps >= _FLUSH_STEPS or len(self._stretches) >= _FLUSH_ROWS:
            self._flush_steps()

    def close(self) -> None:
        """Flush everything."""
        self._flush_steps()
        for table, rows in self._rows.items():
            if rows:
                self._flush(table)

    def _flush(self, table: str) -> None:
        rows = self._rows[table]
        schema = SCHEMAS[table]
        self._sink.write(
            table,
            pa.table(
                [_column(f, v) for f, v in zip(schema, zip(*rows, strict=True), strict=True)], schema=schema
            ),
        )
        rows.clear()

    def _flush_steps(self) -> None:
        if self._stretches:
            self._sink.write("steps", _expand(self._stretches, self._phases, self._block_tokens))
            self._stretches.clear()
            self._phases.clear()
            self._steps = 0


def _column(field: pa.Field, values: Iterable[Any]) -> pa.Array:
    if pa.types.is_dictionary(field.type):
        # The dictionary is in order of first appearance, so equal runs give equal bytes.
        return pa.array(values, pa.string()).dictionary_encode().cast(field.type)
    return pa.array(values, field.type)


def _expand(stretches: list[tuple[int, ...]], phases: list[list[int]], block_tokens: int) -> pa.Table:
    m = np.array(stretches, dtype=np.int64)
    (replica, n, start, first, growth, decode, continuing, prefill_seqs, prefill_tokens, context, waiting, active,
     cached, free, step, drafted, accepted, graph) = m.T  # fmt: skip
    rows = np.repeat(np.arange(len(n)), n)
    i = np.arange(len(rows)) - np.repeat(np.cumsum(n) - n, n)

    def at(k: np.ndarray) -> np.ndarray:  # type: ignore[type-arg]
        return start[rows] + k * first[rows] + growth[rows] * (k * (k - 1) // 2)

    start_ns = at(i) // PS_PER_NS
    duration_ns = at(i + 1) // PS_PER_NS - start_ns
    allocated = _allocated(np.array(phases, dtype=np.int64), step, decode, rows, i + 1, block_tokens)
    evicted = np.maximum(allocated - free[rows], 0)
    columns = {
        "replica": replica[rows],
        "start_ns": start_ns,
        "duration_ns": duration_ns,
        "decode_seqs": decode[rows],
        "continuing_seqs": np.where(i == 0, continuing[rows], decode[rows]),
        "prefill_seqs": prefill_seqs[rows],
        "prefill_tokens": prefill_tokens[rows],
        "context_tokens": context[rows] + i * decode[rows],
        "waiting": waiting[rows],
        "kv_blocks_active": active[rows] + allocated,
        "kv_blocks_cached": cached[rows] - evicted,
        "drafted_tokens": drafted[rows],
        "accepted_tokens": accepted[rows],
        "graph_tokens": graph[rows],
    }
    schema = SCHEMAS["steps"]
    return pa.table([pa.array(columns[f.name]).cast(f.type) for f in schema], schema=schema)


def _allocated(
    phases: np.ndarray,
    step: np.ndarray,
    decode: np.ndarray,
    rows: np.ndarray,
    k: np.ndarray,
    size: int,  # type: ignore[type-arg]
) -> np.ndarray:  # type: ignore[type-arg]
    """Blocks allocated by the first k steps of each stretch, from the residues of its batch."""
    # Prefix sums over two turns of the residues, beginning at the stretch's first step.
    first = step % size
    turned = phases[np.arange(len(step))[:, None], (first[:, None] + np.arange(size)[None, :]) % size]
    sums = np.concatenate([np.zeros((len(step), 1), np.int64), np.cumsum(turned, axis=1)], axis=1)
    cycles, rest = np.divmod(k, size)
    return cycles * decode[rows] + sums[rows, rest]
