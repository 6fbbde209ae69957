"""Step measurements as one typed table: what was run, how long it took, what the time contains.

One row is one measured step (or the median of its repetitions). Columns, in CSV or Parquet:

    kind             decode | prefill | mixed | verify | idle
    batch            decoding (or verifying) sequences; prefill: chunks of this size in the step
    new_tokens       decode: 1. prefill: tokens of a chunk. mixed: tokens of the one chunk beside the decodes.
                     verify: queries of each sequence. idle: 0
    context_tokens   KV tokens that each decoding or verifying sequence holds (0 for prefill)
    prefix_tokens    KV tokens that each prefill chunk follows (0 for decode and verify)
    time_ns          duration of the step in whole nanoseconds
    scope            kernel: the GPU's work alone. engine: with the engine's CPU time. client: with the HTTP
                     round trip also. Optional, kernel if absent
    source           where the row is from; optional
    spread_ns        median absolute deviation of the repetitions; optional, 0 if absent

An idle row holds no GPU work: engine scope measures the engine's fixed time, client scope adds HTTP.
Columns beyond these are ignored, so that measurement files may carry clocks and temperatures.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from traces.errors import InputError, at, nearest

KINDS = ("decode", "prefill", "mixed", "verify", "idle")
SCOPES = ("kernel", "engine", "client")
_WHOLE = ("batch", "new_tokens", "context_tokens", "prefix_tokens", "time_ns", "spread_ns")
_OPTIONAL: dict[str, Any] = {"scope": "kernel", "source": "", "spread_ns": 0}
_MAX = 1 << 53

Ints = NDArray[np.int64]


@dataclass(frozen=True)
class StepRows:
    """N measured steps: `kind`, `scope`, `source` are str[N], the others int64[N] (see the module)."""

    kind: NDArray[np.str_]
    batch: Ints
    new_tokens: Ints
    context_tokens: Ints
    prefix_tokens: Ints
    time_ns: Ints
    scope: NDArray[np.str_]
    source: NDArray[np.str_]
    spread_ns: Ints

    def __len__(self) -> int:
        return int(self.batch.size)

    @property
    def tokens(self) -> Ints:
        """Tokens that go through the linear layers, int64[N]."""
        chunk = np.where(self.kind == "mixed", self.new_tokens, 0)
        each = np.where((self.kind == "prefill") | (self.kind == "verify"), self.new_tokens, 1)
        return np.where(self.kind == "idle", 0, self.batch * each + chunk)

    @property
    def seqs(self) -> Ints:
        """Sequences of the step, int64[N]."""
        return np.where(self.kind == "idle", 0, self.batch + (self.kind == "mixed"))

    @property
    def context(self) -> Ints:
        """KV tokens read by decoding or verifying sequences, summed, each read once; int64[N]."""
        reads = (self.kind != "prefill") & (self.kind != "idle")
        return np.where(reads, self.batch * self.context_tokens, 0)

    @property
    def pairs(self) -> Ints:
        """Sum over prefill chunks of chunk·(prefix + chunk/2), rounded down; int64[N]."""
        chunk, prefix = self.new_tokens, self.prefix_tokens
        one = chunk * (2 * prefix + chunk) // 2
        return np.where(self.kind == "prefill", self.batch * one, np.where(self.kind == "mixed", one, 0))

    def where(self, mask: NDArray[Any]) -> StepRows:
        """Return the rows that a mask bool[N], or an index int[M], keeps."""
        return StepRows(**{f.name: getattr(self, f.name)[mask] for f in fields(self)})

    def to_frame(self) -> pd.DataFrame:
        """Return the rows as a table with the columns of the module's text."""
        return pd.DataFrame({f.name: getattr(self, f.name) for f in fields(self)})


def concatenate(parts: Iterable[StepRows]) -> StepRows:
    """Return all rows, in order."""
    found = list(parts)
    return StepRows(**{f.name: np.concatenate([getattr(p, f.name) for p in found]) for f in fields(StepRows)})


def from_frame(table: pd.DataFrame, source: str | Path) -> StepRows:
    """Return the rows of a table; raises InputError naming `source`, the line and the field."""
    for name in (f.name for f in fields(StepRows)):
        if name not in table.columns and name not in _OPTIONAL:
            raise InputError(
                f"{at(source, 1, name)}: missing column; a table of steps has "
                f"{', '.join(f.name for f in fields(StepRows))}"
            )
    table = table.assign(**{k: v for k, v in _OPTIONAL.items() if k not in table.columns})
    if table.empty:
        raise InputError(f"{source}: no rows")
    columns: dict[str, Any] = {name: _whole(table[name], name, source) for name in _WHOLE}
    for name, allowed in (("kind", KINDS), ("scope", SCOPES)):
        values = table[name].astype(str).to_numpy(dtype=np.str_)
        for line in np.flatnonzero(~np.isin(values, allowed))[:1]:
            raise InputError(
                f"{at(source, int(line) + 2, name)}: {nearest(str(values[line]), allowed, what=name)}"
            )
        columns[name] = values
    columns["source"] = table["source"].astype(object).fillna("").astype(str).to_numpy(dtype=np.str_)
    rows = StepRows(**columns)
    busy = rows.kind != "idle"
    _refuse(source, "batch", busy & (rows.batch < 1), rows.batch, "at least 1")
    _refuse(source, "new_tokens", busy & (rows.new_tokens < 1), rows.new_tokens, "at least 1")
    _refuse(source, "time_ns", rows.time_ns < 1, rows.time_ns, "at least 1")
    one = (rows.kind == "decode") & (rows.new_tokens != 1)
    _refuse(source, "new_tokens", one, rows.new_tokens, "1 in a decode step (more is kind verify)")
    idle = (rows.kind == "idle") & (rows.scope == "kernel")
    for line in np.flatnonzero(idle)[:1]:
        raise InputError(f"{at(source, int(line) + 2, 'scope')}: an idle row is of scope engine or client")
    return rows


def read_rows(path: str | Path) -> StepRows:
    """Read a CSV (`.csv`, `.csv.gz`) or Parquet file; raises InputError with one clear line."""
    path = Path(path)
    try:
        table = pd.read_parquet(path) if path.suffix == ".parquet" else pd.read_csv(path)
    except OSError as e:
        raise InputError(f"{path}: {e.strerror or 'cannot be read'}") from None
    except (ValueError, UnicodeDecodeError) as e:
        raise InputError(f"{path}: not a table of steps: {str(e).splitlines()[0]}") from None
    return from_frame(table, path)


def write_rows(rows: StepRows, path: str | Path) -> None:
    """Write CSV, or Parquet where the name ends so; `read_rows` gives the same rows back."""
    path = Path(path)
    frame = rows.to_frame()
    if path.suffix == ".parquet":
        frame.to_parquet(path, index=False, compression="zstd")
    else:
        frame.to_csv(path, index=False)


def _whole(column: pd.Series[Any], name: str, source: str | Path) -> Ints:
    values = pd.to_numeric(column, errors="coerce").to_numpy(dtype=np.float64)
    bad = ~np.isfinite(values) | (values < 0) | (values > _MAX) | (values != np.floor(values))
    for line in np.flatnonzero(bad)[:1]:
        raise InputError(
            f"{at(source, int(line) + 2, name)}: got {column.iloc[line]!r}, expected a whole number of at least 0"
        )
    return np.asarray(values, dtype=np.int64)


def _refuse(source: str | Path, name: str, bad: NDArray[np.bool_], given: Ints, allowed: str) -> None:
    for line in np.flatnonzero(bad)[:1]:
        raise InputError(f"{at(source, int(line) + 2, name)}: got {given[line]}, expected {allowed}")
