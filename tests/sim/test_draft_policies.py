"""Every drafter with every budget in the simulator: outputs stay, reruns are equal, and those that can draft do."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from typing import Any

import pytest

from policies.registry import load, names
from sim.worlds import random_world, with_token_ids

DRAFTERS = [n for n in names("drafters") if n != "none"]
BUDGETS = [n for n in names("budgets") if n != "none"]


def outputs(tables: dict[str, Any]) -> list[tuple[int, int, int]]:
    rows = tables["requests"].to_pylist()
    return sorted((r["stage"], r["output_tokens"], r["status"]) for r in rows)


@pytest.mark.parametrize("budget", BUDGETS)
def test_drafts_change_no_output_whatever_drafts_and_whatever_divides(budget: str) -> None:
    drafted: Counter[str] = Counter()
    for seed in range(3):
        world = random_world(seed, faults=False)
        world = replace(world, workload=with_token_ids(world.workload, seed))
        plain = outputs(world.run(check=True)[1])
        for name in DRAFTERS:
            chosen: Any = {"drafter": load("drafters", name), "budget": load("budgets", budget)}
            drafting = replace(world, policies=replace(world.policies, **chosen))
            tables = drafting.run(check=True)[1]
            assert outputs(tables) == plain
            drafted[name] += sum(tables["requests"]["drafted_tokens"].to_pylist())
            if seed == 0:
                again = drafting.run()[1]
                assert all(again[t].equals(tables[t]) for t in tables)
    assert {name for name, n in drafted.items() if n} >= {"oracle", "eagle3", "mtp", "structured", "suffix"}
