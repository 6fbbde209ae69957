"""The guide to workloads with branches does what it says."""

import doctest
from pathlib import Path

GUIDE = Path(__file__).resolve().parents[2] / "docs" / "guides" / "branches.md"


def test_the_guide_to_branches_executes() -> None:
    done = doctest.testfile(str(GUIDE), module_relative=False)
    assert done.attempted > 8
    assert done.failed == 0
