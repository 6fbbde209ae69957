"""Laws of what recurs in a public set, and of the numbers that are kept of it."""

import json
from pathlib import Path
from typing import Any

import pytest

from traces.__main__ import main
from traces.errors import InputError
from traces.measured import recurrence
from traces.recurrence import seen_before
from traces.recurrence_keys import SOURCES, measure


def titles(folder: Path, *groups: list[str], lines: bool) -> Path:
    rows = [{"_id": str(i), "supporting_facts": [[t, 0] for t in g]} for i, g in enumerate(groups)]
    path = folder / ("set.jsonl" if lines else "set.json")
    path.write_text("".join(json.dumps(r) + "\n" for r in rows) if lines else json.dumps(rows))
    return path


@pytest.mark.parametrize("lines", [True, False])
def test_titles_recur_across_records_and_sentences_of_one_are_one(tmp_path: Path, lines: bool) -> None:
    found = measure(titles(tmp_path, ["A", "A", "B"], ["A"], ["C"], lines=lines), "titles")[
        "supporting title"
    ]
    assert found == {"groups": 3, "mentions": 4, "seen_before": {"3": [0.25, 0.25, 0.25]}, "there_twice": 0.5}


def test_a_command_recurs_in_its_own_repository_only(tmp_path: Path) -> None:
    for stem, actions in (
        ("a__a-1", ["ls", "ls", "open x"]),
        ("a__a-2", ["ls"]),
        ("b__b-1", ["ls", "open x"]),
    ):
        steps = [{"action": f"{a}\n"} for a in actions]
        (tmp_path / f"{stem}.traj").write_text(json.dumps({"trajectory": steps}))
    found = measure(tmp_path, "sweagent")["command in its repository"]
    assert (found["mentions"], found["there_twice"]) == (6, 0.5)
    assert found["seen_before"]["3"][0] == round(2 / 6, 4)


def test_searches_of_a_first_trial_recur_word_for_word(tmp_path: Path) -> None:
    def attempt(question: str, *names: str) -> str:
        steps = [f"Thought {k}: t\nAction {k}: Search[{n}]\nObservation {k}: o" for k, n in enumerate(names)]
        return "\n".join([f"Question: {question}", *steps, ""])

    one = "BEGIN TRIAL 1\n" + attempt("q1", "A", "B") + attempt("q2", "A", "C c")
    (tmp_path / "log.txt").write_text(one + "BEGIN TRIAL 2\n" + attempt("q1", "C c", "C c"))
    found = measure(tmp_path, "reflexion")["search"]
    assert (found["groups"], found["mentions"], found["there_twice"]) == (2, 4, 0.5)


def test_orders_differ_and_their_mean_is_the_share(tmp_path: Path) -> None:
    groups = [[str(k % 7), str(k)] for k in range(150)]
    mean, low, high = measure(titles(tmp_path, *groups, lines=True), "titles")["supporting title"][
        "seen_before"
    ]["100"]
    assert low < mean < high
    numbers = [[k % 7, 1000 + k] for k in range(7, 157)]
    assert abs(seen_before(numbers, sizes=(100,))[100] - mean) < 0.02


def test_the_command_prints_one_json_object(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = titles(tmp_path, ["A"], ["A"], lines=False)
    assert main(["recurrence", str(path), "--format", "titles"]) == 0
    assert json.loads(capsys.readouterr().out)["supporting title"]["there_twice"] == 1
    for bad in (
        ["recurrence", str(path), "--format", "title"],
        ["recurrence", str(tmp_path / "x"), "--format", "sgd"],
    ):
        assert main(bad) == 2
        said = capsys.readouterr()
        assert (said.out, said.err.count("\n")) == ("", 1)


def test_a_set_without_facts_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "x.json"
    path.write_text('[{"a": 1}, 3]')
    with pytest.raises(InputError, match="no record with supporting_facts"):
        measure(path, "titles")


def test_what_is_kept_of_the_sets_has_the_form_of_a_measurement() -> None:
    kept: dict[str, Any] = recurrence()
    assert set(kept) == {
        "musique",
        "hover",
        "2wikimultihop",
        "reflexion",
        "sgd",
        "sweagent_one_run",
        "sweagent_three_runs",
    }
    for said in kept.values():
        assert (
            said["command"].removeprefix("python -m traces recurrence COPY_OF_THE_SET --format ") in SOURCES
        )
        for share in said["keys"].values():
            sizes = [int(n) for n in share["seen_before"]]
            means = [share["seen_before"][str(n)][0] for n in sorted(sizes)]
            assert means == sorted(means)  # recurrence grows with what is seen
            assert all(low <= mean <= high for mean, low, high in share["seen_before"].values())
            assert means[-1] < share["there_twice"] <= 1
            assert max(sizes) == share["groups"]
    # The control: other entities in every question.
    assert kept["2wikimultihop"]["keys"]["supporting title"]["seen_before"]["1000"][0] < 0.05
    assert kept["musique"]["keys"]["supporting title"]["seen_before"]["1000"][0] > 0.4
