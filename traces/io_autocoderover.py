"""Import AutoCodeRover results (folders with `info.timestamps.txt` or `info.log`): one workflow a task.

Calls, their billed tokens and tool times are recorded; so is the order of agents. Searcher and patcher keep one
conversation each (the patcher under another system prompt), every proxy call is a conversation of its own. No text
is kept.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from pathlib import Path
from typing import Any

from traces._acr_calls import Call, read_calls
from traces._records import get, head_of, load_json, wanted
from traces._team import in_part
from traces._text import Chain, Text, identity
from traces.builder import WorkloadBuilder
from traces.errors import InputError
from traces.schema import Workload

SOURCE = "nus-apr/auto-code-rover, results/acr-run-* (GPT-4 on SWE-bench Lite)"
LICENCE = "repository AGPL-3.0 / non-commercial"
LOGS = ("info.timestamps.txt", "info.log")
TEST_PER_MILLE = 300


def read(path: Path, *, block_tokens: int = 16, part: str = "all", only: Path | None = None) -> Workload:
    """Return the workload of one log, or of every task folder below a folder.

    part: all, or train or test, which have no issue in common. only: import the workflows named in this text file or
    `.workload`. Workflows are named `<run>/<issue>`. Raises InputError with file and line.
    """
    if block_tokens < 1:
        raise InputError(f"block_tokens={block_tokens}, expected at least 1")
    names = wanted(only)
    builder = WorkloadBuilder("autocoderover", block_tokens)
    skipped: Counter[str] = Counter()
    calls_by_agent: Counter[str] = Counter()
    kept = breaks = 0
    for log in _logs(path):
        issue, name = log.parent.name, f"{log.parent.parent.name}/{log.parent.name}"
        if names is not None and name not in names:
            skipped["task not asked for"] += 1
        elif not in_part(part, "autocoderover", _key(issue), TEST_PER_MILLE):
            skipped[f"task outside part {part}"] += 1
        elif not (calls := read_calls(log)):
            skipped["task without a call"] += 1
        else:
            builder.workflow(name)
            breaks += _add(builder, calls, _key(name), _system_tokens(log.parent, calls))
            calls_by_agent.update(c.agent for c in calls)
            kept += 1
    if not kept:
        raise InputError(f"{path}: no task with a call in it")
    provenance: dict[str, Any] = {
        "source": SOURCE,
        "licence": LICENCE,
        "format": "autocoderover",
        "records": {
            "tasks": kept,
            "calls": dict(sorted(calls_by_agent.items())),
            "calls_shorter_than_their_conversation_so_far": breaks,
        },
        "from_the_data": "calls, their order, billed tokens, tool times (1 s grain)",
        "assumed": {
            "searcher, patcher": "one conversation each: a prompt begins with the prompt and output before it",
            "system prompts": "length by the share of bytes in the first prompt; equal in all tasks",
        },
        "identity": "system prompt, then private to the task",
        "not_imported": dict(sorted(skipped.items())),
    }
    return builder.build(provenance)


def sniff(path: Path, head: bytes) -> bool:
    """Say whether a log, or the first log below a folder, is AutoCodeRover's."""
    return b"Model API request cost info: input_tokens=" in head_of(path, head, LOGS)


def _logs(path: Path) -> list[Path]:
    if path.is_file():
        return [path]
    if not path.exists():
        raise InputError(f"{path}: no such file or folder")
    found: dict[Path, Path] = {}
    for name in reversed(LOGS):
        found |= {p.parent: p for p in path.rglob(name)}
    if not found:
        raise InputError(f"{path}: the folder holds no file named {' or '.join(LOGS)}")
    return [found[folder] for folder in sorted(found)]


def _system_tokens(folder: Path, calls: list[Call]) -> dict[str, int]:
    """Return the tokens of each agent's system prompt, by bytes; of a lone log without transcripts, one token."""
    out = {"searcher": 1, "patcher": 1, "proxy": 1}
    for agent, pattern in (
        ("searcher", "conversation_round_*.json"), ("patcher", "debug_agent_write_patch_*.json"),
        ("proxy", "agent_proxy_*.json"),
    ):  # fmt: skip
        first = next((c for c in calls if c.agent == agent), None)
        files = sorted(folder.glob(pattern))
        if first is None or not files:
            continue
        messages = load_json(files[0])
        if agent == "proxy" and isinstance(messages, list) and messages and isinstance(messages[0], list):
            messages = messages[0]
        if not isinstance(messages, list) or not messages:
            raise InputError(f"{files[0]}: expected a list of messages")
        sizes = []
        for i, message in enumerate(messages):
            if get(message, "role", str, files[0], f"[{i}].") == "assistant":
                break
            sizes.append(len(get(message, "content", str, files[0], f"[{i}].").encode()))
        if sizes and sizes[0]:
            out[agent] = max(1, first.input_tokens * sizes[0] // sum(sizes))
    return out


def _add(builder: WorkloadBuilder, calls: list[Call], key: int, system_tokens: dict[str, int]) -> int:
    """Add a task's stages; return how many calls are shorter than the conversation they should continue."""
    chain = Chain(builder)
    so_far: dict[str, Text] = {}
    breaks = 0
    for turn, call in enumerate(calls):
        system = Text([(identity("autocoderover", f"system/{call.agent}"), system_tokens[call.agent])])
        before = so_far.get(call.agent, system)
        if before.tokens > call.input_tokens:
            breaks += before is not system
            before = system if system.tokens <= call.input_tokens else Text()
        rest = call.input_tokens - before.tokens
        prompt = before.with_((identity("autocoderover", "read", key, turn), rest)) if rest else before
        said = (identity("autocoderover", "said", key, turn), call.output_tokens)
        chain.call(call.agent, prompt, said)
        if call.agent != "proxy":
            so_far[call.agent] = prompt.with_(said)
        if call.tool_s:
            chain.tool("tools", call.tool_s * 1_000_000_000)
    return breaks


def _key(text: str) -> int:
    return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=8).digest(), "little") >> 1
