"""Import MT-bench answers (FastChat's answer files): questions that no agent asked, the control without a workflow.

One workflow a question, one LLM call a turn. The file holds no question texts: a call's prompt is what the answers
before it are, after a stand-in of `QUESTION_WORDS` words for the question, so that prompts have a length but share
nothing and hold nothing to copy.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

from traces._dialogue import Call, Encode, gather, workload
from traces._records import get, head_of, source_files
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
    skipped: Counter[str] = Counter()
    sessions = gather(_found(path), only, skipped, "question", "an answer")
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


def _found(path: Path) -> Iterator[tuple[str, Callable[[], list[Call]]]]:
    for file in source_files(path, SUFFIXES):
        for _, record in records(file):
            question = get(record, "question_id", int, file)
            yield f"{file.stem}/{question}", partial(_calls, record, question, file)


def _calls(record: Any, question: int, file: Path) -> list[Call]:
    choices = get(record, "choices", list, file)
    turns = get(choices[0], "turns", list, file, "choices[0].") if choices else []
    said: list[str] = []
    calls = []
    for i, text in enumerate(turns):
        said.append(" ".join(f"q{question}.{i}.{k}" for k in range(QUESTION_WORDS)))
        if isinstance(text, str) and text:
            calls.append(Call("chat", tuple(said), text))
            said.append(text)
    return calls


def sniff(path: Path, head: bytes) -> bool:
    """Say whether a file's head, or the first file of a folder, is an MT-bench answer file."""
    first = head_of(path, head, SUFFIXES).split(b"\n", 1)[0]
    try:
        record = json.loads(first)
    except ValueError:
        return first.startswith(b"{") and b'"question_id"' in first and b'"choices"' in first
    return isinstance(record, dict) and {"question_id", "choices", "model_id"} <= set(record)
