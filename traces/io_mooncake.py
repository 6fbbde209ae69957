"""Mooncake traces: JSON lines of timestamp (ms), input_length, output_length, hash_ids; plain or agentic.

Plain: every record is a workflow of one request, or, where records carry `session_id`, the records of a
session follow one another, each `delay` ms after the one before has finished. Agentic: `request_id` names a
record, `wait_for` the records that must finish first, then `delay` and `tool_wait_ms` pass; sessions that
wait for each other are one workflow. Timestamps, hashes and output lengths are optional.
"""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from traces.builder import WorkloadBuilder
from traces.errors import InputError, at
from traces.fields import Record
from traces.mooncake_graph import Node, workflows
from traces.reading import base_provenance, counted, parse_json, records
from traces.schema import StageKind, Workload

PLAIN_BLOCK_TOKENS = 512
AGENTIC_BLOCK_TOKENS = 64
_MS = 1_000_000
_KNOWN = {
    "timestamp", "input_length", "output_length", "hash_ids", "session_id", "delay", "request_id", "wait_for",
    "tool_wait_ms",
}  # fmt: skip


def sniff(path: Path, head: bytes) -> bool:
    """Say whether the first line is a JSON object with `input_length`."""
    first = head.split(b"\n", 1)[0].strip()
    if not first.startswith(b"{"):
        return False
    try:
        return "input_length" in parse_json(first, path)
    except InputError:
        return b'"input_length"' in first


def read(path: Path, block_tokens: int | None = None, missing_output_tokens: int = 0) -> Workload:
    """Read a Mooncake file, plain or gzip; InputError names file, line and field.

    block_tokens: tokens a hash covers; None is 512 for plain and 64 for agentic traces. A trace with more
    hashes than its prompts have blocks is refused: the size is not the trace's.
    missing_output_tokens: output length of records that state none; their number is counted in `assumed`.
    """
    if block_tokens is not None and block_tokens < 1:
        raise InputError(f"{path}: option block_tokens={block_tokens}: expected at least 1")
    if missing_output_tokens < 0:
        raise InputError(f"{path}: option missing_output_tokens={missing_output_tokens}: expected at least 0")
    skipped: Counter[str] = Counter()
    assumed: Counter[str] = Counter()
    unused: Counter[str] = Counter()
    nodes: list[Node] = []
    total = 0
    for line, values in records(path):
        total += 1
        record = Record(path, line, values)
        unused.update(name for name in values if name not in _KNOWN)
        prompt_tokens = record.tokens("input_length")
        if prompt_tokens == 0:
            skipped["prompt of 0 tokens"] += 1
        if values.get("output_length") is None:
            assumed[f"output_length missing, taken as {missing_output_tokens}"] += 1
        nodes.append(_node(record, prompt_tokens, record.tokens("output_length", missing_output_tokens)))
    if not any(n.prompt_tokens for n in nodes):
        raise InputError(
            f"{path}: no request to import" + (f" ({total} with a prompt of 0 tokens)" if total else "")
        )
    agentic = any(n.wait_for for n in nodes)
    if skipped and (agentic or any(n.session for n in nodes)):
        line = next(n.line for n in nodes if not n.prompt_tokens)
        raise InputError(
            f"{at(path, line, 'input_length')}: got 0, expected at least 1: "
            "others of its session may wait for it"
        )
    if block_tokens is None:
        block_tokens = AGENTIC_BLOCK_TOKENS if agentic else PLAIN_BLOCK_TOKENS
    nodes = [n for n in nodes if n.prompt_tokens]
    _check_blocks(path, nodes, block_tokens)
    timed = _check_timestamps(path, nodes, agentic)
    builder = WorkloadBuilder(path.stem, block_tokens)
    for group in workflows(path, nodes, agentic):
        unused.update(_add_workflow(builder, group, timed))
    options = {"block_tokens": block_tokens, "missing_output_tokens": missing_output_tokens}
    provenance = base_provenance(path, "mooncake", total, options)
    provenance["variant"] = "agentic" if agentic else "plain"
    provenance["not_imported"] = counted(skipped)
    if assumed:
        provenance["assumed"] = counted(assumed)
    if unused:
        provenance["fields_not_used"] = counted(unused)
    return builder.build(provenance)


def _node(record: Record, prompt_tokens: int, output_tokens: int) -> Node:
    stamped = record.values.get("timestamp") is not None
    return Node(
        line=record.line,
        name=record.text("request_id", ""),
        session=record.text("session_id", ""),
        timestamp_ns=record.time_ns("timestamp", _MS, "milliseconds") if stamped else None,
        prompt_tokens=prompt_tokens,
        output_tokens=output_tokens,
        hashes=record.ids("hash_ids"),
        wait_for=tuple(record.texts("wait_for")),
        delay_ns=record.time_ns("delay", _MS, "milliseconds", 0),
        tool_ns=record.time_ns("tool_wait_ms", _MS, "milliseconds", 0),
    )


def _check_blocks(path: Path, nodes: list[Node], block_tokens: int) -> None:
    for node in nodes:
        blocks = -(-node.prompt_tokens // block_tokens)
        if node.hashes is not None and len(node.hashes) > blocks:
            raise InputError(
                f"{at(path, node.line, 'hash_ids')}: got {len(node.hashes)} hashes for a prompt of "
                f"{node.prompt_tokens} tokens, expected at most {blocks} at block_tokens={block_tokens}; "
                "state the trace's block size"
            )


def _check_timestamps(path: Path, nodes: list[Node], agentic: bool) -> bool:
    """Say whether the trace has arrival times; InputError when some starts have one and others have none."""
    seen: set[str] = set()
    first: Node | None = None
    for node in nodes:
        follows = bool(node.wait_for) if agentic else node.session in seen
        if not follows:
            first = first or node
            if (node.timestamp_ns is None) != (first.timestamp_ns is None):
                bare, other = (node, first) if node.timestamp_ns is None else (first, node)
                raise InputError(
                    f"{at(path, bare.line, 'timestamp')}: missing, while line {other.line} has one: "
                    "give all or none"
                )
        if node.session:
            seen.add(node.session)
    return first is not None and first.timestamp_ns is not None


def _add_workflow(builder: WorkloadBuilder, group: list[Node], timed: bool) -> dict[str, int]:
    """Add the stages of one workflow, parents first; return counts of fields that decide nothing."""
    unused: Counter[str] = Counter()
    begin = min(n.timestamp_ns or 0 for n in group if not n.parents) if timed else None
    builder.workflow(group[0].session or group[0].name or f"line-{group[0].line}", begin)
    stage: dict[int, int] = {}
    for node in group:
        parents = [stage[p] for p in node.parents]
        if node.parents:
            late = node.timestamp_ns is not None and node.timestamp_ns != begin
            unused["timestamp of a request that waits for others"] += late
        elif begin is not None and node.timestamp_ns is not None and node.timestamp_ns > begin:
            parents = [builder.delay(StageKind.WAIT, node.timestamp_ns - begin)]
        for kind, duration_ns in ((StageKind.TOOL, node.tool_ns), (StageKind.WAIT, node.delay_ns)):
            if duration_ns and node.parents:
                parents = [builder.delay(kind, duration_ns, parents=parents)]
            elif duration_ns:
                unused["delay of a request that waits for none"] += 1
        stage[node.line] = builder.llm(
            node.prompt_tokens, node.output_tokens, parents=parents, prompt_units=_units(node.hashes)
        )
    return {name: n for name, n in unused.items() if n}


def _units(hashes: NDArray[np.uint64] | None) -> Any:
    return hashes if hashes is not None and len(hashes) else None
