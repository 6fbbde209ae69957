"""Export a run to Chrome trace-event JSON, which Perfetto and chrome://tracing open.

One process for each replica: a track of steps, and counters. One process for each workflow: its requests as
slices with their phases (queued, prefill, decode) nested inside. Requests of a workflow overlap, so they are
asynchronous events, which viewers stack. Written in a stream: memory does not grow with the run.
"""

from __future__ import annotations

import gzip
import io
import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any, TextIO

from traces.errors import InputError
from traces.runlog import RunLog, read_run
from traces.tables import REQUEST_STATUS

# Process ids: 0 is left alone (viewers take it for the kernel's idle task); workflows far above replicas.
REPLICA_PID = 1
WORKFLOW_PID = 1_000_000
_BRANCH_ID, _FILL_ID = 1 << 40, 1 << 41  # beside the ids of requests

_STEP_COLUMNS = (
    "replica", "start_ns", "duration_ns", "decode_seqs", "prefill_seqs", "prefill_tokens", "context_tokens",
    "drafted_tokens", "accepted_tokens", "graph_tokens", "waiting", "kv_blocks_active", "kv_blocks_cached",
)  # fmt: skip
_REQUEST_COLUMNS = (
    "workflow", "stage", "agent", "replica", "released_ns", "admitted_ns", "first_token_ns", "finished_ns",
    "prompt_tokens", "output_tokens", "gpu_hit_tokens", "host_hit_tokens", "recomputed_tokens", "preemptions",
    "status",
)  # fmt: skip


def export(run_dir: Path | str, out_path: Path | str) -> Path:
    """Write the run in `run_dir` as a trace to `out_path` (compressed if it ends in `.gz`); return the path.

    The same run gives the same bytes. The file appears whole or not at all. Raises InputError for a bad
    run or a place that cannot be written.
    """
    return export_log(read_run(run_dir), out_path)


def export_log(log: RunLog, out_path: Path | str) -> Path:
    """Write a log as a trace, as `export` does."""
    out = Path(out_path)
    if out.is_dir():
        raise InputError(f"{out}: is a folder; give the name of a file, such as {out / 'trace.json.gz'}")
    aside = out.with_name(f".{out.name}.{os.getpid()}.part")
    try:
        with aside.open("wb") as raw:
            _write(log, raw, compressed=out.suffix == ".gz")
        aside.replace(out)
    except OSError as e:
        raise InputError(f"{out}: {e.strerror}") from None
    finally:
        aside.unlink(missing_ok=True)
    return out


def _write(log: RunLog, raw: io.BufferedWriter, *, compressed: bool) -> None:
    if not compressed:
        with io.TextIOWrapper(raw, encoding="ascii", newline="\n") as text:
            _document(log, text)
        return
    # No name and no time in the gzip header: they would differ between equal runs.
    with (
        gzip.GzipFile(filename="", mode="wb", compresslevel=6, fileobj=raw, mtime=0) as packed,
        io.TextIOWrapper(io.BufferedWriter(packed, 1 << 16), encoding="ascii", newline="\n") as text,
    ):
        _document(log, text)


def _document(log: RunLog, text: TextIO) -> None:
    text.write('{"displayTimeUnit":"ms","traceEvents":[')
    separator = "\n"
    for event in events(log):
        text.write(separator + event)
        separator = ",\n"
    text.write("\n]}\n")


def events(log: RunLog) -> Iterator[str]:
    """Yield the events of a run as JSON objects (text): names, steps and counters, requests, branches, fills."""
    for replica in range(log.replicas):
        yield _named("process_name", REPLICA_PID + replica, f"replica {replica}")
        yield _sorted(REPLICA_PID + replica, replica)
        yield _named("thread_name", REPLICA_PID + replica, "steps")
    yield from _steps(log)
    yield from _requests(log)
    yield from _branches(log)
    yield from _fills(log)


def _branches(log: RunLog) -> Iterator[str]:
    """Yield the resolution windows of branches, each on its workflow."""
    columns = ("workflow", "stage", "branch", "opened_ns", "resolved_ns", "candidates", "fills", "promoted")
    for row in zip(*(c.tolist() for c in log.columns("branches", *columns)), strict=True):
        workflow, stage, branch, opened, resolved, candidates, fills, promoted = row
        pid, args = (
            WORKFLOW_PID + workflow,
            {"stage": stage, "candidates": candidates, "fills": fills, "promoted": promoted},
        )
        yield _span("b", pid, _BRANCH_ID + branch, f"branch {branch}", opened, args)
        yield _span("e", pid, _BRANCH_ID + branch, f"branch {branch}", max(resolved, opened))


def _fills(log: RunLog) -> Iterator[str]:
    """Yield the stages that fills ran, each on its workflow, named by what became of them."""
    columns = ("workflow", "fill", "option", "rank", "position", "stage", "replica", "started_ns", "ended_ns")
    fates = log.table("fills", ["fate"]).column("fate").to_pylist()
    rows = zip(*(c.tolist() for c in log.columns("fills", *columns)), strict=True)
    for i, (row, fate) in enumerate(zip(rows, fates, strict=True)):
        workflow, fill, option, rank, position, stage, replica, started, ended = row
        pid, name = WORKFLOW_PID + workflow, f"fill {fill}.{position}: stage {stage}, {fate}"
        args = {"option": option, "rank": rank, "replica": replica}
        yield _span("b", pid, _FILL_ID + i, name, started, args)
        yield _span("e", pid, _FILL_ID + i, name, max(ended, started))


def _steps(log: RunLog) -> Iterator[str]:
    shown: dict[tuple[int, str], tuple[int, ...]] = {}
    end: dict[int, int] = {}
    for batch in log.batches("steps", _STEP_COLUMNS):
        for row in zip(*(batch[c].tolist() for c in _STEP_COLUMNS), strict=True):
            (replica, start, duration, decode, prefill, chunk, context, drafted, accepted, graph, waiting,
             active, cached) = row  # fmt: skip
            name = "mixed" if decode and prefill else "prefill" if prefill else "decode"
            yield (
                f'{{"ph":"X","pid":{REPLICA_PID + replica},"tid":0,"cat":"step","name":"{name}",'
                f'"ts":{_us(start)},"dur":{_us(duration)},"args":{{"decode_seqs":{decode},'
                f'"prefill_seqs":{prefill},"prefill_tokens":{chunk},"context_tokens":{context},"drafted_tokens":{drafted},'
                f'"accepted_tokens":{accepted},"graph_tokens":{graph}}}}}'
            )
            if end.get(replica, start) < start:
                # Idle between steps: a counter would otherwise show the last batch until the next one.
                yield _counter(replica, end[replica], "running", decode=0, prefill=0)
                shown[replica, "running"] = (0, 0)
            end[replica] = start + duration
            for counter, values in (
                ("running", {"decode": decode, "prefill": prefill}),
                ("waiting", {"requests": waiting}),
                ("kv_blocks", {"active": active, "cached": cached}),
            ):
                now = tuple(values.values())
                if shown.get((replica, counter)) != now:
                    shown[replica, counter] = now
                    yield _counter(replica, start, counter, **values)
    for replica in sorted(end):
        yield _counter(replica, end[replica], "running", decode=0, prefill=0)


def _requests(log: RunLog) -> Iterator[str]:
    named: set[int] = set()
    index = 0
    for batch in log.batches("requests", _REQUEST_COLUMNS):
        for values in zip(*(batch[c].tolist() for c in _REQUEST_COLUMNS), strict=True):
            row = dict(zip(_REQUEST_COLUMNS, values, strict=True))
            workflow = row["workflow"]
            if workflow not in named:
                named.add(workflow)
                yield _named("process_name", WORKFLOW_PID + workflow, f"workflow {workflow}")
                yield _sorted(WORKFLOW_PID + workflow, WORKFLOW_PID + workflow)
            yield from _request(row, index)
            index += 1


def _request(row: dict[str, int], index: int) -> Iterator[str]:
    pid = WORKFLOW_PID + row["workflow"]
    released, admitted, first, finished = (
        row[c] for c in ("released_ns", "admitted_ns", "first_token_ns", "finished_ns")
    )
    last = max(released, admitted, first, finished)
    args = {c: row[c] for c in _REQUEST_COLUMNS if not c.endswith("_ns") and c not in ("workflow", "status")}
    args["status"] = REQUEST_STATUS[row["status"]]  # type: ignore[assignment]
    yield _span("b", pid, index, f"stage {row['stage']}", released, args)
    for name, begin, end in (
        ("queued", released, admitted if admitted >= 0 else last),
        ("prefill", admitted, first if first >= 0 else last),
        ("decode", first, last),
    ):
        if begin >= 0 and end > begin:
            yield _span("b", pid, index, name, begin)
            yield _span("e", pid, index, name, end)
    yield _span("e", pid, index, f"stage {row['stage']}", last)


def _span(
    phase: str, pid: int, index: int, name: str, time_ns: int, args: dict[str, Any] | None = None
) -> str:
    tail = "" if args is None else f',"args":{json.dumps(args, separators=(",", ":"))}'
    return (
        f'{{"ph":"{phase}","pid":{pid},"tid":0,"cat":"request","id":"{index:#x}","name":"{name}",'
        f'"ts":{_us(time_ns)}{tail}}}'
    )


def _counter(replica: int, time_ns: int, name: str, **values: int) -> str:
    body = ",".join(f'"{k}":{v}' for k, v in values.items())
    return f'{{"ph":"C","pid":{REPLICA_PID + replica},"name":"{name}","ts":{_us(time_ns)},"args":{{{body}}}}}'


def _named(kind: str, pid: int, name: str) -> str:
    return f'{{"ph":"M","pid":{pid},"tid":0,"name":"{kind}","args":{{"name":"{name}"}}}}'


def _sorted(pid: int, index: int) -> str:
    return f'{{"ph":"M","pid":{pid},"tid":0,"name":"process_sort_index","args":{{"sort_index":{index}}}}}'


def _us(time_ns: int) -> str:
    """Nanoseconds as microseconds, exactly: trace events count in microseconds."""
    return f"{time_ns // 1000}.{time_ns % 1000:03d}"
