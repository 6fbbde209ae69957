"""Import AutoCodeRover results as token ids and blocks: searches, patches and the proxy's JSON.

One workflow a task folder. The searcher's calls are the assistant messages of its conversation, of which each file
`conversation_round_N.json` holds all so far: the last one is read. The patcher's are those of
`debug_agent_write_patch_*.json` that are not the searcher's, the proxy's those of `agent_proxy_*.json`, a conversation
each. Order: searcher and proxy rounds, then patches. `io_autocoderover` imports the same folders with billed lengths
and times; this format has to be named.
"""

from __future__ import annotations

import re
from collections import Counter
from functools import partial
from pathlib import Path
from typing import Any

from traces._dialogue import Call, Encode, gather, workload
from traces._records import get, load_json
from traces.errors import InputError
from traces.io_autocoderover import LICENCE, SOURCE
from traces.schema import Workload

STRUCTURE = (
    '[[("<original>", "</original>")], [("<patched>", "</patched>")], [("<file>", "</file>")], '
    '[("```", "```")], [("{", "}")]]'
)


def read(
    path: Path,
    *,
    tokenizer: Encode = "cl100k_base",
    structure: str = STRUCTURE,
    block_tokens: int = 16,
    only: Path | None = None,
) -> Workload:
    """Return the workload of every task folder below a folder; workflows are named `<run>/<issue>`.

    tokenizer: an encoding name, a `.tiktoken` or tokenizers `.json` file, or a function text -> ids. structure: groups
    of paired delimiters (`traces.structure.parse_structure`). only: import the workflows named in this text file or
    `.workload`. Raises InputError "file: field '[3].content' ...".
    """
    if not path.is_dir():
        raise InputError(f"{path}: expected a folder with task folders")
    skipped: Counter[str] = Counter()
    folders = sorted({p.parent for p in path.rglob("conversation_round_*.json")})
    found = ((f"{folder.parent.name}/{folder.name}", partial(_calls, folder)) for folder in folders)
    sessions = gather(found, only, skipped, "task", "a call")
    if not sessions:
        raise InputError(f"{path}: no task with a conversation in it")
    return workload(
        "autocoderover_text", sessions, tokenizer=tokenizer, structure=structure, block_tokens=block_tokens,
        provenance={
            "source": SOURCE,
            "licence": LICENCE,
            "prompts": "conversations as recorded",
            "not_imported": dict(sorted(skipped.items())),
        },
    )  # fmt: skip


def _calls(folder: Path) -> list[Call]:
    searched = _conversation(load_json(_numbered(folder, "conversation_round_*.json")[-1]), folder)
    out = _assistant(searched, "searcher", 0)
    proxies = []
    for file in _numbered(folder, "agent_proxy_*.json"):
        for talk in load_json(file):
            proxies += _assistant(_conversation(talk, file), "proxy", 0)
    # A proxy turns each of the searcher's answers into JSON: they alternate.
    mixed = [c for i in range(max(len(out), len(proxies))) for c in (*out[i : i + 1], *proxies[i : i + 1])]
    for file in _numbered(folder, "debug_agent_write_patch_*.json"):
        talk = _conversation(load_json(file), file)
        shared = 0
        while shared < min(len(talk), len(searched)) and talk[shared][1] == searched[shared][1]:
            shared += 1
        # The patcher has a system prompt of its own, then the searcher's conversation, then what it writes itself.
        known = {text for role, text in searched if role == "assistant"}
        mixed += [c for c in _assistant(talk, "patcher", shared) if c.output not in known]
    return mixed


def _assistant(talk: list[tuple[str, str]], agent: str, start: int) -> list[Call]:
    return [
        Call(agent, tuple(text for _, text in talk[:i] if text), text)
        for i, (role, text) in enumerate(talk)
        if role == "assistant" and text and i >= max(start, 1)
    ]


def _conversation(value: Any, file: Path) -> list[tuple[str, str]]:
    if not isinstance(value, list):
        raise InputError(f"{file}: expected a list of messages")
    return [
        (get(m, "role", str, file, f"[{i}]."), get(m, "content", str, file, f"[{i}]."))
        for i, m in enumerate(value)
    ]


def _numbered(folder: Path, pattern: str) -> list[Path]:
    def number(path: Path) -> int:
        found = re.findall(r"\d+", path.stem)
        return int(found[-1]) if found else 0

    return sorted(folder.glob(pattern), key=number)
