"""Every malformed trace ends in one line: what was given, where, what is allowed."""

# ruff: noqa: E501 - a table: one row, one line

from __future__ import annotations

import gzip
import io
import json
import re
import zipfile
from pathlib import Path

import numpy as np
import pytest

from traces import formats, store
from traces.__main__ import main
from traces.arrivals import poisson
from traces.errors import InputError
from traces.lengths import Fixed
from traces.synthetic import requests

HEADER = b"arrival_s,prompt_tokens,output_tokens\n"
AZURE = b"TIMESTAMP,ContextTokens,GeneratedTokens\n"


def lines(*records: object) -> bytes:
    return b"".join(json.dumps(r).encode() + b"\n" for r in records)


def call(name: str, *wait_for: str, **more: object) -> dict[str, object]:
    return {"request_id": name, "session_id": "s", "input_length": 10, "wait_for": list(wait_for), **more}


ONE = {"timestamp": 0, "input_length": 600, "output_length": 5, "hash_ids": [1, 2]}
TOKENS = "a whole number of tokens from 0 to 2147483647"
CHAT = {"id": "a", "conversations": [{"from": "human", "value": "x"}, {"from": "gpt", "value": "y"}]}

# file name, content, exact error with F for the file's path
BAD: list[tuple[str, bytes, str]] = [
    # plain CSV
    ("empty.csv", b"", "F: empty file"),
    ("blank.csv", b"\n \n", "F: empty file"),
    ("header_only.csv", HEADER, "F: no request to import"),
    ("cut.csv", HEADER + b"0.5,10,1\n0.75,1", "F:3: 2 cells, expected 3 (arrival_s,prompt_tokens,output_tokens); is the file cut off?"),
    ("wide.csv", HEADER + b"0.5,10,1,9\n", "F:2: 4 cells, expected 3 (arrival_s,prompt_tokens,output_tokens)"),
    ("typed.csv", HEADER + b"0.5,ten,1\n", f"F:2: field 'prompt_tokens': got 'ten', expected {TOKENS}"),
    ("fraction.csv", HEADER + b"0.5,10,1.5\n", f"F:2: field 'output_tokens': got '1.5', expected {TOKENS}"),
    ("nan.csv", HEADER + b"1,10,1\nnan,10,1\n", "F:3: field 'arrival_s': got 'nan', expected seconds of at least 0"),
    ("inf.csv", HEADER + b"inf,10,1\n", "F:2: field 'arrival_s': got 'inf', expected seconds of at least 0"),
    ("negative_time.csv", HEADER + b"-1,10,1\n", "F:2: field 'arrival_s': got '-1', expected seconds of at least 0"),
    ("late.csv", HEADER + b"9223372037,10,1\n", "F:2: field 'arrival_s': got '9223372037', expected seconds of at least 0"),
    ("negative.csv", HEADER + b"1,10,-1\n", f"F:2: field 'output_tokens': got '-1', expected {TOKENS}"),
    ("huge.csv", HEADER + b"1,2147483648,1\n", f"F:2: field 'prompt_tokens': got '2147483648', expected {TOKENS}"),
    ("very_huge.csv", HEADER + b"1," + b"9" * 60 + b",1\n", f"F:2: field 'prompt_tokens': got '{'9' * 36}..., expected {TOKENS}"),
    ("hole.csv", HEADER + b"1,,1\n", f"F:2: field 'prompt_tokens': got '', expected {TOKENS}"),
    ("carriage.csv", HEADER + b"1,1,1\r2,2,2\n", "F:2: 5 cells, expected 3 (arrival_s,prompt_tokens,output_tokens)"),
    ("zeros.csv", HEADER + b"1,0,1\n", "F: no request to import (1 with a prompt of 0 tokens)"),
    ("latin.csv", HEADER + b"1,\xff,1\n", "F:2: not UTF-8 text"),
    ("column.csv", b"arrival_s,prompt_tokens,output_tokens,workflo\n1,1,1,a\n", "F:1: unknown column 'workflo'; did you mean 'workflow'? allowed: arrival_s, output_tokens, prompt_tokens, session, workflow"),
    ("twice.csv", b"arrival_s,prompt_tokens,output_tokens,arrival_s\n1,1,1,1\n", "F:1: field 'arrival_s': column given twice"),
    ("unnamed.csv", b"arrival_s,prompt_tokens,output_tokens,workflow\n1,1,1,\n", "F:2: field 'workflow': empty, expected a name"),
    ("quote.csv", HEADER + b'"1,1,1\n', "F:2: not CSV: unexpected end of data"),
    # Azure
    ("azure_stamp.csv", AZURE + b"yesterday,1,1\n", "F:2: field 'TIMESTAMP': got 'yesterday', expected like 2023-11-16 18:17:03.9799600 (UTC)"),
    ("azure_day.csv", AZURE + b"2023-02-30 00:00:00,1,1\n", "F:2: field 'TIMESTAMP': got '2023-02-30 00:00:00', expected like 2023-11-16 18:17:03.9799600 (UTC)"),
    ("azure_cut.csv", AZURE + b"2023-11-16 18:17:03.97,4808", "F:2: 2 cells, expected 3 (TIMESTAMP,ContextTokens,GeneratedTokens)"),
    ("azure_type.csv", AZURE + b"2023-11-16 18:17:03.97,4808,x\n", f"F:2: field 'GeneratedTokens': got 'x', expected {TOKENS}"),
    # Mooncake
    ("cut.jsonl", lines(ONE) + b'{"timestamp": 0, "input_len', "F:2: not JSON at column 18: Unterminated string starting at"),
    ("list.jsonl", lines(ONE, [1]), "F:2: got a JSON list, expected an object"),
    ("nan.jsonl", lines(ONE | {"timestamp": float("nan")}), "F:1: not JSON: NaN is not a number"),
    ("bits.jsonl", b'{"input_length": 1' + b"0" * 5000 + b"}\n", "F:1: not JSON: a number has too many digits"),
    ("lengthless.jsonl", lines(ONE, {"timestamp": 1, "hash_ids": []}), f"F:2: field 'input_length': missing, expected {TOKENS}"),
    ("typed.jsonl", lines(ONE | {"input_length": "600"}), f"F:1: field 'input_length': got '600', expected {TOKENS}"),
    ("bool.jsonl", lines(ONE | {"output_length": True}), f"F:1: field 'output_length': got true, expected {TOKENS}"),
    ("negative.jsonl", lines(ONE | {"output_length": -1}), f"F:1: field 'output_length': got -1, expected {TOKENS}"),
    ("fraction.jsonl", lines(ONE | {"input_length": 1.5}), f"F:1: field 'input_length': got 1.5, expected {TOKENS}"),
    ("past.jsonl", lines(ONE | {"timestamp": -1}), "F:1: field 'timestamp': got -1, expected a number of milliseconds of at least 0"),
    ("far.jsonl", lines(ONE | {"timestamp": 1e300}), "F:1: field 'timestamp': got 1E+300, expected a number of milliseconds of at least 0"),
    ("hash.jsonl", lines(ONE | {"hash_ids": [1, -2]}), "F:1: field 'hash_ids': got -2 in the list, expected whole numbers from 0 to 2^64 - 1"),
    ("wide_hash.jsonl", lines(ONE | {"hash_ids": [2**64]}), "F:1: field 'hash_ids': got 18446744073709551616 in the list, expected whole numbers from 0 to 2^64 - 1"),
    ("hash_text.jsonl", lines(ONE | {"hash_ids": "12"}), "F:1: field 'hash_ids': got '12', expected a list of whole numbers"),
    ("blocks.jsonl", lines(ONE | {"hash_ids": [1, 2, 3]}), "F:1: field 'hash_ids': got 3 hashes for a prompt of 600 tokens, expected at most 2 at block_tokens=512; state the trace's block size"),
    ("untimed.jsonl", lines(ONE, {"input_length": 1}), "F:2: field 'timestamp': missing, while line 1 has one: give all or none"),
    ("late_timed.jsonl", lines({"input_length": 1}, ONE), "F:1: field 'timestamp': missing, while line 2 has one: give all or none"),
    # agentic Mooncake
    ("twice.jsonl", lines(call("a"), call("b", "a"), call("a")), "F:3: field 'request_id': got 'a' again, first on line 1"),
    ("parent.jsonl", lines(call("s0-0"), call("s0-1", "s0_0")), "F:2: field 'wait_for': got 's0_0', no request has this id; did you mean 's0-0'?"),
    ("cycle.jsonl", lines(call("a"), call("b", "a", "d"), call("c", "b"), call("d", "c")), "F:2: field 'wait_for': requests wait for each other: b > d > c > b"),
    ("self.jsonl", lines(call("a", "a")), "F:1: field 'wait_for': requests wait for each other: a > a"),
    ("nameless.jsonl", lines(call("a"), {"input_length": 1, "wait_for": ["a"]}), "F:2: field 'request_id': missing, and the trace has 'wait_for'"),
    ("wait_type.jsonl", lines(call("a"), call("b") | {"wait_for": "a"}), "F:2: field 'wait_for': got 'a', expected a list of texts"),
    ("tool.jsonl", lines(call("a"), call("b", "a", tool_wait_ms="fast")), "F:2: field 'tool_wait_ms': got 'fast', expected a number of milliseconds of at least 0"),
    ("no_prompt.jsonl", lines(call("a"), call("b", "a") | {"input_length": 0}), "F:2: field 'input_length': got 0, expected at least 1: others of its session may wait for it"),
    # ShareGPT
    ("role.jsonl", lines(CHAT, {"conversations": [{"from": "robot", "value": ""}]}), "F:2: field 'conversations[0]': got from 'robot', expected one of: assistant, bard, bing, chatgpt, function, gpt, human, model, observation, system, tool, user"),
    ("silent.jsonl", lines({"conversations": [{"from": "human"}]}), "F:1: field 'conversations[0]': expected an object with the texts 'from' and 'value'"),
    ("mixed.jsonl", lines(CHAT, {"input_toks": 1, "output_toks": 1}), "F:2: token rows and conversations in one file; split it"),
    ("ids.jsonl", lines({"input_toks": 3, "output_toks": 1, "input_tok_ids": [1, 2]}), "F:1: field 'input_tok_ids': got 2 ids, expected 3 as the record's count says"),
    ("unanswered.jsonl", lines({"conversations": [{"from": "human", "value": "x"}]}), "F: no request to import among 1 records"),
    ("array_cut.json", b"[" + json.dumps(CHAT).encode() + b', {"id": "b"', "F:1: not JSON: Expecting ',' delimiter"),
    ("array_tail.json", b"[" + json.dumps(CHAT).encode() + b"]\nx", "F:2: content after the end of the JSON array"),
    ("array_end.json", b"[" + json.dumps(CHAT).encode() + b"\n", "F:2: got the end of the file (cut off?), expected ',' or ']'"),
    # containers
    ("gzip_cut.csv.gz", gzip.compress(HEADER + b"1,1,1\n" * 9, mtime=0)[:-12], "F: gzip content is cut off"),
    ("gzip_not.csv", b"\x1f\x8bnot gzip at all", "F: gzip content is damaged: Unknown compression method"),
    ("binary.csv", HEADER.replace(b"\n", b"\x00\n") + bytes(range(256)), "F: binary content, expected a CSV with the header arrival_s,prompt_tokens,output_tokens"),
    ("picture.png", b"\x89PNG\r\n" + bytes(64), f"F: no format recognises it; name one of: {', '.join(formats.names())}"),
    ("zip.workload", b"PK\x03\x04" + bytes(26) + b"workload.json" + bytes(30), "F: damaged workload file: File is not a zip file"),
]  # fmt: skip


@pytest.mark.parametrize(("name", "content", "error"), BAD, ids=[b[0] for b in BAD])
def test_a_malformed_trace_is_one_line(name: str, content: bytes, error: str, tmp_path: Path) -> None:
    path = tmp_path / name
    path.write_bytes(content)
    form = "csv" if name == "binary.csv" else None
    with pytest.raises(InputError) as caught:
        formats.load(path, form)
    assert str(caught.value).replace(str(path), "F") == error


@pytest.mark.parametrize(("name", "content", "error"), BAD[3:9], ids=[b[0] for b in BAD[3:9]])
def test_a_malformed_trace_exits_2_and_writes_nothing(
    name: str, content: bytes, error: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path, out = tmp_path / name, tmp_path / "out.workload"
    path.write_bytes(content)
    assert main(["convert", str(path), str(out)]) == 2
    said = capsys.readouterr()
    assert said.out == ""
    assert said.err.replace(str(path), "F") == error + "\n"
    assert [p.name for p in tmp_path.iterdir()] == [name]


def test_missing_files_and_folders_are_named(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"nowhere\.csv: no such file$"):
        formats.load(tmp_path / "nowhere.csv")
    with pytest.raises(InputError, match=r": a folder, expected a file$"):
        formats.load(tmp_path, "csv")


def test_unknown_formats_and_options_get_the_nearest_name(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    path.write_bytes(lines(ONE))
    with pytest.raises(InputError, match=r"unknown format 'moncake'; did you mean 'mooncake'\?"):
        formats.load(path, "moncake")
    with pytest.raises(
        InputError, match=r"unknown option of format mooncake 'block_size'; did you mean 'block_tokens'"
    ):
        formats.load(path, block_size=16)
    with pytest.raises(InputError, match=r"option block_tokens='many': expected int or none"):
        formats.load(path, block_tokens="many")


def test_a_line_longer_than_allowed_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("traces.reading.MAX_LINE_BYTES", 1 << 10)
    path = tmp_path / "long.jsonl"
    path.write_bytes(lines(ONE, ONE | {"hash_ids": [1] * 2000}))
    with pytest.raises(InputError, match=r":2: a line is at most 0 MiB"):
        formats.load(path, "mooncake")


def test_a_gzip_bomb_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("traces.reading.MAX_FILE_BYTES", 1 << 16)
    path = tmp_path / "bomb.jsonl.gz"
    path.write_bytes(gzip.compress(lines(*[ONE] * 4000)))
    assert path.stat().st_size < 1 << 12
    with pytest.raises(InputError, match=r"content is larger than 65536 bytes"):
        formats.load(path, "mooncake")


def damaged(path: Path, change: dict[str, bytes | None]) -> None:
    """Rewrite a workload file with some members replaced, or left out."""
    with zipfile.ZipFile(path) as archive:
        members = {n: archive.read(n) for n in archive.namelist()}
    members |= {n: c for n, c in change.items() if c is not None}
    with zipfile.ZipFile(path, "w") as archive:
        for name, content in members.items():
            if change.get(name, b"") is not None:
                archive.writestr(name, content)


def npy(values: object, **kind: object) -> bytes:
    buffer = io.BytesIO()
    np.save(buffer, np.array(values, **kind), allow_pickle=True)  # type: ignore[call-overload]
    return buffer.getvalue()


STORE_BAD: list[tuple[dict[str, bytes | None], str]] = [
    ({"prompt_tokens.npy": None}, r"member 'prompt_tokens\.npy' is missing, extra or given twice"),
    ({"extra.npy": b""}, r"member 'extra\.npy' is missing, extra or given twice"),
    ({"prompt_tokens.npy": npy([{"a": 1}], dtype=object)}, r"field 'prompt_tokens': damaged column"),
    ({"prompt_tokens.npy": npy([1.0, 2.0])}, r"field 'prompt_tokens': expected a column of whole numbers"),
    ({"prompt_tokens.npy": npy([1, 2**40])}, r"field 'prompt_tokens': a value does not fit int32"),
    ({"prompt_tokens.npy": npy([7])}, r"column 'prompt_tokens' has 1 rows, expected 2"),
    (
        {"prompt_tokens.npy": npy([7, 0])},
        r"stage 1: field 'prompt_tokens' of an LLM stage must be at least 1",
    ),
    ({"prompt_tokens.npy": b"\x93NUMPY"}, r"field 'prompt_tokens': damaged column"),
    ({"workload.json": b"{"}, r"member 'workload\.json' is not JSON"),
    ({"workload.json": b'{"schema": 99}'}, r"field 'schema': got 99, this version reads 1"),
    ({"workload.json": b'{"schema": 1, "name": 3}'}, r"field 'name': got 3, not what a workload has"),
    ({"workload.json": None}, r"no member 'workload\.json': not a workload file"),
]


@pytest.mark.parametrize(("change", "error"), STORE_BAD, ids=[e[:40] for _, e in STORE_BAD])
def test_a_damaged_workload_file_is_one_line(
    change: dict[str, bytes | None], error: str, tmp_path: Path
) -> None:
    path = tmp_path / "a.workload"
    store.save(requests("a", poisson(2, 1.0, 0), Fixed(7), Fixed(3), 0), path)
    damaged(path, change)
    with pytest.raises(InputError, match=re.escape(str(path)) + ".*" + error) as caught:
        store.open(path)
    assert "\n" not in str(caught.value)
