"""Import SWE-agent trajectories (`*.traj`) as token ids and blocks: what the model wrote, not only how long it was.

One workflow a trajectory, one LLM call an assistant message of `history`; the messages before it are its prompt.
Commands lie between triple back-ticks, and an edit within them ends with `end_of_edit`. `io_sweagent` imports the same
files as a team of roles with lengths only; this format has to be named.
"""

from __future__ import annotations

from collections import Counter
from functools import partial
from pathlib import Path

from traces._dialogue import Call, Encode, gather, workload
from traces._records import get, load_json, source_files
from traces.errors import InputError
from traces.io_sweagent import LICENCE, SOURCE, SUFFIXES
from traces.schema import Workload

STRUCTURE = '[[("edit ", "end_of_edit")], [("```", "```")]]'


def read(
    path: Path,
    *,
    tokenizer: Encode = "cl100k_base",
    structure: str = STRUCTURE,
    block_tokens: int = 16,
    only: Path | None = None,
) -> Workload:
    """Return the workload of one trajectory, or of every `*.traj` below a folder.

    tokenizer: an encoding name, a `.tiktoken` or tokenizers `.json` file, or a function text -> ids. structure: groups
    of paired delimiters (`traces.structure.parse_structure`). only: import the workflows named in this text file or
    `.workload`. Workflows are named `<folder>/<issue>`. Raises InputError "file: field 'history[3].content' ...".
    """
    skipped: Counter[str] = Counter()
    files = source_files(path, SUFFIXES)
    found = ((f"{file.parent.name}/{file.stem}", partial(_calls, file)) for file in files)
    sessions = gather(found, only, skipped, "trajectory", "a step")
    if not sessions:
        raise InputError(f"{path}: no trajectory to import")
    return workload(
        "sweagent_text", sessions, tokenizer=tokenizer, structure=structure, block_tokens=block_tokens,
        provenance={
            "source": SOURCE,
            "licence": LICENCE,
            "prompts": "system prompt, issue and observations as recorded",
            "not_imported": dict(sorted(skipped.items())),
        },
    )  # fmt: skip


def _calls(file: Path) -> list[Call]:
    said: list[str] = []
    calls = []
    for i, message in enumerate(get(load_json(file), "history", list, file)):
        text = get(message, "content", str, file, f"history[{i}].")
        role = get(message, "role", str, file, f"history[{i}].")
        if role == "assistant" and text and said:
            calls.append(Call("agent", tuple(said), text))
        if text:
            said.append(text)
    return calls
