"""`python -m policies`: list and check, their exit status and messages."""

from __future__ import annotations

from pathlib import Path

import pytest

from policies.__main__ import main

BROKEN = """
from dataclasses import dataclass
from policies.evictors.lru import Lru

@dataclass(frozen=True)
class Broken(Lru):
    def next_victim(self, state, now_ns):
        return None
"""


def test_list_shows_names_needs_and_options(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["list", "evictors"]) == 0
    out = capsys.readouterr().out
    assert "belady_leaf" in out
    assert "needs oracle" in out
    assert "evictor.small_ratio=0.1 (float)  share of" in out
    assert "routers" not in out


def test_check_says_which_policy_keeps_the_laws(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["check", "router=prefix_aware", "router.max_extra_requests=3", "gate=never", "seeds=1"]) == 0
    out = capsys.readouterr().out
    assert (
        "ok: prefix_aware(max_extra_requests=3, max_load_ratio=1.5) keeps the laws of routers (1 seeds)"
        in out
    )
    assert "ok: never keeps the laws of gates" in out


def test_check_ends_with_status_1_when_a_law_is_broken(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "broken.py").write_text(BROKEN)
    assert main(["check", f"policy_path={tmp_path}", "evictor=broken"]) == 1
    assert "broken: broken: seed 0, request" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["chek"], "unknown command 'chek'; did you mean 'check'"),
        (["check"], "check needs a policy"),
        (["check", "evictr=lru"], "unknown option of check 'evictr'; did you mean 'evictor'"),
        (["check", "lru"], "'lru': expected OPTION=VALUE"),
        (["check", "evictor="], "'evictor=': expected OPTION=VALUE"),
        (["check", "evictor.depth=3"], "evictor.depth is given, but no evictor=NAME"),
        (["check", "evictor=lru", "seeds=0"], "seeds=0: expected a whole number from 1 to 1000"),
        (["check", "evictor=lru", "policy_path=nowhere"], "policy_path=nowhere: not a folder"),
        (["list", "evictor"], "unknown policy family 'evictor'; did you mean 'evictors'"),
        (["list", "path=x"], "unknown option of list 'path'"),
    ],
)
def test_bad_input_is_one_line_and_status_2(
    arguments: list[str], words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(arguments) == 2
    captured = capsys.readouterr()
    assert words in captured.err
    assert captured.err.count("\n") == 1
    assert captured.out == ""


def test_no_command_prints_the_usage(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([]) == 2
    assert main(["--help"]) == 0
    assert "python -m policies check" in capsys.readouterr().out
