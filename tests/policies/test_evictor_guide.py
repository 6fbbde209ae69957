"""The guide "Write your own eviction policy in ten minutes" does what it says: its blocks are run."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

from policies.api import Evictor

ROOT = Path(__file__).parents[2]
GUIDE = (ROOT / "docs/guides/write-your-own-evictor.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"^```(\w+)\n(.*?)^```$", GUIDE, flags=re.DOTALL | re.MULTILINE)


def run(folder: Path, *command: str) -> str:
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_the_guide_s_policy_keeps_the_laws_and_its_commands_work(tmp_path: Path) -> None:
    python = [text for kind, text in BLOCKS if kind == "python"]
    match = re.match(r"# (my/\w+\.py)\n", python[0])
    assert match is not None
    (tmp_path / "my").mkdir()
    (tmp_path / match.group(1)).write_text(python[0], encoding="utf-8")
    for text in python[1:]:
        run(tmp_path, sys.executable, "-c", text)
    commands = [shlex.split(line) for kind, text in BLOCKS if kind == "sh" for line in text.splitlines()]
    output = [
        run(tmp_path, sys.executable, *c[1:]) for c in commands if c[:3] == ["python", "-m", "policies"]
    ]
    assert "evictor.min_hits=2 (int)  hits that make a node worth keeping" in output[0]
    assert output[1] == "ok: patient(min_hits=3) keeps the laws of evictors (2 seeds)\n"


def test_the_guide_ends_with_the_main_job_on_the_policy() -> None:
    assert "python -m experiments run policy_path=my evictor=lru,patient\n" in GUIDE


def test_the_guide_lists_every_event_of_the_contract() -> None:
    events = {name for name, value in vars(Evictor).items() if callable(value) and not name.startswith("_")}
    rows = GUIDE.split("|---|---|\n")[1].split("\n\n")[0].splitlines()
    listed = {name for row in rows for name in re.findall(r"`(\w+)`", row.split("|")[1])}
    assert listed == events
