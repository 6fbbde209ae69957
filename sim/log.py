"""Where the run log goes. Rows are buffered as tuples, turned into columns by the thousand, and streamed out.

A fast-forwarded stretch is one buffered row and is expanded to its steps here, vectorised, on integers.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path
from types import TracebackType
from typing import Any, Protocol

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from sim.clock import PS_PER_NS
from traces.prefix import Int64
from traces.tables import SCHEMAS

_FLUSH_ROWS = 20_000
_FLUSH_STEPS = 20_000
_GROUP_ROWS = 1 << 17
_END_OF_TIME = 1 << 62


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
        """Return all tables."""
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
    """Streams the log to `<directory>/<table>.parquet`; every table exists after the block ends.

    Row groups have a fixed size, so that the bytes do not depend on when buffers were flushed.
    """

    def __init__(self, directory: Path) -> None:
        self._pending: dict[str, list[pa.Table]] = {name: [] for name in SCHEMAS}
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
        pending = self._pending[table]
        pending.append(rows)
        if sum(part.num_rows for part in pending) >= _GROUP_ROWS:
            self._write_groups(table, whole_only=True)

    def _write_groups(self, table: str, *, whole_only: bool) -> None:
        rows = pa.concat_tables(self._pending[table]).unify_dictionaries().combine_chunks()
        whole = rows.num_rows - rows.num_rows % _GROUP_ROWS if whole_only else rows.num_rows
        self._writers[table].write_table(rows.slice(0, whole), row_group_size=_GROUP_ROWS)
        rest = rows.slice(whole)
        self._pending[table] = [rest] if rest.num_rows else []

    def __enter__(self) -> ParquetSink:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for table, writer in self._writers.items():
            if kind is None and self._pending[table]:
                self._write_groups(table, whole_only=False)
            writer.close()


class RunLog:
    """Buffers rows and hands them to a sink. Every method but `__init__` mutates; `close` flushes the rest.

    `settled_ns` returns the time before which no replica will log another step or eviction. Rows of `steps`
    and `blocks` leave in order of (time, replica), so the log does not tell when a stretch was accounted.
    """

    def __init__(self, sink: Sink, block_tokens: int, settled_ns: Callable[[], int]) -> None:
        self._sink = sink
        self._block_tokens = block_tokens
        self._settled_ns = settled_ns
        self._rows: dict[str, list[tuple[Any, ...]]] = {name: [] for name in SCHEMAS}
        self._held: dict[str, pa.Table] = {}
        self._stretches: list[tuple[int, ...]] = []
        self._phases: list[list[int]] = []
        self._steps = 0

    def add(self, table: str, row: tuple[Any, ...]) -> None:
        """Append one row of a table other than `steps`, in schema order, dictionary columns as strings."""
        rows = self._rows[table]
        rows.append(row)
        if len(rows) >= _FLUSH_ROWS:
            self._flush(table, self._settled_ns())

    def stretch(self, row: tuple[int, ...], phases: list[int], steps: int) -> None:
        """Append a stretch of `steps` steps: (replica, n, start_ps, first_ps, growth_ps, decode, continuing,
        prefill_seqs, prefill_tokens, context, waiting, active, cached, free, step, drafted, accepted, graph, fills).

        `active` and `cached` hold before the stretch allocates; `phases` is the batch's block phases.
        """
        self._stretches.append(row)
        self._phases.append(phases[:])
        self._steps += steps
        if self._steps >= _FLUSH_STEPS or len(self._stretches) >= _FLUSH_ROWS:
            self._flush_steps(self._settled_ns())

    def close(self) -> None:
        """Flush everything."""
        self._flush_steps(_END_OF_TIME)
        for table in SCHEMAS:
            self._flush(table, _END_OF_TIME)

    def _flush(self, table: str, settled_ns: int) -> None:
        rows = self._rows[table]
        if not rows and table not in self._held:
            return
        schema = SCHEMAS[table]
        columns = zip(*rows, strict=True) if rows else ((),) * len(schema)
        batch = pa.table([_column(f, v) for f, v in zip(schema, columns, strict=True)], schema=schema)
        rows.clear()
        if table == "blocks":
            self._in_order(table, batch, "time_ns", settled_ns)
        else:
            self._sink.write(table, batch)

    def _flush_steps(self, settled_ns: int) -> None:
        if self._stretches or "steps" in self._held:
            batch = SCHEMAS["steps"].empty_table()
            if self._stretches:
                batch = _expand(self._stretches, self._phases, self._block_tokens)
            self._stretches.clear()
            self._phases.clear()
            self._steps = 0
            self._in_order("steps", batch, "start_ns", settled_ns)

    def _in_order(self, table: str, batch: pa.Table, time: str, settled_ns: int) -> None:
        held = self._held.pop(table, None)
        if held is not None:
            batch = pa.concat_tables([held, batch])
        start, replica = batch[time].to_numpy(), batch["replica"].to_numpy()
        if np.any(start[1:] < start[:-1]) or np.any(replica != replica[:1]):
            batch = batch.take(pa.array(np.lexsort((replica, start))))
            start = batch[time].to_numpy()
        final = int(np.searchsorted(start, settled_ns, side="left"))
        if final < batch.num_rows:
            self._held[table] = batch.slice(final)
        if final:
            self._sink.write(table, batch.slice(0, final))


def _column(field: pa.Field, values: Iterable[Any]) -> pa.Array:
    if pa.types.is_dictionary(field.type):
        # The dictionary is in order of first appearance, so equal runs give equal bytes.
        return pa.array(values, pa.string()).dictionary_encode().cast(field.type)
    return pa.array(values, field.type)


def _expand(stretches: list[tuple[int, ...]], phases: list[list[int]], block_tokens: int) -> pa.Table:
    m = np.array(stretches, dtype=np.int64)
    (replica, n, start, first, growth, decode, continuing, prefill_seqs, prefill_tokens, context, waiting,
     active, cached, free, step, drafted, accepted, graph, fills) = m.T  # fmt: skip
    rows = np.repeat(np.arange(len(n)), n)
    i = np.arange(len(rows)) - np.repeat(np.cumsum(n) - n, n)

    def at(k: Int64) -> Int64:
        ends: Int64 = start[rows] + k * first[rows] + growth[rows] * (k * (k - 1) // 2)
        return ends

    start_ns = at(i) // PS_PER_NS
    duration_ns = at(i + 1) // PS_PER_NS - start_ns
    allocated = _allocated(np.array(phases, dtype=np.int64), step, decode, rows, i + 1, block_tokens)
    evicted = np.maximum(allocated - free[rows], 0)
    decoding = decode[rows]
    early = fills[rows] if fills.any() else np.zeros(len(rows), dtype=np.int32)
    canonical = decoding - early if fills.any() else decoding
    columns = {
        "replica": replica[rows],
        "start_ns": start_ns,
        "duration_ns": duration_ns,
        "decode_seqs": decoding,
        "fill_seqs": early,
        "continuing_seqs": np.where(i == 0, continuing[rows], canonical),
        "prefill_seqs": prefill_seqs[rows],
        "prefill_tokens": prefill_tokens[rows],
        "context_tokens": context[rows] + i * decoding,
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
    phases: Int64,
    step: Int64,
    decode: Int64,
    rows: Int64,
    k: Int64,
    size: int,
) -> Int64:
    """Blocks allocated by the first k steps of each stretch, from the residues of its batch."""
    # Prefix sums over two turns of the residues, beginning at the stretch's first step.
    first = step % size
    turned = phases[np.arange(len(step))[:, None], (first[:, None] + np.arange(size)[None, :]) % size]
    sums = np.concatenate([np.zeros((len(step), 1), np.int64), np.cumsum(turned, axis=1)], axis=1)
    cycles, rest = np.divmod(k, size)
    allocated: Int64 = cycles * decode[rows] + sums[rows, rest]
    return allocated
