"""Import Reflexion's HotpotQA logs (`*_trials.txt`): ReAct or chain-of-thought agents that try again after reflecting.

One workflow a question, its trials in their order; one LLM call a "Thought" line and one an "Action" line, as ReAct
issues them. The log prints solved agents again in every later trial: an attempt that was printed before is left out.
What a call read is the question, the reflections before it, and the attempt so far; the few-shot examples are not in
the log.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

from traces._dialogue import Call, Encode, gather, workload
from traces._records import head_of, source_files
from traces.errors import InputError
from traces.reading import read_bytes
from traces.schema import Workload

SOURCE = "noahshinn/reflexion, hotpotqa_runs logs"
LICENCE = "MIT (questions of HotpotQA, CC BY-SA 4.0)"
SUFFIXES = (".txt",)
STRUCTURE = '[[("Thought", "\\n")], [("Action", "\\n")]]'

_TRIAL = re.compile(r"^BEGIN TRIAL (\d+)", re.MULTILINE)
_LINE = re.compile(r"^(Thought|Action|Observation)(?: \d+)?:", re.MULTILINE)


def read(
    path: Path,
    *,
    tokenizer: Encode = "cl100k_base",
    structure: str = STRUCTURE,
    block_tokens: int = 16,
    only: Path | None = None,
) -> Workload:
    """Return the workload of one log or of every `*.txt` below a folder.

    tokenizer: an encoding name, a `.tiktoken` or tokenizers `.json` file, or a function text -> ids. structure: groups
    of paired delimiters (`traces.structure.parse_structure`). only: import the workflows named in this text file or
    `.workload`. Workflows are named `<file>/<question's number>`. Raises InputError.
    """
    skipped: Counter[str] = Counter()
    sessions = gather(_found(path, skipped), only, skipped, "question", "a thought")
    if not sessions:
        raise InputError(f"{path}: no question with a thought in it")
    return workload(
        "reflexion", sessions, tokenizer=tokenizer, structure=structure, block_tokens=block_tokens,
        provenance={
            "source": SOURCE,
            "licence": LICENCE,
            "prompts": "question, reflections and the attempt so far; few-shot examples are not in the logs",
            "not_imported": dict(sorted(skipped.items())),
        },
    )  # fmt: skip


def sniff(path: Path, head: bytes) -> bool:
    """Say whether a log's head, or the first log of a folder, is Reflexion's."""
    found = head_of(path, head, SUFFIXES)
    return b"BEGIN TRIAL" in found and b"Question:" in found


def _found(path: Path, skipped: Counter[str]) -> Iterator[tuple[str, Callable[[], list[Call]]]]:
    def calls(attempts: list[str]) -> list[Call]:
        return [c for attempt in attempts for c in _calls(attempt)]

    for file in source_files(path, SUFFIXES):
        for number, attempts in enumerate(_questions(read_bytes(file).decode(errors="replace"), skipped)):
            yield f"{file.stem}/{number}", partial(calls, attempts)


def _questions(log: str, skipped: Counter[str]) -> list[list[str]]:
    """Return the distinct attempts of each question, in order of trial."""
    found: dict[str, list[str]] = {}
    for trial in _TRIAL.split(log)[2::2]:
        for attempt in re.split(r"^(?=Question:)", trial, flags=re.MULTILINE)[1:]:
            attempt = re.split(r"^(?:Correct answer:|-{5,} BEGIN)", attempt, flags=re.MULTILINE)[0].rstrip()
            question = attempt.split("\n", 1)[0]
            attempts = found.setdefault(question, [])
            if attempt in attempts:
                skipped["attempt printed again in a later trial"] += 1
            else:
                attempts.append(attempt)
    return list(found.values())


def _calls(attempt: str) -> list[Call]:
    starts = [m.start() for m in _LINE.finditer(attempt)]
    if not starts:
        return []
    pieces = [attempt[: starts[0]]]
    calls = []
    for start, end in zip(starts, [*starts[1:], len(attempt)], strict=True):
        text = attempt[start:end]
        if not text.startswith("Observation"):
            calls.append(Call("react", tuple(pieces), text))
        pieces.append(text)
    return calls
