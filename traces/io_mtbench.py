"""Import MT-bench answers (FastChat's answer files): questions that no agent asked, the control without a workflow.

One workflow a question, one LLM call a turn. The file holds no question texts: a call's prompt is what the answers
before it are, after a stand-in of `QUESTION_WORDS` words for the question, so that prompts have a length but share
nothing and hold nothing to copy.
"""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path

from traces._dialogue import Call, Encode, Session, workload
from traces._records import get, head_of, source_files, wanted
from traces.errors import InputError
from traces.reading import records
from traces.schema import Workload

SOURCE = "MT-bench answer files of FasterDecoding/REST"
LICENCE = "Apache-2.0"
SUFFIXES = (".jsonl",)
STRUCTURE = '[[("```", "```")]]'
QUESTION_WORDS = 15  # assumed: about 60 tokens


def read(
    path: Path,
    *,
    tokenizer: Encode = "cl100k_base",
    structure: str = STRUCTURE,
    block_tokens: int = 16,
    only: Path | None = None,
) -> Workload:
    """Return the workload of one answer file, or of every `*.jsonl` below a folder.

    tokenizer: an encoding name, a `.tiktoken` or tokenizers `.json` file, or a function text -> ids. structure: groups
    of paired delimiters (`traces.structure.parse_structure`). only: import the workflows named in this text file or
    `.workload`. Workflows are named `<file>/<question>`. Raises InputError "file:line: field ...".
    """
    names = wanted(only)
    skipped: Counter[str] = Counter()
    sessions = []
    for file in source_files(path, SUFFIXES):
        for _, record in records(file):
            question = get(record, "question_id", int, file)
            name = f"{file.stem}/{question}"
            if names is not None and name not in names:
                skipped["question not asked for"] += 1
                continue
            choices = get(record, "choices", list, file)
            turns = get(choices[0], "turns", list, file, "choices[0].") if choices else []
            said: list[str] = []
            calls = []
            for i, text in enumerate(turns):
                said.append(" ".join(f"q{question}.{i}.{k}" for k in range(QUESTION_WORDS)))
                if isinstance(text, str) and text:
                    calls.append(Call("chat", tuple(said), text))
                    said.append(text)
            if calls:
                sessions.append(Session(name, calls))
            else:
                skipped["question without an answer"] += 1
    if not sessions:
        raise InputError(f"{path}: no answer in it")
    return workload(
        "mtbench", sessions, tokenizer=tokenizer, structure=structure, block_tokens=block_tokens,
        provenance={
            "source": SOURCE,
            "licence": LICENCE,
            "assumed": {"questions": f"stand-ins of {QUESTION_WORDS} words: the files do not hold them"},
            "not_imported": dict(sorted(skipped.items())),
        },
    )  # fmt: skip


def sniff(path: Path, head: bytes) -> bool:
    """Say whether a file's head, or the first file of a folder, is an MT-bench answer file."""
    first = head_of(path, head, SUFFIXES).split(b"\n", 1)[0]
    try:
        record = json.loads(first)
    except ValueError:
        return first.startswith(b"{") and b'"question_id"' in first and b'"choices"' in first
    return isinstance(record, dict) and {"question_id", "choices", "model_id"} <= set(record)
