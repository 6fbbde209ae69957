"""Import LMCache agent traces (lmcache-agent-trace: `miniswe/`, `magagent/`, `taubench/`), recorded as text.

Only numbers come out: token counts, the identity of prompts and of prompts followed by outputs in blocks, token ids
through a keyed hash (`traces/_token_ids.py`), semantic blocks of outputs (`STRUCTURE`). Whether a prompt continues
the output before it is decided by equality of tokens alone. A session is a chain: LLM call, TOOL stage, LLM call, ...
Agents are "SET/role-N": the source names none, roles are inferred from prompt heads (`_lmcache_sessions.py`).
Timing: the source has start times only. A TOOL stage lasts from start to start less an estimate of the LLM
time: output tokens at the set's pace, the 10th percentile of gap over output tokens.
"""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np

from traces._dialogue import Encode, Outlines
from traces._duplicates import near_duplicates
from traces._lmcache_sessions import Session, decode_us_per_token, name_roles, read_file, tokenised
from traces._records import head_of, source_files, wanted
from traces._token_ids import KeyedIds, block_units, content_key
from traces._tokenizer import load
from traces.builder import WorkloadBuilder
from traces.errors import InputError
from traces.schema import StageKind, Workload

SOURCE = "LMCache/lmcache-agent-trace (agent traces with full prompts and outputs)"
LICENCE = "Apache-2.0"
SUFFIXES = (".jsonl", ".jsonl.gz")
# Commands and code lie between back-ticks, the planner's ledgers are JSON objects.
STRUCTURE = '[[("```", "```")], [("{", "}")]]'


def read(
    path: Path,
    *,
    tokenizer: Encode = "cl100k_base",
    structure: str = STRUCTURE,
    block_tokens: int = 16,
    deduplicate: bool = True,
    only: Path | None = None,
) -> Workload:
    """Return the workload of one file or of every `*.jsonl[.gz]` below a folder; one workflow a session.

    tokenizer: an encoding name, a `.tiktoken` or tokenizers `.json` file, or a function text -> ids.
    structure: groups of paired delimiters (`traces.structure.parse_structure`).
    block_tokens: tokens a unit of prefix identity covers.
    deduplicate: import one of each group of near-duplicate sessions.
    only: import the sessions named ("SET/SESSION_ID") in this text file or `.workload`.
    What is left out is counted in `provenance["not_imported"]`. Raises InputError "file:line: field ...".
    """
    if block_tokens < 1:
        raise InputError(f"block_tokens={block_tokens}, expected at least 1")
    tokenize = load(tokenizer) if isinstance(tokenizer, str) else tokenizer
    outlines = Outlines(structure, tokenize)
    skipped: Counter[str] = Counter()
    names = wanted(only)
    sessions: list[Session] = []
    for file in source_files(path, SUFFIXES):
        group = file.resolve().parent.name
        found = read_file(file)
        if not found:
            skipped[f"{group}: file without records"] += 1
        for session, rows in found.items():
            name = f"{group}/{session}"
            if names is not None and name not in names:
                skipped[f"{group}: session not asked for"] += 1
                continue
            sessions.append(tokenised(group, name, rows, tokenize, outlines, skipped))
    for s in sessions:
        skipped[f"{s.group}: session without a usable call"] += not s.calls
    sessions = [s for s in sessions if s.calls]
    if not sessions:
        raise InputError(f"{path}: no session with a usable call in it")
    twice = near_duplicates([[(s.group, c.prompt, c.output) for c in s.calls] for s in sessions])
    if deduplicate:
        for i in twice:
            skipped[f"{sessions[i].group}: near-duplicate session"] += 1
        sessions = [s for i, s in enumerate(sessions) if i not in twice]
    name_roles(sessions)
    pace_us = decode_us_per_token(sessions)
    builder = WorkloadBuilder("lmcache", block_tokens)
    ids = KeyedIds(content_key(s.content for s in sessions))
    for s in sessions:
        _add(builder, s, ids, block_tokens, pace_us[s.group])
    said = str(Path(tokenizer).stem) if isinstance(tokenizer, str) else "a function"
    return builder.build(_provenance(sessions, skipped, len(twice), pace_us, said, structure))


def sniff(path: Path, head: bytes) -> bool:
    """Say whether a file's head, or the first file of a folder, looks like an LMCache agent trace."""
    first = head_of(path, head, SUFFIXES).split(b"\n", 1)[0]
    return first.startswith(b"{") and all(k in first for k in (b'"timestamp"', b'"input"'))


def _add(builder: WorkloadBuilder, session: Session, ids: KeyedIds, block_tokens: int, pace_us: int) -> None:
    builder.workflow(session.name)
    parents: list[int] = []
    output_before = 0
    for i, call in enumerate(session.calls):
        if i:
            tool_us = max(0, call.gap_us - pace_us * output_before)
            parents = [builder.delay(StageKind.TOOL, tool_us * 1000, parents=parents)]
        prompt, output = ids.of(call.prompt), ids.of(call.output)
        parents = [
            builder.llm(
                len(prompt),
                len(output),
                parents=parents,
                agent=f"{session.group}/{call.role}",
                prompt_units=block_units(prompt, block_tokens),
                sequence_units=block_units(np.concatenate([prompt, output]), block_tokens),
                output_ids=output,
                output_blocks=call.blocks,
                prompt_ids=prompt,
            )
        ]
        output_before = len(output)


def _provenance(
    sessions: list[Session],
    skipped: Counter[str],
    duplicates: int,
    pace_us: dict[str, int],
    tokenizer: str,
    structure: str,
) -> dict[str, Any]:
    calls = Counter({g: sum(len(s.calls) for s in sessions if s.group == g) for g in pace_us})
    empty = {g: sum(not c.output for s in sessions if s.group == g for c in s.calls) for g in pace_us}
    return {
        "source": SOURCE,
        "licence": LICENCE,
        "format": "lmcache",
        "tokenizer": tokenizer,
        "structure": structure,
        "records": {
            "sessions": {g: sum(s.group == g for s in sessions) for g in pace_us},
            "calls": dict(calls),
        },
        "near_duplicate_sessions_found": duplicates,
        "calls_with_empty_output": {
            "counts": empty,
            "meaning": "imported with 0 output tokens; in taubench: tool calls whose text was not recorded",
        },
        "prompts": "as recorded; taubench prompts lack the system prompt and the tool list",
        "timing": (
            "TOOL lasts the gap from start to start less output tokens x us_per_output_token (10th percentile"
            " of gap / output tokens of the set), never below 0; it includes the time of calls not imported"
        ),
        "us_per_output_token": pace_us,
        "identity": (
            "keyed hash of token ids, key made from the sessions' content; prompts and prompt+output in full"
            " blocks, and as ids; no arrival times (sets were recorded apart)"
        ),
        "not_imported": {reason: n for reason, n in sorted(skipped.items()) if n},
    }
