"""Import ChatDev logs (`WareHouse/*/*.log`): a software company's chat as token ids and blocks.

One workflow a log, one LLM call a chat turn, in the order of the log. What a call read is the role prompt that the log
prints in brackets before its message (when the log prints none, the last one), then the conversation of its phase.
User-role messages that only repeat the message before them are instructions passed on, not generated, and are left
out. Code lies between triple back-ticks.
"""

from __future__ import annotations

import re
from collections import Counter
from functools import partial
from pathlib import Path

from traces._dialogue import Call, Encode, gather, workload
from traces._records import head_of, source_files
from traces.errors import InputError
from traces.reading import read_bytes
from traces.schema import Workload

SOURCE = "OpenBMB/ChatDev, WareHouse logs"
LICENCE = "data CC BY-NC 4.0"
SUFFIXES = (".log",)
STRUCTURE = '[[("```", "```")]]'

_ROW = re.compile(r"^\[\d{4}-\d\d-\d\d \d\d:\d\d:\d\d [A-Z]+\] ", re.MULTILINE)
_TURN = re.compile(
    r"(?P<speaker>[A-Za-z ]+): \*\*(?P<pair>[^*\n]+?)(?: on : (?P<phase>\w+))?, turn \d+\*\*\s*", re.DOTALL
)
_OLD = re.compile(
    r"(?:\x1b?\[\d+m)?\[(?P<turn>\d+)\] AI (?P<kind>Assistant|User) \((?P<speaker>[^)\n]+)\):\s*", re.DOTALL
)
_ROLE = re.compile(r"\[ChatDev is a software company.*?\]\s*(?=\n|$)", re.DOTALL)
_COLOUR = re.compile(r"\x1b\[\d+m|\[\d+m")


def read(
    path: Path,
    *,
    tokenizer: Encode = "cl100k_base",
    structure: str = STRUCTURE,
    block_tokens: int = 16,
    only: Path | None = None,
) -> Workload:
    """Return the workload of one log or of every `*.log` below a folder.

    tokenizer: an encoding name, a `.tiktoken` or tokenizers `.json` file, or a function text -> ids. structure: groups
    of paired delimiters (`traces.structure.parse_structure`). only: import the workflows named in this text file or
    `.workload`. Raises InputError.
    """
    skipped: Counter[str] = Counter()

    def calls(file: Path) -> list[Call]:
        return turns(read_bytes(file).decode(errors="replace"), skipped)

    found = ((file.stem, partial(calls, file)) for file in source_files(path, SUFFIXES))
    sessions = gather(found, only, skipped, "log", "a turn")
    if not sessions:
        raise InputError(f"{path}: no log with a chat turn in it")
    return workload(
        "chatdev", sessions, tokenizer=tokenizer, structure=structure, block_tokens=block_tokens,
        provenance={
            "source": SOURCE,
            "licence": LICENCE,
            "prompts": "role prompt and the conversation of the phase, as the log prints them",
            "not_imported": dict(sorted(skipped.items())),
        },
    )  # fmt: skip


def sniff(path: Path, head: bytes) -> bool:
    """Say whether a log's head, or the first log of a folder, is ChatDev's."""
    found = head_of(path, head, SUFFIXES)
    return found.startswith(b"[20") and (b"ChatDev" in found or b"AgentTech Starts" in found)


def turns(log: str, skipped: Counter[str]) -> list[Call]:
    """Return the chat turns of a log as calls. Mutates `skipped`."""
    calls: list[Call] = []
    role, phase, last = "", "", ""
    talk: list[str] = []
    for entry in _ROW.split(log)[1:]:
        match = _TURN.match(entry) or _OLD.match(entry)
        if match is None:
            continue
        body = _COLOUR.sub("", entry[match.end() :]).strip()
        said = match.groupdict()
        role_prompt = _ROLE.match(body)
        if role_prompt is not None:
            role, body = role_prompt.group(0).rstrip(), body[role_prompt.end() :].strip()
        if not body:
            continue
        if body == last:
            skipped["message that repeats the one before"] += 1
            continue
        last = body
        # Logs of the old form name no phase, but count its turns from 0.
        begins = said.get("turn") == "0" and said.get("kind") == "Assistant"
        if begins or (said.get("phase") or "") != phase:
            phase, talk = said.get("phase") or "", []
        if said.get("kind") != "User":
            prompt = tuple(p for p in (role, *talk) if p) or ("\n",)
            calls.append(Call(said["speaker"].strip(), prompt, body))
        talk.append(body)
    return calls
