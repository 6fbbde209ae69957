"""Import Weka coding-agent traces (kv-cache-tester, folder `traces/`): anonymised sessions of a coding agent.

Stages are LLM calls; between a call and the one it follows stands a WAIT stage where a human typed (the
call's `input_types` is exactly ["text"]) and a TOOL stage otherwise. Its duration is the recorded gap
from end to start, 1 s grain; after tool results it holds client overhead and approvals besides the tool.
Agents: "main", "aux" (calls to a small model beside a bigger one), and each sub-agent's type ("explore").
Which call continues which is decided in `traces/_weka_calls.py` by role, prefix and times.
Identity: block ids are local to a trace and stay so; no two traces share a prefix, though their tool and
system prompts may have been equal. Tokens of outputs have no identity in the source, so a sequence's
identity ends with its prompt.
"""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

from traces._duplicates import near_duplicates
from traces._records import get, get_at_least, head_of, load_json, source_files, wanted
from traces._weka_calls import MAIN, Trace, estimate_ends, joins, parse, predecessors
from traces.builder import WorkloadBuilder
from traces.errors import InputError
from traces.schema import StageKind, Workload

SOURCE = "callanjfox/kv-cache-tester, traces/ (coding-agent sessions recorded by a proxy)"
LICENCE = "Apache-2.0"
SUFFIXES = (".json", ".json.gz")


def read(path: Path, *, deduplicate: bool = True, only: Path | None = None) -> Workload:
    """Return the workload of one trace file, or of every `*.json[.gz]` below a folder; one workflow a trace.

    deduplicate: import one trace of each near-duplicate group; the others are counted in
    `provenance["not_imported"]`.
    only: import the traces named in this text file, or in this `.workload`; the others are counted too.
    Raises InputError "file: field ..." for anything that breaks the format.
    """
    skipped: Counter[str] = Counter()
    traces: list[Trace] = []
    block_tokens = 0
    names = wanted(only)
    for file in source_files(path, SUFFIXES):
        raw = load_json(file)
        block_tokens = block_tokens or get_at_least(raw, "block_size", 1, file)
        get(raw, "requests", list, file)
        if names is not None and get(raw, "id", str, file) not in names:
            skipped["trace not asked for"] += 1
            continue
        trace = parse(raw, file, block_tokens, skipped)
        if trace.calls:
            traces.append(trace)
        else:
            skipped["trace without calls"] += 1
    if not traces:
        raise InputError(f"{path}: no trace with LLM calls in it")
    duplicates = near_duplicates([[(c.prompt_tokens, c.output_tokens) for c in t.calls] for t in traces])
    if deduplicate and duplicates:
        skipped["near-duplicate trace"] = len(duplicates)
        skipped["call of a near-duplicate trace"] = sum(len(traces[i].calls) for i in duplicates)
        traces = [t for i, t in enumerate(traces) if i not in duplicates]
    filled, rate_ns = estimate_ends(traces)
    builder = WorkloadBuilder("weka", block_tokens)
    for trace in traces:
        _add(builder, trace)
    return builder.build(_provenance(traces, skipped, len(duplicates), filled, rate_ns))


def sniff(path: Path, head: bytes) -> bool:
    """Say whether a file's head, or the first file of a folder, looks like a Weka trace."""
    return b'"hash_id_scope"' in head_of(path, head, SUFFIXES)


def _add(builder: WorkloadBuilder, trace: Trace) -> None:
    builder.workflow(trace.name)
    predecessor = predecessors(trace)
    waits_for = joins(trace, predecessor)
    stage: list[int] = []
    for i, call in enumerate(trace.calls):
        parents: list[int] = []
        if predecessor[i] >= 0:
            before = [predecessor[i], *waits_for[i]]
            human = call.human and call.agent == MAIN and not waits_for[i]
            gap_ns = max(0, call.start_ns - max(trace.calls[k].end_ns for k in before))
            kind = StageKind.WAIT if human else StageKind.TOOL
            parents = [builder.delay(kind, gap_ns, parents=sorted({stage[k] for k in before}))]
        stage.append(
            builder.llm(
                call.prompt_tokens,
                call.output_tokens,
                parents=parents,
                agent=call.agent,
                prompt_units=call.units,
                sequence_units=call.units,
            )
        )


def _provenance(
    traces: list[Trace], skipped: Counter[str], duplicates: int, filled: int, rate_ns: int
) -> dict[str, Any]:
    return {
        "source": SOURCE,
        "licence": LICENCE,
        "format": "weka",
        "records": {
            "traces": len(traces),
            "calls": sum(len(t.calls) for t in traces),
            "subagents": sum(len(t.subagent_start_ns) for t in traces),
        },
        "near_duplicate_traces_found": duplicates,
        "timing": (
            "TOOL and WAIT stages last from the end (t + api_time) of the call before to t, never below 0;"
            " t has 1 s grain; after tool results the gap holds client overhead and approvals: not tool time"
        ),
        "calls_without_api_time": filled,
        "api_time_estimate": (
            f"output tokens x the median ns per output token of the trace ({rate_ns} ns over all traces),"
            " cut at the next call; used only to place the end of calls that record no api_time"
        ),
        "identity": (
            "block ids are local to a trace and are kept so: nothing is shared between workflows; only full"
            " blocks have an identity; outputs have none"
        ),
        "not_imported": dict(sorted(skipped.items())),
    }
