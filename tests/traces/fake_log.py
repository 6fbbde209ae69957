"""Small run logs written by hand, for tests of what reads them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from traces.runlog import RunLog, from_tables
from traces.tables import REQUEST_STATUS, SCHEMAS

MS = 1_000_000


def table(name: str, **columns: Any) -> pa.Table:
    """Fill the columns that are not given with 0 (times with -1, names with "")."""
    schema = SCHEMAS[name]
    n = len(next(iter(columns.values())))
    arrays = []
    for field in schema:
        if pa.types.is_dictionary(field.type):
            values = pa.array(columns.get(field.name, [""] * n), pa.string()).dictionary_encode()
            arrays.append(values.cast(field.type))
        else:
            default = -1 if field.name.endswith("_ns") and name in ("requests", "workflows") else 0
            arrays.append(pa.array(np.asarray(columns.get(field.name, [default] * n)), field.type))
    return pa.table(arrays, schema=schema)


def two_requests() -> dict[str, pa.Table]:
    """Two requests on one replica. All times in ms:

    request 0: released 0, admitted 0, tokens at 10, 15, 20, 25; prompt 100, 40 in HBM, 20 from the host.
    request 1: released 5, admitted 10, tokens at 20, 25; then waits and resumes: token at 60; prompt 300, 10
    in HBM. request 2: rejected at 7.  Steps: [0,10) [10,15) [15,20) [20,25), idle, [50,60).
    """
    requests = table(
        "requests",
        stage=[0, 1, 2],
        workflow=[0, 1, 1],
        prompt_tokens=[100, 300, 9999],
        output_tokens=[4, 3, 0],
        released_ns=[0, 5 * MS, 7 * MS],
        admitted_ns=[0, 10 * MS, -1],
        first_token_ns=[10 * MS, 20 * MS, -1],
        finished_ns=[25 * MS, 60 * MS, 7 * MS],
        gpu_hit_tokens=[40, 10, 0],
        host_hit_tokens=[20, 0, 0],
        prefilled_tokens=[40, 500, 0],
        recomputed_tokens=[0, 210, 0],
        preemptions=[0, 1, 0],
        status=[REQUEST_STATUS.index(s) for s in ("finished", "finished", "rejected")],
        reason=["", "", "prompt larger than the pool"],
    )
    steps = table(
        "steps",
        replica=[0] * 5,
        start_ns=[0, 10 * MS, 15 * MS, 20 * MS, 50 * MS],
        duration_ns=[10 * MS, 5 * MS, 5 * MS, 5 * MS, 10 * MS],
        decode_seqs=[0, 1, 1, 2, 0],
        fill_seqs=[0] * 5,
        continuing_seqs=[0, 1, 1, 2, 0],
        prefill_seqs=[1, 0, 1, 0, 1],
        waiting=[0, 1, 0, 0, 0],
        kv_blocks_active=[7, 7, 26, 26, 20],
        kv_blocks_cached=[0, 0, 1, 1, 8],
    )
    decisions = table(
        "decisions",
        time_ns=[12 * MS, 60 * MS, 61 * MS],
        family=["evictors", "engine", "engine"],
        action=["evict", "gap", "preempt"],
        value=[5, 35 * MS, 1],
    )
    workflows = table(
        "workflows",
        workflow=[0, 1],
        arrival_ns=[0, 4 * MS],
        started_ns=[0, 4 * MS],
        finished_ns=[25 * MS, 60 * MS],
        stages=[1, 2],
        requests=[1, 2],
        rejected=[0, 1],
        waited_ns=[0, 0],
    )
    return {"requests": requests, "steps": steps, "decisions": decisions, "workflows": workflows}


def two_requests_log() -> RunLog:
    """The same as a log, with a pool of 50 blocks."""
    return from_tables(two_requests(), kv_blocks=50)


def write_run(directory: Path, tables: dict[str, pa.Table]) -> Path:
    """Write all six tables as a run directory."""
    directory.mkdir(parents=True, exist_ok=True)
    for name, schema in SCHEMAS.items():
        pq.write_table(tables.get(name, schema.empty_table()), directory / f"{name}.parquet")
    return directory
