"""Laws of the BFCL importer, on functions and questions written here."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from traces import formats, io_bfcl
from traces.branches import Branches, StageFlag
from traces.errors import InputError
from traces.identity import identity
from traces.schema import StageKind, Workload

AREA = ("get_area", "Get the area of a shape.")
UNITS = ("convert_units", "Convert a length to other units.")
BOOK = ("book_room", "Book a room for a guest.")


def function(name: str, about: str, **fields: str) -> dict[str, Any]:
    given = {k: {"type": t, "description": f"the {k}"} for k, t in (fields or {"size": "float"}).items()}
    return {"name": name, "description": about, "parameters": {"type": "dict", "properties": given}}


def write(folder: Path, group: str, rows: list[tuple[str, Any, Any, dict[str, Any]]]) -> None:
    """rows: (id, question turns, ground truth, other fields)."""
    (folder / "possible_answer").mkdir(parents=True, exist_ok=True)
    for place, value in (("", 0), ("possible_answer/", 1)):
        lines = [
            {"id": i, "ground_truth": truth}
            if value
            else {"id": i, "question": [[{"role": "user", "content": t}] for t in asked]} | more
            for i, asked, truth, more in rows
        ]
        text = "".join(json.dumps(line) + "\n" for line in lines)
        (folder / f"{place}BFCL_v4_{group}.json").write_text(text)


def single(folder: Path, question: str, truth: dict[str, Any], *functions: Any) -> Path:
    described = [function(*f) if isinstance(f, tuple) else f for f in functions or (AREA, UNITS, BOOK)]
    write(folder, "live_multiple", [("live_multiple_0-0-0", [question], [truth], {"function": described})])
    return folder


def turns(folder: Path, asked: list[str], truth: list[list[str]]) -> Path:
    docs = folder / "multi_turn_func_doc"
    docs.mkdir(parents=True)
    files = [
        ("ls", "List files."),
        ("mv", "Move a file."),
        ("cat", "Show a file."),
        ("du", "Measure disk use."),
    ]
    (docs / "gorilla_file_system.json").write_text("".join(json.dumps(function(*f)) + "\n" for f in files))
    more = {"involved_classes": ["GorillaFileSystem"], "excluded_function": ["du"]}
    write(folder, "multi_turn_base", [("multi_turn_base_0", asked, truth, more)])
    return folder


def branches(w: Workload) -> Branches:
    assert w.branches is not None
    return w.branches


def canonical(w: Workload) -> list[str]:
    return [w.agents[i] for i in w.stage_agent[w.canonical()]]


def read(path: Path, **options: Any) -> Workload:
    return io_bfcl.read(path, **{"sets": "live_multiple"} | options)


def test_one_call_is_routed_handled_executed_and_replied_to(tmp_path: Path) -> None:
    w = read(single(tmp_path, "area of a shape of size 3?", {"get_area": {"size": [3.0]}}))
    assert canonical(w) == ["router", "handler", "function", "reply"]
    b = branches(w)
    assert b.option_outcome.tolist() == [
        identity("function", json.dumps(function(*f), sort_keys=True, separators=(",", ":")))
        for f in (AREA, UNITS, BOOK)
    ]
    assert b.option_chosen.tolist() == [True, False, False]
    paths = [
        [w.agents[w.stage_agent[s]] for s in b.option_stage_idx[a:e]]
        for a, e in zip(b.option_stage_ptr[:-1], b.option_stage_ptr[1:], strict=True)
    ]
    assert paths == [["handler", "function"]] * 3


@pytest.mark.parametrize(
    ("question", "values", "copied"),
    [
        ("area of a shape of size 3.5?", {"size": [3.5]}, True),
        ("area of a shape of that size?", {"size": [3.5]}, False),
        ("area of a shape of that size?", {"size": [3.5, ""]}, True),
        ("area of a SHAPE-like thing", {"size": ["shape like"]}, True),
        ("area of a shape", {"size": [["area", "shape"]]}, True),
        ("area of a shape", {"size": [{"of": ["area", "volume"]}]}, True),
        ("area of a shape", {"size": [True]}, False),
    ],
)
def test_a_drafter_has_arguments_right_when_they_stand_in_the_question(
    tmp_path: Path, question: str, values: dict[str, Any], copied: bool
) -> None:
    w = read(single(tmp_path, question, {"get_area": values}, AREA, UNITS))
    b = branches(w)
    area = b.option_outcome == b.option_outcome[b.option_chosen][0]
    assert np.count_nonzero(area) == (1 if copied else 2)
    assert b.option_offered[b.option_chosen].tolist() == [copied]
    assert np.count_nonzero(b.option_offered & area) == 1
    # Where the handler finds the arguments, a candidate is a function.
    c = branches(read(tmp_path, arguments="handler"))
    assert len(c.option_outcome) == 2
    assert c.option_offered.all()
    assert not c.option_arguments.any()


def test_the_retriever_scores_the_function_whose_description_the_question_repeats_best(
    tmp_path: Path,
) -> None:
    w = read(single(tmp_path, "convert this length to other units: 4", {"convert_units": {"size": [4.0]}}))
    b = branches(w)
    best = int(np.argmax(b.option_score[0]))
    named = np.flatnonzero(b.option_outcome == b.option_outcome[b.option_chosen][0])
    assert best in named
    assert b.drafters == ("retrieval",)
    assert w.provenance["records"]["chosen_among_the_best_by_retrieval"] == {
        "live_multiple": {"1": 1.0, "2": 1.0, "3": 1.0}
    }


def test_what_writes_is_never_declared_safe_and_unknown_verbs_are_not_either(tmp_path: Path) -> None:
    odd = function("zork", "Zork it.")
    w = read(single(tmp_path, "book room 3", {"book_room": {"size": ["3"]}}, AREA, BOOK, odd))
    b = branches(w)
    tool = w.stage_kind == StageKind.TOOL
    by_option = {
        int(b.option_outcome[o]): int(b.stage_flags[s])
        for o in range(b.n_options)
        for s in b.option_stage_idx[b.option_stage_ptr[o] : b.option_stage_ptr[o + 1]].tolist()
        if tool[s]
    }
    assert [by_option[int(o)] for o in b.option_outcome] == [StageFlag.SPECULABLE, StageFlag.MUTATING, 0]


def test_turns_go_round_until_the_router_replies_and_reads_depend_on_writes(tmp_path: Path) -> None:
    asked = ["move a.txt to b.txt and list", "show b.txt"]
    truth = [["mv(source='a.txt', target='b.txt')", "ls()"], ["cat('b.txt')"]]
    w = read(turns(tmp_path, asked, truth), sets="multi_turn_base")
    one = ["router", "handler", "function"]
    assert canonical(w) == [*one, *one, "router", *one, "router"]
    b = branches(w)
    assert np.bincount(b.option_branch[b.option_chosen]).tolist() == [1] * 5
    reply = identity("routing", "reply")
    chosen = b.option_outcome[b.option_chosen]
    assert (chosen == reply).tolist() == [False, False, True, False, True]
    assert len(np.unique(b.option_outcome)) == 4  # three functions, one is excluded, and the reply
    keys = set(b.read_key.tolist()) | set(b.write_key.tolist())
    assert len(keys) == 1
    assert len(b.write_key) >= 1
    router = w.agents.index("router")
    last = np.flatnonzero((w.stage_agent == router) & w.canonical())[-1]
    assert w.n_workflows == 1
    assert len(w.parent_idx[w.parent_ptr[last] : w.parent_ptr[last + 1]]) == 4  # three results and a reply


def test_parallel_calls_are_several_valid_choices_of_one_decision(tmp_path: Path) -> None:
    functions = [function(*f) for f in (AREA, UNITS, BOOK)]
    truth = [{"get_area": {"size": [3.0]}}, {"get_area": {"size": [4.0]}}, {"convert_units": {"size": [5.0]}}]
    row = ("parallel_multiple_0", ["areas of 3.0 and 4.0, and 5.0 in feet"], truth, {"function": functions})
    write(tmp_path, "parallel_multiple", [row])
    w = read(tmp_path, sets="parallel_multiple")
    b = branches(w)
    assert b.n_branches == 1
    assert not b.branch_exclusive[0]
    assert np.count_nonzero(b.option_chosen) == 3
    assert canonical(w) == ["router", *["handler", "function"] * 3, "reply"]


def test_equal_questions_are_equal_inputs_and_the_rest_is_not(tmp_path: Path) -> None:
    described = {"function": [function(*f) for f in (AREA, UNITS)]}
    rows = [
        (f"live_multiple_{i}-0-0", [q], [{"get_area": {"size": [3.0]}}], described)
        for i, q in enumerate(["area, size 3.0", "area, size 3.0", "area of 3.0"])
    ]
    write(tmp_path, "live_multiple", rows)
    w = read(tmp_path)
    b = branches(w)
    rows_of = [b.stage_content[(w.stage_workflow == k) & w.canonical()] for k in range(3)]
    same = w.output_tokens[(w.stage_workflow == 0) & w.canonical()]
    assert rows_of[0].tolist() == rows_of[1].tolist()
    assert same.tolist() == w.output_tokens[(w.stage_workflow == 1) & w.canonical()].tolist()
    assert (rows_of[0] != rows_of[2]).tolist() == [True, True, False, True]  # the call itself is the same


def test_bfcl_is_recognised_by_its_layout_and_read_alike_every_time(tmp_path: Path) -> None:
    path = single(tmp_path, "area of 3", {"get_area": {"size": ["3"]}})
    assert formats.sniff(path) == "bfcl"
    assert read(path).digest() == read(path).digest()
    assert read(path).digest() != read(path, seed=1).digest()


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"sets": "live_multipel"}, "unknown set 'live_multipel'; did you mean 'live_multiple'"),
        ({"sets": "multiple"}, "expected one file BFCL_v"),
        ({"arguments": "rooter"}, "did you mean 'router'"),
        ({"clock": "ruoting"}, "did you mean 'routing'"),
        ({"clock": "react"}, "no quantity 'reason_tokens'"),
        ({"most_options": 0}, "must be at least 1"),
    ],
)
def test_bad_options_of_bfcl_end_in_one_line(tmp_path: Path, options: dict[str, Any], text: str) -> None:
    with pytest.raises(InputError, match=text):
        read(single(tmp_path, "area of 3", {"get_area": {"size": ["3"]}}), **options)


@pytest.mark.parametrize(
    ("truth", "text"),
    [
        ({"get_aera": {}}, "a call of a function that is not on offer"),
        ({"get_area": {"size": 3}}, "expected lists of accepted values"),
        ({"get_area": {}, "convert_units": {}}, "expected one function a call"),
    ],
)
def test_bad_answers_are_named(tmp_path: Path, truth: dict[str, Any], text: str) -> None:
    with pytest.raises(InputError, match=text):
        read(single(tmp_path, "area of 3", truth))


def test_bad_calls_in_turns_are_named(tmp_path: Path) -> None:
    for i, call in enumerate(("ls(", "ls", "ls(__import__('os'))")):
        with pytest.raises(InputError, match="not a call with plain arguments"):
            read(turns(tmp_path / str(i), ["list"], [[call]]), sets="multi_turn_base")
