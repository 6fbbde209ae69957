"""Laws of the LMCache importer, on sessions written here; words are tokens."""

import json
import sys
from base64 import b64encode
from pathlib import Path
from zlib import crc32

import numpy as np
import pytest

from traces import _tokenizer, formats, io_lmcache
from traces._token_ids import KeyedIds, block_units, content_key
from traces.errors import InputError
from traces.schema import StageKind, Workload

Row = tuple[int, str, str]


def words(text: str) -> list[int]:
    return [crc32(w.encode()) % 50_000 for w in text.split()]


def write(folder: Path, sets: dict[str, dict[str, list[Row]]]) -> Path:
    for group, sessions in sets.items():
        (folder / group).mkdir()
        for name, rows in sessions.items():
            lines = [
                json.dumps({"timestamp": t, "input": i, "output": o, "session_id": name}) + "\n"
                for t, i, o in rows
            ]
            (folder / group / f"{name}.jsonl").write_text("".join(lines))
    return folder


def read(path: Path, **options: object) -> Workload:
    return io_lmcache.read(path, tokenizer=words, **{"block_tokens": 2, **options})  # type: ignore[arg-type]


def outputs(w: Workload) -> list[list[int]]:
    assert w.output_ids is not None
    assert w.output_ptr is not None
    ends = zip(w.output_ptr, w.output_ptr[1:], strict=False)
    return [w.output_ids[a:b].tolist() for a, b in ends]


def every_id(w: Workload) -> set[int]:
    return {i for ids in outputs(w) for i in ids}


def text(*parts: int) -> str:
    return " ".join(f"w{p}" for p in parts)


def test_a_prompt_continues_the_output_before_it_exactly_when_the_tokens_say_so(tmp_path: Path) -> None:
    kept = [(0, text(1, 2, 3, 4), text(5, 6)), (1, text(1, 2, 3, 4, 5, 6, 7, 8), text(9))]
    changed = [(0, text(1, 2, 3, 4), text(5, 6)), (1, text(1, 2, 3, 4, 5, 60, 7, 8), text(9))]
    w = read(write(tmp_path, {"a": {"kept": kept, "changed": changed}}))
    shared = {}
    for k, name in enumerate(w.workflow_names):
        first, second = np.flatnonzero((w.stage_workflow == k) & (w.stage_kind == StageKind.LLM))
        output_path = w.prefix.path(int(w.sequence_segment[first]))
        common = [s for s in w.prefix.path(int(w.prompt_segment[second])) if s in output_path]
        shared[name] = int(w.prefix.end_tokens[common[-1]])
    assert shared == {"a/kept": 6, "a/changed": 4}
    assert w.prompt_tokens[w.stage_kind == StageKind.LLM].tolist() == [4, 8, 4, 8]


def test_the_order_of_the_file_does_not_matter_only_the_time_stamps_do(tmp_path: Path) -> None:
    rows = [(9_000, text(1, 2, 3), text(4)), (2_000, text(1, 2), text(3)), (5_000, text(1), text(2))]
    (tmp_path / "x").mkdir()
    (tmp_path / "y").mkdir()
    one = read(write(tmp_path / "x", {"a": {"s": rows}}))
    other = read(write(tmp_path / "y", {"a": {"s": rows[::-1]}}))
    assert one.digest() == other.digest()
    assert one.prompt_tokens.tolist() == [2, 0, 1, 0, 3]


def test_equal_tokens_have_equal_ids_and_another_source_has_other_ids(tmp_path: Path) -> None:
    (tmp_path / "x").mkdir()
    (tmp_path / "y").mkdir()
    w = read(write(tmp_path / "x", {"a": {"s": [(0, text(1), text(1, 2, 1)), (5, text(1, 9), text(2))]}}))
    first, _, second = outputs(w)
    assert first[0] == first[2] != first[1]
    assert second == [first[1]]
    v = read(write(tmp_path / "y", {"a": {"s": [(0, text(1), text(1, 2, 1)), (5, text(1, 8), text(2))]}}))
    assert not every_id(w) & every_id(v)
    assert not every_id(w) & set(words(text(1, 2)))


def test_keyed_ids_are_one_to_one_over_a_whole_vocabulary() -> None:
    ids = KeyedIds(content_key([b"x"]))
    given = ids.of(range(100_000))
    assert len(np.unique(given)) == 100_000
    assert (given > 0).all()
    assert (ids.of(range(100_000)) == given).all()


def test_blocks_are_full_and_equal_only_when_every_token_is() -> None:
    ids = np.arange(7, dtype=np.uint32)
    one, other = block_units(ids, 3), block_units(ids[[0, 1, 2, 3, 5, 4]], 3)
    assert len(one) == len(other) == 2
    assert one[0] == other[0]
    assert one[1] != other[1]


def test_tool_time_is_the_gap_less_output_tokens_at_the_pace_of_the_set(tmp_path: Path) -> None:
    rows = [(100_000 * k, text(k), text(*range(10))) for k in range(20)]  # 10 ms a token in every gap
    rows.append((1_900_000 + 700_000, text(99), text(1)))  # 100 ms of it generate, 600 ms are tool time
    w = read(write(tmp_path, {"a": {"s": rows}}))
    tools = w.stage_duration_ns[w.stage_kind == StageKind.TOOL]
    assert w.provenance["us_per_output_token"] == {"a": 10_000}
    assert tools.tolist() == [0] * 19 + [600_000_000]


def test_a_call_without_a_prompt_is_counted_and_its_time_is_kept(tmp_path: Path) -> None:
    rows = [(0, text(1), ""), (4_000, "", text(5)), (9_000, text(1, 2), text(3))]
    w = read(write(tmp_path, {"a": {"s": rows, "none": [(0, "", "x")], "void": []}}))
    assert w.n_requests == 2
    assert w.stage_duration_ns.tolist() == [0, 9_000_000, 0]
    assert w.provenance["not_imported"] == {
        "a: call with an empty input": 2,
        "a: file without records": 1,
        "a: session without a usable call": 1,
    }
    assert w.provenance["calls_with_empty_output"]["counts"] == {"a": 1}


def test_roles_are_prompt_heads_that_sessions_share(tmp_path: Path) -> None:
    plan, code = text(*range(10)), text(*range(20, 30))
    sessions = {
        "s1": [(0, plan, "a"), (1, code, "b"), (2, code + " x", "c"), (3, "own words", "d")],
        "s2": [(0, plan, "e"), (1, code, "f")],
    }
    w = read(write(tmp_path, {"a": sessions}))
    agents = [w.agents[i] for i in w.stage_agent[w.stage_kind == StageKind.LLM]]
    assert agents == ["a/role-1", "a/role-0", "a/role-0", "a/other", "a/role-1", "a/role-0"]
    assert not any("w2" in a or "own" in a for a in w.agents)


def test_near_duplicate_sessions_are_imported_once_and_counted(tmp_path: Path) -> None:
    rows = [(k, text(k, k + 1), text(k)) for k in range(6)]
    folder = write(tmp_path, {"a": {"s1": rows, "s2": rows[:4], "s3": [(0, text(77), text(8))]}})
    w = read(folder)
    assert w.workflow_names == ("a/s1", "a/s3")
    assert w.provenance["not_imported"] == {"a: near-duplicate session": 1}
    assert read(folder, deduplicate=False).n_workflows == 3
    names = tmp_path / "names.txt"
    names.write_text("a/s3\n")
    assert read(folder, only=names).workflow_names == ("a/s3",)


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("{", "s.jsonl:2: not JSON"),
        ("[1]", "s.jsonl:2: got a JSON list, expected an object"),
        ('{"timestamp": 1, "input": "x", "session_id": "s"}', "s.jsonl:2: field 'output': missing"),
        (
            '{"timestamp": "1", "input": "x", "output": "", "session_id": "s"}',
            "2: field 'timestamp': got a text",
        ),
        ('{"timestamp": -1, "input": "x", "output": "", "session_id": "s"}', "2: field 'timestamp': got -1"),
        ('{"timestamp": 1, "input": ["x"], "output": "", "session_id": "s"}', "2: field 'input': got a list"),
    ],
)
def test_malformed_lines_name_file_line_and_field(tmp_path: Path, line: str, message: str) -> None:
    (tmp_path / "s.jsonl").write_text(
        '{"timestamp": 1, "input": "x", "output": "y", "session_id": "s"}\n' + line + "\n"
    )
    with pytest.raises(InputError) as error:
        read(tmp_path / "s.jsonl")
    assert message in str(error.value)
    assert "\n" not in str(error.value)


def test_a_missing_tokenizer_says_what_to_give(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "tiktoken", None)
    with pytest.raises(InputError, match="tokenizer 'cl100k_base' needs the package tiktoken"):
        _tokenizer.load("cl100k_base")
    monkeypatch.setitem(sys.modules, "tokenizers", None)
    (tmp_path / "t.json").write_text("{}")
    with pytest.raises(InputError, match="needs the package tokenizers"):
        _tokenizer.load(str(tmp_path / "t.json"))
    with pytest.raises(InputError, match="no such file"):
        _tokenizer.load(str(tmp_path / "cl100k_base.tiktoken"))
    with pytest.raises(
        InputError, match="unknown encoding of a ranks file 'cl100k'; did you mean 'cl100k_base'"
    ):
        _tokenizer.load(str(tmp_path / "cl100k.tiktoken"))
    ranks = tmp_path / "cl100k_base.tiktoken"
    ranks.write_text("".join(f"{b64encode(bytes([b])).decode()} {b}\n" for b in range(255)))
    with pytest.raises(InputError, match="no rank for the single byte 0xff"):
        _tokenizer.load(str(ranks))
    ranks.write_text("YQ== 1\nnonsense\n")
    with pytest.raises(InputError, match=r"cl100k_base\.tiktoken:2: expected a base64 token"):
        _tokenizer.load(str(ranks))


def test_a_ranks_file_tokenizes_by_its_merges(tmp_path: Path) -> None:
    pytest.importorskip("tiktoken")
    ranks = tmp_path / "cl100k_base.tiktoken"
    tokens = [bytes([b]) for b in range(256)] + [b"ab", b"abc"]
    ranks.write_text("".join(f"{b64encode(t).decode()} {i}\n" for i, t in enumerate(tokens)))
    assert list(_tokenizer.load(str(ranks))("abcab!")) == [257, 256, ord("!")]


def test_a_folder_and_a_file_are_recognised_by_their_content(tmp_path: Path) -> None:
    folder = write(tmp_path, {"a": {"s": [(0, "x", "y")]}})
    assert formats.sniff(folder) == formats.sniff(folder / "a" / "s.jsonl") == "lmcache"
