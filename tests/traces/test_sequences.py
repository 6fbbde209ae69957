"""Recorded sequences: numbers alone, and no task on both sides of a split."""

from __future__ import annotations

import json
from importlib.resources import files

import pytest

from policies.training.sequences import original, split
from traces.errors import InputError
from traces.sequences import encode, load, names
from traces.sequences.__main__ import KINDS, main


def test_every_source_has_its_file_and_says_where_it_is_from() -> None:
    assert set(names()) == set(KINDS)
    for name in names():
        found = load(name)
        assert len(found.names) == len(set(found.names)) == len(found.runs) >= 10
        assert {s for run in found.runs for s in run} == set(range(len(found.symbols)))
        assert {"source", "licence", "command"} <= set(found.provenance)


@pytest.mark.parametrize("name", names())
def test_no_task_is_on_both_sides_of_a_split(name: str) -> None:
    found = load(name)
    for seed in range(20):
        learn, test = split(found.names, 0.3, seed)
        assert sorted([*learn, *test]) == list(range(len(found.names)))
        sides = [{original(found.names[i]) for i in rows} for rows in (learn, test)]
        assert sides[0].isdisjoint(sides[1])


def test_tasks_are_hashes_and_symbols_are_of_the_known_names() -> None:
    for name in names():
        text = (files("traces.sequences") / "data" / f"{name}.json").read_text(encoding="utf-8")
        body = json.loads(text)
        assert all(len(original(n)) == 12 and int(original(n), 16) >= 0 for n in body["names"])
        assert len(text) < 5000
        assert max(map(len, body["symbols"])) < 40


def test_runs_of_one_task_share_its_name_and_keep_their_order() -> None:
    body = json.loads(
        encode([("t", ["b", "a"]), ("u", ["a"]), ("t", ["a", "a", "b"]), ("v", [])], {"source": "x"})
    )
    assert len(body["names"]) == 3
    assert len({original(n) for n in body["names"]}) == 2
    assert sorted(body["runs"]) == [[0], [0, 0, 1], [1, 0]]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["sweagnt", ".", "out.json"], "unknown kind of sequences 'sweagnt'; did you mean 'sweagent'"),
        (["sweagent"], "expected: python -m traces.sequences"),
        (["chatdev", "EMPTY", "out.json"], "no record of kind chatdev"),
    ],
)
def test_bad_words_end_in_one_line(
    words: list[str], message: str, tmp_path: object, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([w.replace("EMPTY", str(tmp_path)) for w in words]) == 2
    said = capsys.readouterr()
    assert message in said.err
    assert said.err.count("\n") == 1


def test_an_unknown_source_is_answered_with_the_nearest() -> None:
    with pytest.raises(InputError, match="did you mean 'magentic'"):
        load("magentik")
