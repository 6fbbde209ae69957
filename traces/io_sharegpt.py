"""ShareGPT-style JSON lines (or one JSON array): conversations, or rows of token ids.

Conversation: `conversations` of {from, value} or `messages` of {role, content}; every answer is an LLM call
whose prompt is all that was said before, in a chain; text is counted by a named counter and only hashes stay.
Chat template tokens and think times are not in the source, and none are invented. Row: `input_toks`,
`output_toks`, `arrival_time_ns`, and optionally `input_tok_ids`, `output_tok_ids`.
"""

from __future__ import annotations

from collections import Counter as Count
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from traces.builder import WorkloadBuilder
from traces.counters import Counter, block_units, counter, hashed_ids
from traces.errors import InputError, at
from traces.fields import Record
from traces.json_array import array_records
from traces.reading import base_provenance, counted, head_bytes, records, shown
from traces.schema import Workload

_LISTS = {"conversations": ("from", "value"), "messages": ("role", "content")}
_ANSWERS = {"gpt", "assistant", "chatgpt", "bing", "bard", "model"}
_ASKS = {"human", "user", "system", "tool", "function", "observation"}
_ROW = {"input_toks", "output_toks", "arrival_time_ns", "input_tok_ids", "output_tok_ids"}
_CONVERSATION = {"id", *_LISTS}


def sniff(path: Path, head: bytes) -> bool:
    """Say whether the first record's keys are those of a conversation or of a token row."""
    text = head.lstrip()[:1]
    keys = (b'"conversations"', b'"messages"', b'"input_toks"')
    return text in (b"{", b"[") and any(k in head for k in keys) and b'"input_length"' not in head


def read(path: Path, counter_name: str = "bytes4", block_tokens: int = 16, key: int = 0) -> Workload:
    """Read a ShareGPT-style file, plain or gzip; InputError names file, line and field.

    counter_name: how text is counted (`words`, `bytes4`, `tiktoken:<encoding>`); token rows do not need it.
    block_tokens: tokens a unit of prefix identity covers; 1 keeps every token. key: of the hash over ids.
    Answers without a prompt, questions without an answer and conversations without either are counted in
    `not_imported`.
    """
    if block_tokens < 1:
        raise InputError(f"{path}: option block_tokens={block_tokens}: expected at least 1")
    count, real = counter(counter_name, key)
    builder = WorkloadBuilder(path.stem, block_tokens)
    skipped: Count[str] = Count()
    unused: Count[str] = Count()
    total = rows = 0
    whole = head_bytes(path).lstrip()[:1] == b"["
    for line, values in array_records(path) if whole else records(path):
        total += 1
        record = Record(path, line, values)
        row = "input_toks" in values
        rows += row
        if rows not in (0, total):
            raise InputError(f"{at(path, line)}: token rows and conversations in one file; split it")
        unused.update(name for name in values if name not in (_ROW if row else _CONVERSATION))
        if row:
            _add_row(builder, record, block_tokens, key, skipped)
        else:
            _add_conversation(builder, record, block_tokens, count, real, skipped)
    options = {"block_tokens": block_tokens, "key": "default" if key == 0 else "private"}
    if not rows:
        options["counter_name"] = counter_name
    provenance = base_provenance(path, "sharegpt", total, options)
    provenance["not_imported"] = counted(skipped)
    if unused:
        provenance["fields_not_used"] = counted(unused)
    workload = builder.build(provenance)
    if not workload.n_requests:
        raise InputError(f"{path}: no request to import among {total} records")
    return workload


def _add_row(
    builder: WorkloadBuilder, record: Record, block_tokens: int, key: int, skipped: Count[str]
) -> None:
    prompt_tokens, output_tokens = record.tokens("input_toks"), record.tokens("output_toks")
    stamped = record.values.get("arrival_time_ns") is not None
    arrival_ns = record.time_ns("arrival_time_ns", 1, "nanoseconds") if stamped else None
    prompt = _row_ids(record, "input_tok_ids", prompt_tokens, key)
    output = _row_ids(record, "output_tok_ids", output_tokens, key)
    if not prompt_tokens:
        skipped["prompt of 0 tokens"] += 1
        return
    builder.workflow(f"line-{record.line}", arrival_ns)
    _add_call(builder, prompt_tokens, output_tokens, prompt, output, block_tokens, [], True)


def _row_ids(record: Record, field: str, tokens: int, key: int) -> NDArray[np.uint64] | None:
    ids = record.ids(field, bits=32)
    if ids is not None and len(ids) != tokens:
        raise InputError(
            f"{at(record.path, record.line, field)}: got {len(ids)} ids, "
            f"expected {tokens} as the record's count says"
        )
    return None if ids is None else hashed_ids(ids, key)


def _add_conversation(
    builder: WorkloadBuilder,
    record: Record,
    block_tokens: int,
    count: Counter,
    real: bool,
    skipped: Count[str],
) -> None:
    messages = _messages(record)
    history = np.zeros(0, np.uint64)
    last: list[int] = []
    asked = False
    begun = False
    for answers, text in messages:
        ids = count(text)
        if answers and len(history):
            if not begun:
                builder.workflow(record.text("id", f"line-{record.line}"))
                begun = True
            last = [_add_call(builder, len(history), len(ids), history, ids, block_tokens, last, real)]
        elif answers:
            skipped["answer without a prompt"] += 1
        asked = not answers
        history = np.concatenate([history, ids])
    if asked and begun:
        skipped["question without an answer"] += 1
    if not begun:
        skipped["conversation without an answered question"] += 1


def _messages(record: Record) -> list[tuple[bool, str]]:
    """Return (is an answer, text) of each message."""
    field = next((f for f in _LISTS if f in record.values), None)
    if field is None:
        raise InputError(
            f"{at(record.path, record.line)}: a record has one of: conversations, messages, input_toks"
        )
    who, what = _LISTS[field]
    messages = record.values[field]
    if not isinstance(messages, list):
        raise record.fail(field, "a list of messages")
    out = []
    for i, message in enumerate(messages):
        place = at(record.path, record.line, f"{field}[{i}]")
        if not isinstance(message, dict) or not isinstance(message.get(what), str):
            raise InputError(f"{place}: expected an object with the texts {who!r} and {what!r}")
        role = message.get(who)
        if not isinstance(role, str) or role not in _ANSWERS | _ASKS:
            raise InputError(
                f"{place}: got {who} {shown(role)}, expected one of: {', '.join(sorted(_ANSWERS | _ASKS))}"
            )
        out.append((role in _ANSWERS, message[what]))
    return out


def _add_call(
    builder: WorkloadBuilder,
    prompt_tokens: int,
    output_tokens: int,
    prompt: NDArray[np.uint64] | None,
    output: NDArray[np.uint64] | None,
    block_tokens: int,
    parents: list[int],
    real: bool,
) -> int:
    prompt_units = sequence_units = None
    if prompt is not None:
        # Full blocks only, so that the sequence's path runs through the prompt's.
        prompt_units = block_units(prompt, block_tokens)
        if output is not None:
            sequence_units = block_units(np.concatenate([prompt, output]), block_tokens)
    ids = (output & np.uint64(0xFFFFFFFF)).astype(np.uint32) if output is not None and real else None
    return builder.llm(
        prompt_tokens,
        output_tokens,
        parents=parents,
        prompt_units=prompt_units,
        sequence_units=sequence_units,
        output_ids=ids,
    )
