"""The guide "Write your own speculation gate" does what it says: its policy keeps the laws, its table is true."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from policies.__main__ import main
from policies.api import Gate, Policy

ROOT = Path(__file__).parents[2]
GUIDE = (ROOT / "docs/guides/write-your-own-gate.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"^```(\w+)\n(.*?)^```$", GUIDE, flags=re.DOTALL | re.MULTILINE)


def test_the_guide_s_gate_keeps_the_laws_and_its_commands_work(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (python,) = [text for kind, text in BLOCKS if kind == "python"]
    (tmp_path / "my").mkdir()
    (tmp_path / "my/thrifty.py").write_text(python, encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    commands = [line.split() for kind, text in BLOCKS if kind == "sh" for line in text.splitlines()]
    said = []
    for words in commands:
        if words[:3] == ["python", "-m", "policies"]:
            assert main(words[3:]) == 0
            said.append(capsys.readouterr().out)
    assert "gate.waste_max=0.5 (float)  share of engine time that may be thrown away" in said[0]
    assert "keeps the laws of gates" in said[1]


def test_the_guide_lists_every_method_of_a_gate() -> None:
    methods = {name for name, value in vars(Gate).items() if callable(value) and not name.startswith("_")}
    rows = GUIDE.split("|---|---|\n")[1].split("\n\n")[0].splitlines()
    listed = {name for row in rows for name in re.findall(r"`(\w+)`", row.split("|")[1])}
    assert listed == methods - set(vars(Policy))
