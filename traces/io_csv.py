"""Plain CSV: `arrival_s,prompt_tokens,output_tokens`, one request a row.

Optional columns group rows. Rows of equal `workflow` are one workflow; within it rows of equal `session`
(without the column: all) run one after the other, rows of different sessions side by side. With `session`
alone every session is a workflow. A row starts neither before its own arrival nor before its
predecessor has ended.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.csv as pa_csv
from numpy.typing import NDArray

from traces.builder import WorkloadBuilder
from traces.csv_rows import OPTIONAL, REQUIRED, Rows, parse_header, parse_rows
from traces.errors import InputError
from traces.flat import flat_workload
from traces.reading import base_provenance, read_bytes
from traces.schema import StageKind, Workload

_PLAIN = b"0123456789.,\r\n"


def sniff(path: Path, head: bytes) -> bool:
    """Say whether the content begins with a header that holds the required columns."""
    first = head.split(b"\n", 1)[0].decode("utf-8", "replace").strip().lstrip("\ufeff")
    return set(REQUIRED) <= {c.strip().strip('"') for c in first.split(",")}


def read(path: Path) -> Workload:
    """Read a CSV file, plain or gzip; InputError names file, line and field.

    Rows with a prompt of 0 tokens cannot be run: they are counted in `not_imported`. Arrivals finer than a
    nanosecond are rounded to the nearest one and counted in `rounded`.
    """
    data = read_bytes(path)
    columns, body_at = parse_header(data, path)
    rows = None
    if not set(columns) & set(OPTIONAL):
        rows = _fast_rows(data[body_at:], columns)
    if rows is None:
        rows = parse_rows(data, path, columns)
    keep = rows.prompt_tokens > 0
    dropped = int(len(keep) - np.count_nonzero(keep))
    provenance = base_provenance(path, "csv", len(keep), {})
    provenance["not_imported"] = {"prompt of 0 tokens": dropped} if dropped else {}
    if rows.rounded:
        provenance["rounded"] = {"arrival_s finer than 1 ns": rows.rounded}
    if not keep.any():
        raise InputError(
            f"{path}: no request to import" + (f" ({dropped} with a prompt of 0 tokens)" if dropped else "")
        )
    if rows.workflow is None:
        return flat_workload(
            path.stem, rows.arrival_ns[keep], rows.prompt_tokens[keep], rows.output_tokens[keep], provenance
        )
    return _grouped(path, rows, keep, provenance)


def _fast_rows(body: bytes, columns: list[str]) -> Rows | None:
    """Parse a body of digits, points and commas in one sweep; None when anything is out of the ordinary."""
    if body.translate(None, _PLAIN) or body.count(b"\r") != body.count(b"\r\n"):
        return None
    types = {c: pa.decimal128(28, 9) if c == "arrival_s" else pa.int32() for c in columns}
    try:
        table = pa_csv.read_csv(
            pa.BufferReader(body),
            read_options=pa_csv.ReadOptions(column_names=columns),
            convert_options=pa_csv.ConvertOptions(column_types=types, strings_can_be_null=False),
        )
    except pa.ArrowInvalid:
        return None
    if any(table[c].null_count for c in columns):
        return None
    arrival = table["arrival_s"].combine_chunks()
    # A decimal of scale 9 is stored as its count of 1e-9 units: the nanoseconds, exactly.
    words = np.frombuffer(arrival.buffers()[1], dtype=np.int64).reshape(-1, 2)[arrival.offset :][
        : len(arrival)
    ]
    if np.any(words[:, 1] != 0) or np.any(words[:, 0] < 0):
        return None
    return Rows(
        words[:, 0].copy(),
        table["prompt_tokens"].to_numpy(),
        table["output_tokens"].to_numpy(),
        None,
        None,
        0,
    )


def _grouped(path: Path, rows: Rows, keep: NDArray[np.bool_], provenance: dict[str, Any]) -> Workload:
    assert rows.workflow is not None
    groups: dict[str, list[int]] = {}
    for i in np.flatnonzero(keep).tolist():
        groups.setdefault(rows.workflow[i], []).append(i)
    builder = WorkloadBuilder(path.stem)
    for name, members in groups.items():
        members.sort(key=lambda i: int(rows.arrival_ns[i]))  # stable: equal arrivals keep the file's order
        begin = int(rows.arrival_ns[members[0]])
        builder.workflow(name, begin)
        last: dict[str, int] = {}
        for i in members:
            session = rows.session[i] if rows.session is not None else ""
            parents = [last[session]] if session in last else []
            after_ns = int(rows.arrival_ns[i]) - begin
            if after_ns:
                parents.append(builder.delay(StageKind.WAIT, after_ns))
            last[session] = builder.llm(
                int(rows.prompt_tokens[i]), int(rows.output_tokens[i]), parents=parents
            )
    return builder.build(provenance)
