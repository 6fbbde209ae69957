"""Import FinanceBench (`financebench_open_source.jsonl`): questions about filings, answered by a static pipeline.

The data set is questions with their evidence, not traces. What comes from it: which questions share a filing's
pages, lengths of question, pages, quoted evidence, justification and answer. The pipeline is ours: researcher
(a retrieval between its two calls) > extractor > analyst (a calculation between its two calls) > writer > reviewer.
Every question runs it in full, in this order. No text is kept.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from traces import draws
from traces._hover_flow import STEP_TOKENS, from_quantiles, retriever_ns
from traces._records import get, get_at_least, head_of, source_files, wanted
from traces._team import Chat, Team, in_part
from traces._text import Part, identity
from traces.builder import WorkloadBuilder
from traces.errors import InputError
from traces.reading import lines, parse_json
from traces.schema import Workload

SOURCE = "patronus-ai/financebench, data/financebench_open_source.jsonl"
LICENCE = "none stated in the repository"
SUFFIXES = ("open_source.jsonl",)
TEST_PER_MILLE = 300
# Bytes a cl100k token of the texts of HoVer's claims (4.44); filings are denser in digits, which no record here tells.
BYTES_PER_TOKEN = (444, 100)
CALCULATOR_NS = 20_000_000


@dataclass(frozen=True)
class Question:
    """One question: pages as (identity, tokens), and tokens of its parts."""

    name: str
    key: int
    filing: int
    pages: tuple[Part, ...]
    question: int
    quoted: int
    justification: int
    answer: int


def read(
    path: Path,
    *,
    seed: int = 0,
    block_tokens: int = 16,
    system_tokens: int = 512,
    context: str = "own",
    part: str = "all",
    only: Path | None = None,
) -> Workload:
    """Return the workload of a FinanceBench file; one workflow a question.

    seed: of lengths and times that the data does not say. system_tokens: of each agent's system prompt. context: what
    prompts share (`traces/_team.py`). part: all, or train or test, which have no filing in common. only: import the
    questions named in this text file or `.workload`. Raises InputError "file:line: field 'evidence' ...".
    """
    if block_tokens < 1:
        raise InputError(f"block_tokens={block_tokens}, expected at least 1")
    team = Team("financebench", system_tokens, context)
    names = wanted(only)
    skipped: Counter[str] = Counter()
    questions = []
    for file in source_files(path, SUFFIXES):
        for number, raw in lines(file):
            question = _question(parse_json(raw, file, number), file, f"line {number}: ")
            if names is not None and question.name not in names:
                skipped["question not asked for"] += 1
            elif not in_part(part, "financebench", question.filing, TEST_PER_MILLE):
                skipped[f"question outside part {part}"] += 1
            elif not question.pages:
                skipped["question without evidence"] += 1
            else:
                questions.append(question)
    if not questions:
        raise InputError(f"{path}: no question with evidence in it")
    builder = WorkloadBuilder("financebench", block_tokens)
    for question in questions:
        _add(builder, question, team, seed)
    return builder.build(_provenance(questions, skipped, team, seed))


def sniff(path: Path, head: bytes) -> bool:
    """Say whether a file's head, or the first file of a folder, looks like FinanceBench."""
    found = head_of(path, head, SUFFIXES).lstrip()
    return found.startswith(b"{") and b'"financebench_id"' in found and b'"evidence_text_full_page"' in found


def _question(record: Any, path: Path, inside: str) -> Question:
    pages: dict[int, int] = {}
    quoted = 0
    filing = _hash(get(record, "doc_name", str, path, inside))
    for k, evidence in enumerate(get(record, "evidence", list, path, inside)):
        place = f"{inside}evidence[{k}]."
        page = get_at_least(evidence, "evidence_page_num", 0, path, place)
        document = _hash(get(evidence, "doc_name", str, path, place))
        whole = get(evidence, "evidence_text_full_page", str, path, place)
        pages[identity("financebench", "page", document, page)] = _tokens(whole)
        quoted += _tokens(get(evidence, "evidence_text", str, path, place))
    name = get(record, "financebench_id", str, path, inside)
    why = record.get("justification")
    return Question(
        name=name,
        key=_hash(name),
        filing=filing,
        pages=tuple(pages.items()),
        question=_tokens(get(record, "question", str, path, inside)),
        quoted=quoted,
        justification=_tokens(why) if isinstance(why, str) and why else 0,
        answer=_tokens(str(record.get("answer") or " ")),
    )


def _add(builder: WorkloadBuilder, question: Question, team: Team, seed: int) -> None:
    builder.workflow(question.name)
    chat = Chat(builder, team, question.key, question.question, question.pages)
    drawn = (draws.bits(seed, "financebench/output", question.key, turn) for turn in range(4))
    chat.call("researcher", from_quantiles(STEP_TOKENS, next(drawn)))
    wait_ns = retriever_ns(draws.bits(seed, "financebench/retrieval", question.key))
    chat.tool("retrieval", wait_ns, question.quoted)
    chat.call("researcher", from_quantiles(STEP_TOKENS, next(drawn)))
    chat.call("extractor", question.quoted)
    chat.call("analyst", from_quantiles(STEP_TOKENS, next(drawn)))
    chat.tool("calculator", CALCULATOR_NS, question.answer)
    chat.call("analyst", question.justification or from_quantiles(STEP_TOKENS, next(drawn)))
    chat.call("writer", max(question.answer, 1) + question.justification)
    chat.call("reviewer", question.answer)


def _tokens(text: str) -> int:
    return max(1, len(text.encode()) * BYTES_PER_TOKEN[1] // BYTES_PER_TOKEN[0])


def _hash(text: str) -> int:
    return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=8).digest(), "little") >> 1


def _provenance(questions: list[Question], skipped: Counter[str], team: Team, seed: int) -> dict[str, Any]:
    return {
        "source": SOURCE,
        "licence": LICENCE,
        "format": "financebench",
        "records": {
            "questions": len(questions),
            "filings": len({q.filing for q in questions}),
            "pages": len({p for q in questions for p, _ in q.pages}),
            "questions_without_justification": sum(q.justification == 0 for q in questions),
        },
        "from_the_data": "questions, shared pages, UTF-8 lengths (4.44 bytes a token) of question, pages, quotes,"
        " justification, answer",
        "from_other_sources": {
            "researcher, analyst outputs": "LMCache mini-SWE calls (108), cl100k, by quantile",
            "retrieval time": "AutoCodeRover search: 93.3 % below 1 s, p99 2 s; other points assumed",
        },
        "assumed": team.said()
        | {
            "pipeline": "researcher, retrieval, researcher, extractor, analyst, calculator (20 ms), analyst, writer,"
            " reviewer; pages stand before the question in every prompt",
        },
        "seed": seed,
        "identity": "system prompt or preamble, pages of the filing, then private to the question",
        "not_imported": dict(sorted(skipped.items())),
    }
