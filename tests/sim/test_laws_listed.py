"""The list of invariants tells the truth: its tests exist, and it explains every decision that a log holds."""

import re
from pathlib import Path

from test_speculate import drafting

from sim.worlds import random_world
from traces.runlog import from_tables

ROOT = Path(__file__).parents[2]
TEXT = (ROOT / "docs" / "invariants.md").read_text(encoding="utf-8")


def test_every_law_that_is_listed_has_its_test() -> None:
    sources = [p.read_text(encoding="utf-8") for p in sorted((ROOT / "tests").rglob("test_*.py"))]
    defined = {name for text in sources for name in re.findall(r"^def (test_\w+)", text, re.MULTILINE)}
    listed = set(re.findall(r"`(test_\w+)`", TEXT))
    assert len(listed) > 20
    assert listed <= defined, sorted(listed - defined)


def test_every_law_of_this_folder_is_listed() -> None:
    for path in sorted(Path(__file__).parent.glob("test_laws_*.py")):
        if path.name == Path(__file__).name:
            continue
        for name in re.findall(r"^def (test_\w+)", path.read_text(encoding="utf-8"), re.MULTILINE):
            assert f"`{name}`" in TEXT or name == "test_the_worlds_reach_what_the_laws_are_about", name


def test_every_decision_in_a_log_is_explained() -> None:
    explained = set(re.findall(r"^\| `(\w+)` \| `(\w+)` \|", TEXT, re.MULTILINE))
    seen = set()
    for seed in range(40):
        for world in (random_world(seed), drafting(seed, rate=0.5)[1]):
            decisions = from_tables(world.run()[1]).table("decisions", ["family", "action"])
            seen |= set(zip(*(c.to_pylist() for c in decisions.columns), strict=True))
    assert {("engine", "gap"), ("engine", "preempt"), ("routers", "pick")} <= seen
    assert seen <= explained
