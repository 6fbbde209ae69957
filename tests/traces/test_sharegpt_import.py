from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from traces import formats, json_array
from traces.counters import block_units, counter
from traces.errors import InputError
from traces.reuse import prefix_reuse
from traces.schema import Workload


def talk(*said: str, **more: object) -> dict[str, Any]:
    """Make a conversation from words of a made-up speaker order: human, gpt, human, ..."""
    turns = [{"from": ("human", "gpt")[i % 2], "value": text} for i, text in enumerate(said)]
    return {"id": "c", "conversations": turns, **more}


def load(tmp_path: Path, *records: object, **options: object) -> Workload:
    path = tmp_path / "talk.jsonl"
    path.write_text("".join(json.dumps(r) + "\n" for r in records))
    return formats.load(path, **options)


def test_each_answer_is_a_call_whose_prompt_is_what_was_said_before(tmp_path: Path) -> None:
    w = load(tmp_path, talk("a b c", "d e", "f", "g h i j"), counter_name="words")
    assert w.prompt_tokens.tolist() == [3, 6]
    assert w.output_tokens.tolist() == [2, 4]
    assert w.parent_idx.tolist() == [0]


def test_history_is_a_shared_prefix_that_holds_the_output(tmp_path: Path) -> None:
    w = load(tmp_path, talk("a b c", "d e", "f", "g"), counter_name="words", block_tokens=1)
    reuse = prefix_reuse(w)
    assert reuse.hit_tokens.tolist() == [0, 5]  # prompt and answer of the first turn
    below = w.prefix.path(int(w.sequence_segment[0]))
    assert int(w.prompt_segment[0]) in below


def test_openai_messages_and_system_prompts_are_read(tmp_path: Path) -> None:
    record = {"messages": [
        {"role": "system", "content": "be kind"},
        {"role": "user", "content": "hi"},
        {"role": "assistant", "content": "hi hi"},
    ]}  # fmt: skip
    w = load(tmp_path, record, counter_name="words")
    assert (w.prompt_tokens[0], w.output_tokens[0]) == (3, 2)


def test_what_is_not_imported_is_counted(tmp_path: Path) -> None:
    w = load(
        tmp_path,
        talk("q", "a", "unanswered"),
        talk("never answered"),
        {"conversations": [{"from": "gpt", "value": "first"}, {"from": "gpt", "value": "second"}]},
        talk("q", ""),
        talk("q", "a", views=3),
        counter_name="words",
    )
    assert w.provenance["not_imported"] == {
        "answer without a prompt": 1,
        "conversation without an answered question": 1,
        "question without an answer": 1,
    }
    assert w.provenance["fields_not_used"] == {"views": 1}
    assert w.n_requests == 4
    assert 0 in w.output_tokens


def test_no_text_survives(tmp_path: Path) -> None:
    w = load(tmp_path, talk("zanzibar quicksilver", "marmalade"), counter_name="words", block_tokens=1)
    text = repr(w)
    assert not any(word in text for word in ("zanzibar", "quicksilver", "marmalade"))


def test_one_array_reads_like_lines_whatever_the_piece_size(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    records = [talk("ünïcode words " * k, 'fine [],{} \\" ] ' * k, n=1.5) for k in range(1, 30)]
    expected = load(tmp_path, *records)
    whole = tmp_path / "talk.json"
    whole.write_text(json.dumps(records, indent=1, ensure_ascii=False), encoding="utf-8")
    for size in (1, 7, 1 << 20):
        monkeypatch.setattr(json_array, "_CHUNK_BYTES", size)
        assert formats.load(whole).digest() == expected.digest()


def test_token_rows_keep_ids_under_a_key(tmp_path: Path) -> None:
    row = {
        "input_toks": 3,
        "output_toks": 2,
        "arrival_time_ns": 5,
        "input_tok_ids": [1, 2, 1],
        "output_tok_ids": [1, 9],
    }
    w = load(tmp_path, row, row | {"arrival_time_ns": 6}, block_tokens=1)
    assert w.output_ids is not None
    assert w.output_ptr is not None
    assert w.output_ptr.tolist() == [0, 2, 4]
    assert w.output_ids[0] == w.output_ids[2] != w.output_ids[1]
    assert 1 not in w.output_ids
    assert prefix_reuse(w).hit_tokens.tolist() == [0, 3]
    other = load(tmp_path, row, block_tokens=1, key=7)
    assert other.output_ids is not None
    assert other.output_ids[0] != w.output_ids[0]
    assert "7" not in str(other.provenance["options"]["key"])


def test_ids_are_optional_in_token_rows(tmp_path: Path) -> None:
    w = load(tmp_path, {"input_toks": 3, "output_toks": 2}, {"input_toks": 0, "output_toks": 2})
    assert w.workflow_arrival_ns is None
    assert w.output_ids is None
    assert w.provenance["not_imported"] == {"prompt of 0 tokens": 1}


@pytest.mark.parametrize("name", ["words", "bytes4"])
def test_counters_give_equal_ids_for_equal_text_only(name: str) -> None:
    count, real = counter(name)
    a, b = count("abcd efgh abcd"), count("abcd efgh abce")
    assert not real
    assert np.array_equal(a, count("abcd efgh abcd"))
    assert a[0] == b[0]
    assert not np.array_equal(a, b)
    assert len(count("")) == 0
    assert not np.array_equal(a, counter(name, key=1)[0]("abcd efgh abcd"))


def test_blocks_are_equal_when_their_tokens_are() -> None:
    ids = np.arange(11, dtype=np.uint64)
    assert len(block_units(ids, 4)) == 2
    assert block_units(ids, 4)[0] == block_units(ids[:4], 4)[0]
    swapped = ids.copy()
    swapped[[0, 1]] = ids[[1, 0]]
    assert block_units(swapped, 4)[0] != block_units(ids, 4)[0]


def test_an_unknown_counter_gets_the_nearest_name(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="unknown token counter 'word'; did you mean 'words'"):
        load(tmp_path, talk("q", "a"), counter_name="word")


def test_azure_times_count_from_the_earliest_row(tmp_path: Path) -> None:
    path = tmp_path / "azure.csv"
    path.write_text(
        "TIMESTAMP,ContextTokens,GeneratedTokens\n"
        "2023-11-16 18:17:04.0319600,3180,8\n"
        "2023-11-16 18:17:03.9799600,4808,10\n"
        "2023-11-17T00:00:00Z,0,1\n"
        "2023-11-17 00:00:00.5+00:00,1,0\n"
    )
    w = formats.load(path)
    assert w.provenance["format"] == "azure"
    assert w.provenance["origin"] == "2023-11-16 18:17:03.979960000"
    assert w.provenance["not_imported"] == {"prompt of 0 tokens": 1}
    assert w.workflow_arrival_ns is not None
    assert w.workflow_arrival_ns.tolist() == [52_000_000, 0, (5 * 3600 + 42 * 60 + 56) * 10**9 + 520_040_000]
