"""Import tau-bench trajectories (`historical_trajectories/*.json`): a service agent, its tools and a user.

One workflow a (task, trial), one LLM call an assistant message; users are LLMs of the benchmark, not of the agent. A
tool call is written out as `<tool_call>{...}</tool_call>`, which is how chat templates print it; the source holds it as
JSON. The message list before a call is its prompt; the tool list is not in the source.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

from traces._dialogue import Call, Encode, gather, workload
from traces._records import get, head_of, load_json, source_files
from traces.errors import InputError
from traces.schema import Workload

SOURCE = "sierra-research/tau-bench, historical_trajectories"
LICENCE = "MIT"
SUFFIXES = (".json",)
STRUCTURE = '[[("<tool_call>", "</tool_call>")]]'


def read(
    path: Path,
    *,
    tokenizer: Encode = "cl100k_base",
    structure: str = STRUCTURE,
    block_tokens: int = 16,
    only: Path | None = None,
) -> Workload:
    """Return the workload of one file or of every `*.json` below a folder.

    tokenizer: an encoding name, a `.tiktoken` or tokenizers `.json` file, or a function text -> ids. structure: groups
    of paired delimiters (`traces.structure.parse_structure`). only: import the workflows named in this text file or
    `.workload`. Workflows are named `<file>/<task>/<trial>`. Raises InputError "file: field 'traj[3].role' ...".
    """
    skipped: Counter[str] = Counter()
    sessions = gather(_found(path), only, skipped, "trajectory", "an assistant message")
    if not sessions:
        raise InputError(f"{path}: no trajectory to import")
    return workload(
        "taubench", sessions, tokenizer=tokenizer, structure=structure, block_tokens=block_tokens,
        provenance={
            "source": SOURCE,
            "licence": LICENCE,
            "prompts": "system policy and messages as recorded, without the tool list",
            "assumed": {"tool calls": "printed between <tool_call> and </tool_call>"},
            "not_imported": dict(sorted(skipped.items())),
        },
    )  # fmt: skip


def sniff(path: Path, head: bytes) -> bool:
    """Say whether a file's head, or the first file of a folder, is a list of trajectories."""
    found = head_of(path, head, SUFFIXES).lstrip()
    return found.startswith(b"[") and b'"traj"' in found and b'"task_id"' in found


def _found(path: Path) -> Iterator[tuple[str, Callable[[], list[Call]]]]:
    def calls(record: Any, file: Path, inside: str) -> list[Call]:
        return _calls(get(record, "traj", list, file, inside), file, f"{inside}traj")

    for file in source_files(path, SUFFIXES):
        records = load_json(file)
        if not isinstance(records, list):
            raise InputError(f"{file}: expected a list of trajectories")
        for i, record in enumerate(records):
            inside = f"[{i}]."
            task, trial = (get(record, n, int, file, inside) for n in ("task_id", "trial"))
            yield f"{file.stem}/{task}/{trial}", partial(calls, record, file, inside)


def _calls(messages: list[Any], file: Path, place: str) -> list[Call]:
    calls: list[Call] = []
    said: list[str] = []
    for i, message in enumerate(messages):
        inside = f"{place}[{i}]."
        role = get(message, "role", str, file, inside)
        text = message.get("content") or ""
        if not isinstance(text, str):
            get(message, "content", str, file, inside)
        for tool in message.get("tool_calls") or []:
            function = get(tool, "function", dict, file, f"{inside}tool_calls[].")
            written = {
                "name": get(function, "name", str, file, f"{inside}tool_calls[].function."),
                "arguments": get(function, "arguments", str, file, f"{inside}tool_calls[].function."),
            }
            text += f"<tool_call>{json.dumps(written)}</tool_call>"
        if role == "assistant" and text and said:
            calls.append(Call("agent", tuple(said), text))
        if text:
            said.append(text)
    return calls
