"""Whatever stands in a record's place, importers of nested records give a sound workload or one clear line."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from traces import draws, io_bfcl, io_musique, io_sgd
from traces.errors import InputError
from traces.schema import Workload

JUNK: tuple[Any, ...] = (None, 3, -1, True, "x", "", [], {}, [[]], [None], {"a": 1}, 2**70, 1.5)
DROP = object()

QUESTION = {
    "id": "2hop__1_2",
    "question": "Where was whoever built Zed Hall born?",
    "paragraphs": [
        {"idx": 0, "title": "Zed Hall", "paragraph_text": "Zed Hall was built by Ann Lee."},
        {"idx": 1, "title": "Ann Lee", "paragraph_text": "Ann Lee was born in Hull."},
    ],
    "question_decomposition": [
        {"id": 1, "question": "Zed Hall >> builder", "answer": "Ann Lee", "paragraph_support_idx": 0},
        {"id": 2, "question": "Where was #1 born?", "answer": "Hull", "paragraph_support_idx": 1},
    ],
}
BARE = {
    "id": "2hop__3_4",
    "question": "Where is Zed Hall?",
    "question_decomposition": [
        {"question": "Zed Hall >> place", "answer": "Hull", "document_id": "Zed Hall_0"}
    ],
}


def said(speaker: str, act: str, *values: str, **more: Any) -> dict[str, Any]:
    frame = {"service": "F_1", "actions": [{"act": act, "slot": "t", "values": [*values]}], **more}
    return {"speaker": speaker, "utterance": "some words", "frames": [frame]}


DIALOGUE = [
    {
        "dialogue_id": "1_1",
        "turns": [
            said("USER", "INFORM"),
            said("SYSTEM", "OFFER", "A", "B", service_call={"method": "Find", "parameters": {"g": "x"}}),
            said("USER", "REQUEST"),
            said("SYSTEM", "INFORM"),
            said("USER", "SELECT", "B"),
            said("SYSTEM", "CONFIRM"),
        ],
    }
]
FUNCTION = {
    "name": "get_area",
    "description": "Get an area.",
    "parameters": {
        "type": "dict",
        "properties": {"size": {"type": "float", "description": "s", "default": 1}},
    },
}
ASKED = {"id": "a", "question": [[{"role": "user", "content": "area 3"}]], "function": [FUNCTION]}
CALLED = {"id": "a", "ground_truth": [{"get_area": {"size": [3, {"x": ["y"]}], "z": [""]}}]}
TURNS = {
    "id": "a",
    "question": [[{"role": "user", "content": "sum"}]],
    "involved_classes": ["MathAPI"],
    "excluded_function": ["add"],
}
CALLS = {"id": "a", "ground_truth": [["get_area(size=3)", "get_area(2)"]]}


def lines(path: Path, *rows: Any) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(json.dumps(r) + "\n" for r in rows))


def musique(folder: Path, value: Any, flow: str) -> Workload:
    lines(folder / "m.jsonl", *(value if isinstance(value, list) else [value]))
    return io_musique.read(folder / "m.jsonl", flow=flow)


def sgd(folder: Path, value: Any) -> Workload:
    (folder / "dialogues_1.json").write_text(json.dumps(value))
    return io_sgd.read(folder / "dialogues_1.json", offers="all")


def bfcl(folder: Path, value: Any, group: str) -> Workload:
    asked, answered = value if isinstance(value, list) and len(value) == 2 else (value, value)
    lines(folder / f"BFCL_v4_{group}.json", asked)
    lines(folder / "possible_answer" / f"BFCL_v4_{group}.json", answered)
    lines(folder / "multi_turn_func_doc" / "math_api.json", FUNCTION)
    return io_bfcl.read(folder, sets=group)


CASES: dict[str, tuple[Any, Callable[[Path, Any], Workload]]] = {
    "react": ([QUESTION, BARE], lambda folder, value: musique(folder, value, "react")),
    "subagent": ([QUESTION, BARE], lambda folder, value: musique(folder, value, "subagent")),
    "sgd": (DIALOGUE, sgd),
    "routing": ([ASKED, CALLED], lambda folder, value: bfcl(folder, value, "live_multiple")),
    "parallel": ([ASKED, CALLED], lambda folder, value: bfcl(folder, value, "parallel_multiple")),
    "turns": ([TURNS, CALLS], lambda folder, value: bfcl(folder, value, "multi_turn_base")),
}


def places(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    if path:
        yield path
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, child in items:
        yield from places(child, (*path, key))


def changed(value: Any, path: tuple[Any, ...], junk: Any) -> Any:
    value = copy.deepcopy(value)
    at = value
    for key in path[:-1]:
        at = at[key]
    if junk is DROP:
        del at[path[-1]]
    else:
        at[path[-1]] = junk
    return value


@pytest.mark.parametrize("case", CASES)
def test_a_record_with_anything_in_any_place_is_read_or_refused_in_one_line(
    tmp_path: Path, case: str
) -> None:
    value, read = CASES[case]
    assert read(tmp_path, value).errors() == []
    refused: list[str] = []
    choices = [*JUNK, DROP]
    for n, path in enumerate(places(value)):
        for k in range(4):
            junk = choices[draws.bits(0, f"mutated/{case}", n, k) % len(choices)]
            try:
                assert read(tmp_path, changed(value, path, junk)).errors() == []
            except InputError as e:
                refused.append(str(e))
    assert len(refused) > 5
    assert not any("\n" in line for line in refused)
