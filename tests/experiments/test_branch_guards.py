"""Guards of reuse and promotion are needed: without one, a wrong result is spliced within ten thousand stages."""

from __future__ import annotations

import pytest

from experiments.fuzz import main
from experiments.safety import search
from policies.guards import Guards

LIMIT = 10_000
# Not `loser_deletion`: a stage on a path renders the choice that led to it, so no loser has the name of a winner.
NAMES = ("parameters", "version_check", "write_cascade", "read_stamps")


def test_with_all_guards_nothing_unsafe_is_spliced() -> None:
    found = search(3_000)
    assert found.unsafe == 0
    assert found.spliced > 200
    assert found.fates["promoted"] > 80


@pytest.mark.parametrize("guard", NAMES)
def test_without_one_guard_something_unsafe_is_spliced(guard: str) -> None:
    found = search(LIMIT, guards=Guards(**{guard: False}), stop=True)
    assert found.unsafe, f"{found.stages} stages, {found.spliced} splices, and none unsafe"
    assert found.stages <= LIMIT + 2_000


def test_the_command_says_what_it_found(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--stages", "500", "--start", "7"]) == 0
    assert "0 unsafe of" in capsys.readouterr().out
