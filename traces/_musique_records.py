"""MuSiQue's questions as numbers: hops, entities, titles, and the names that stand in what was read.

Reads the original JSON lines (`musique_ans_v1.0_*.jsonl`: id, paragraphs, question, question_decomposition) and JSON
lists of the same records, also those whose hops name their document (`document_id`) instead of holding paragraphs.
Records of one id are one question. No text leaves this module.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Set
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from traces._records import get, get_or, load_json, objects, source_files
from traces.errors import InputError, at
from traces.identity import identity, plain, text_tokens
from traces.mentions import mentions
from traces.reading import head_bytes, records
from traces.tfidf import TfIdf, terms

SUFFIXES = (".json", ".jsonl", ".json.gz", ".jsonl.gz")
_REFERENCE = re.compile(r"#(\d+)")
_PART = re.compile(r"_\d+$")
_ASIDE = re.compile(r"\s*\([^)]*\)$")
_SENTENCE = re.compile(r"(?<=[.!?])\s+")


@dataclass(frozen=True)
class Name:
    """Something to look up: an entity or a title, and its length as text."""

    key: int
    tokens: int


@dataclass(frozen=True)
class Hop:
    """One hop: what is looked up, the article that answers it, the question behind it, the hops it waits for.

    query      identity of the resolved sub-question, byte by byte; template: the same with #k left in
    passage_tokens  of the supporting paragraph, 0 where it is not there
    """

    entity: Name
    title: Name
    query: int
    template: int
    waits_for: tuple[int, ...]
    passage_tokens: int


@dataclass(frozen=True)
class Question:
    """One question. Ranked names are best first, without repeats.

    asked      names in the question, in its order
    passages   for each hop, the names in its supporting paragraph, by what they have to do with the question; None
               where there is no paragraph
    retrieved  titles of the question's own paragraphs (20), by tf-idf likeness to the question; () where there are none
    """

    name: str
    key: int
    tokens: int
    hops: tuple[Hop, ...]
    asked: tuple[Name, ...]
    passages: tuple[tuple[Name, ...] | None, ...]
    retrieved: tuple[Name, ...]

    @property
    def shape(self) -> str:
        """What the id says of how the hops hang together: 2hop, 3hop1, ..."""
        return self.name.rpartition("/")[2].split("__", 1)[0]

    @property
    def readable(self) -> bool:
        """Say whether the paragraph of every hop that another waits for is there."""
        return all(self.passages[k] is not None for h in self.hops for k in h.waits_for)


@dataclass
class _Raw:
    name: str
    question: str
    steps: list[Any]
    paragraphs: list[Any] = field(default_factory=list)
    place: str = ""


def questions(path: Path, names: Set[str] | None, skipped: Counter[str]) -> list[Question]:
    """Return the questions of a file or folder, by id as first met; of `names` only, if given.

    What is left out counts in `skipped`, and has no say in how names and titles are ranked.
    """
    raw: dict[str, _Raw] = {}
    for file in source_files(path, SUFFIXES):
        for place, record in _records(file):
            if not isinstance(record, dict) or "question_decomposition" not in record:
                skipped["record without decomposition"] += 1
                continue
            made = _raw(record, place)
            if names is not None and made.name not in names:
                skipped["question not asked for"] += 1
                continue
            if made.name not in raw or (made.paragraphs and not raw[made.name].paragraphs):
                raw[made.name] = made
            else:
                skipped["record with the id of another"] += 1
    texts: dict[str, dict[str, None]] = {}  # the paragraphs of a title, in the order met
    for r in raw.values():
        for p in r.paragraphs:
            texts.setdefault(_title(p, r.place), {})[get(p, "paragraph_text", str, Path(r.place))] = None
    return [_question(r, texts) for r in raw.values()]


def _records(file: Path) -> list[tuple[str, Any]]:
    if head_bytes(file, 64).lstrip().startswith(b"["):
        value = load_json(file)
        if not isinstance(value, list):
            raise InputError(f"{file}: expected a list of questions")
        return [(f"{file}: record {i}", r) for i, r in enumerate(value)]
    return [(f"{file}:{line}", r) for line, r in records(file)]


def _raw(record: dict[str, Any], place: str) -> _Raw:
    at_place = Path(place)
    steps = objects(record, "question_decomposition", at_place)
    paragraphs = objects({"paragraphs": record.get("paragraphs") or []}, "paragraphs", at_place)
    if not steps:
        raise InputError(f"{at(place, field='question_decomposition')}: expected at least one hop")
    name = get(record, "id", str, at_place)
    return _Raw(name, get(record, "question", str, at_place), steps, paragraphs, place)


def _title(paragraph: Any, place: str) -> str:
    return get(paragraph, "title", str, Path(place), "paragraphs.")


def _question(raw: _Raw, texts: dict[str, dict[str, None]]) -> Question:
    place = Path(raw.place)
    support = [
        _support(raw, step, f"question_decomposition[{i}].", texts) for i, step in enumerate(raw.steps)
    ]
    # How rare a word is is learned from what the question comes with: its ranks depend on no other question.
    known = [get(p, "paragraph_text", str, place, "paragraphs.") for p in raw.paragraphs]
    weights = TfIdf(terms(t) for t in known or [text for _, text in support if text is not None])
    hops: list[Hop] = []
    answers: list[str] = []
    named: list[tuple[Name, ...] | None] = []
    asked = f" {plain(raw.question)} "
    about = set(terms(raw.question))
    for i, step in enumerate(raw.steps):
        inside = f"question_decomposition[{i}]."
        text = get(step, "question", str, place, inside)
        waits = tuple(sorted({int(k) - 1 for k in _REFERENCE.findall(text)}))
        if waits and not 0 <= waits[0] <= waits[-1] < i:
            raise InputError(f"{at(place, field=inside + 'question')}: refers to a hop that is not before it")
        resolved = _REFERENCE.sub(lambda m: answers[int(m.group(1)) - 1], text)
        entity = " ".join(answers[k] for k in waits) if waits else _subject(text)
        title, passage = support[i]
        answers.append(get(step, "answer", str, place, inside))
        named.append(None if passage is None else ranked_names(f"{title}. {passage}", asked, about, weights))
        hops.append(
            Hop(
                name_of(entity),
                name_of(_ASIDE.sub("", title)),
                identity("query", resolved),
                identity("query", text),
                waits,
                0 if passage is None else text_tokens(f"{title}: {passage}"),
            )
        )
    words = terms(raw.question)
    scored = [
        (-weights.score(words, terms(f"{_title(p, raw.place)} {p.get('paragraph_text', '')}")), k)
        for k, p in enumerate(raw.paragraphs)
    ]
    titles = [name_of(_ASIDE.sub("", _title(raw.paragraphs[k], raw.place))) for _, k in sorted(scored)]
    return Question(
        raw.name,
        identity("question", raw.question),
        text_tokens(raw.question),
        tuple(hops),
        _unique([name_of(n) for n, _ in mentions(raw.question)]),
        tuple(named),
        _unique(titles),
    )


def _support(raw: _Raw, step: Any, inside: str, texts: dict[str, dict[str, None]]) -> tuple[str, str | None]:
    """Return title and text of the paragraph that supports a hop.

    Of a question without paragraphs: one of another question that has the title and holds the answer, else None.
    """
    if raw.paragraphs:
        index = get(step, "paragraph_support_idx", int, Path(raw.place), inside)
        by_index = {
            get_or(p, "idx", int, k, Path(raw.place), "paragraphs."): p for k, p in enumerate(raw.paragraphs)
        }
        if index not in by_index:
            raise InputError(f"{at(raw.place, field=inside + 'paragraph_support_idx')}: no such paragraph")
        found = by_index[index]
        return _title(found, raw.place), get(found, "paragraph_text", str, Path(raw.place), "paragraphs.")
    title = _PART.sub("", get(step, "document_id", str, Path(raw.place), inside))
    answer = f" {plain(get(step, 'answer', str, Path(raw.place), inside))} "
    return title, next((t for t in texts.get(title, ()) if answer in f" {plain(t)} "), None)


def _subject(text: str) -> str:
    """Return what a sub-question without references is about: the subject of "s >> relation", else its longest name."""
    subject, arrow, _ = text.partition(" >> ")
    if arrow:
        return subject
    return max((n for n, _ in mentions(text)), key=len, default=text)


def ranked_names(passage: str, asked: str, about: set[str], weights: TfIdf) -> tuple[Name, ...]:
    """Return the names in a passage that the question does not hold, best first.

    A name is as good as its best sentence, a sentence as the weight of the question's words in it; then how often
    the name stands there, then where first.
    """
    best: dict[str, tuple[float, int, int]] = {}
    for sentence in _SENTENCE.split(passage):
        likeness = round(sum(weights.weight(t) for t in sorted(set(terms(sentence)) & about)), 6)
        for name, _ in mentions(sentence):
            if f" {name} " in asked:
                continue
            score, count, first = best.get(name, (0.0, 0, len(best)))
            best[name] = (max(score, likeness), count + 1, first)
    order = sorted(best, key=lambda n: (-best[n][0], -best[n][1], best[n][2]))
    return _unique([name_of(n) for n in order])


def name_of(text: str) -> Name:
    """Return a name as something to look up; case, punctuation and a leading "the" make no difference."""
    return Name(identity("name", plain(text).removeprefix("the ")), text_tokens(text))


def _unique(names: list[Name]) -> tuple[Name, ...]:
    return tuple({n.key: n for n in reversed(names)}[k] for k in dict.fromkeys(n.key for n in names))
