"""Laws of where a recorded agent's next search comes from, on a log written here."""

from pathlib import Path

import pytest

from traces.next_search import main, next_searches


def log(*questions: tuple[str, list[tuple[str, str]]]) -> str:
    out = ["BEGIN TRIAL 1\n"]
    for question, steps in questions:
        out.append(f"Question: {question}\n")
        for k, (action, observation) in enumerate(steps, start=1):
            out.append(f"Thought {k}: hm\nAction {k}: {action}\nObservation {k}: {observation}\n")
    return "".join(out)


def test_next_searches_are_found_where_they_stand(tmp_path: Path) -> None:
    hall = (
        "Search[Zed Hall]",
        "Zed Hall stands in Port Ool. The hall in Zed was built by Ann Lee. Bob Ray left.",
    )
    path = tmp_path / "log.txt"
    path.write_text(
        log(
            ("Who built Zed Hall?", [hall, ("Search[Ann Lee]", "Ann Lee was born."), ("Finish[x]", "no")]),
            (
                "Zed Hall or Cy Dorn?",
                [hall, ("Search[Cy Dorn]", "Cy."), ("Lookup[y]", "-"), ("Search[Nobody]", "-")],
            ),
        )
        + "BEGIN TRIAL 2\n"
        + log(("Zed Hall?", [hall, hall]))[len("BEGIN TRIAL 1\n") :]
    )
    # Ann Lee is the best name of the observation; Cy Dorn stands in the question, behind the observation's three
    # names.
    assert next_searches(path) == {
        "searches_after_the_first": 3,
        "in_the_question": 1,
        "in_the_last_observation": 1,
        "ranked": {"1": 1, "2": 1, "3": 1, "8": 2},
    }


def test_a_log_without_searches_is_refused_in_one_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "log.txt"
    path.write_text(log(("Why?", [("Finish[x]", "no")])))
    for arguments in ([str(path)], [], [str(tmp_path / "none.txt")]):
        assert main(arguments) == 2
        said = capsys.readouterr()
        assert (said.out, said.err.count("\n")) == ("", 1)
