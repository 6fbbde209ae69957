"""Drafters and budgets in vLLM: what is verified is the simulator's, position by position, and no output changes."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import pytest

from calibration import parity
from calibration.parity_live import drafting_of
from calibration.parity_sim import simulated_decisions
from conftest import Run, outputs
from live.script import Script
from live.vllm.draftsettings import DraftSettings
from policies.registry import load, names
from traces.errors import InputError

COUNT = 5  # requests of the script
STRUCTURE = '[[("{", "}")]]'


def servable(family: str) -> list[str]:
    out = []
    for name in names(family):
        try:
            if family == "drafters":
                active = DraftSettings(drafter=name).load_drafter().active()
            else:
                active = DraftSettings(budget=name).load_budget() is not None and name != "none"
        except InputError:
            continue
        if active:
            out.append(name)
    return out


PAIRS = [{"drafter": d, "budget": b} for d in servable("drafters") for b in servable("budgets")]
CORRUPT = [{**pair, "corrupt_every": 1 + i % 3} for i, pair in enumerate(PAIRS)]
BAD = {
    "raises": "raise ZeroDivisionError('a bug')",
    "nonsense": "return [1, 2, 3]",
    "beyond": "return [Draft(np.full(3, 1 << 20, np.uint32), np.ones(3, np.float32)) for _ in requests]",
}
BAD_BUDGETS = {
    "greedy": "return proposals.length + 9",
    "confused": "return None",
}


@pytest.fixture(scope="module")
def user_policies(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("policies_of_a_user")
    for kind, answer in BAD.items():
        (folder / f"{kind}.py").write_text(
            "from dataclasses import dataclass\nimport numpy as np\nfrom policies.views import Draft\n"
            "from policies.drafters.ngram import NGram as _Ngram\n"
            f"@dataclass(frozen=True)\nclass Bad{kind.capitalize()}(_Ngram):\n"
            f"    def propose_batch(self, state, requests, limit):\n        {answer}\n",
            encoding="utf-8",
        )
    for kind, answer in BAD_BUDGETS.items():
        (folder / f"{kind}.py").write_text(
            "from dataclasses import dataclass\nfrom policies.budgets.fixed_k import FixedK as _FixedK\n"
            f"@dataclass(frozen=True)\nclass Bad{kind.capitalize()}(_FixedK):\n"
            f"    def allocate(self, state, proposals, batch):\n        {answer}\n",
            encoding="utf-8",
        )
    return folder


@pytest.fixture(scope="module")
def served(site: Path, model: Path, script_path: Path, user_policies: Path) -> list[dict[str, Any]]:
    """What became of PAIRS, CORRUPT, bad drafters, bad budgets, and a structure."""
    mine = {"policy_path": str(user_policies)}
    combinations = [
        *PAIRS, *CORRUPT, *({"drafter": k, **mine} for k in BAD), *({"budget": k, **mine} for k in BAD_BUDGETS),
        {"drafter": "structured", "structure": STRUCTURE}, {"drafter": "structured", "structure": "{"},
    ]  # fmt: skip
    done = subprocess.run(
        [sys.executable, str(Path(__file__).parent / "drafting_matrix.py"), str(script_path), str(model), str(COUNT),
         json.dumps(combinations)],
        cwd=site, env={**os.environ, "PYTHONPATH": str(site)}, capture_output=True, text=True, timeout=900,
        check=False,
    )  # fmt: skip
    line = next((x for x in done.stdout.splitlines() if x.startswith("RESULT")), "")
    assert line, done.stdout[-500:] + done.stderr[-3000:]
    return cast("list[dict[str, Any]]", json.loads(line.removeprefix("RESULT")))


@pytest.fixture(scope="module")
def part(script: Script) -> Script:
    """The script's first requests, as a script of its own."""
    requests = script.requests[:COUNT]
    last = {r.workflow: r.stage for r in requests}
    kept = tuple(replace(r, finished=last[r.workflow] == r.stage) for r in requests)
    return Script(script.agents, script.block_tokens, kept)


def test_there_are_drafters_and_budgets_to_try() -> None:
    assert {"ngram", "suffix", "structured"} <= {p["drafter"] for p in PAIRS}
    assert {"fixed_k", "redundancy"} <= {p["budget"] for p in PAIRS}


@pytest.mark.parametrize("i", range(len(PAIRS)), ids=[f"{p['drafter']}-{p['budget']}" for p in PAIRS])
def test_what_each_step_verifies_and_accepts_is_the_simulators(
    i: int, served: list[dict[str, Any]], part: Script
) -> None:
    live = served[i]
    assert (live["drafter_dropped"], live["budget_dropped"], live["host_failed"]) == ("", "", "")
    here = simulated_decisions(part, 300, cast("Any", load("evictors", "lru")), drafting=live)
    simulated = [(row[5], row[6]) for row in here.steps if row[0]]
    assert [(k, a) for _, k, a in live["verified"]] == simulated
    assert live["answers"] == [list(r.output) for r in part.requests]


def test_every_drafter_has_tokens_accepted(served: list[dict[str, Any]]) -> None:
    for drafter in {p["drafter"] for p in PAIRS}:
        accepted = [s["accepted_tokens"] for s in served[: len(PAIRS)] if s["drafter"] == drafter]
        assert max(accepted) > 20, drafter


@pytest.mark.parametrize("i", range(len(CORRUPT)), ids=[f"{p['drafter']}-{p['budget']}" for p in CORRUPT])
def test_corrupted_drafts_change_no_output(i: int, served: list[dict[str, Any]], part: Script) -> None:
    clean, live = served[i], served[len(PAIRS) + i]
    assert live["answers"] == [list(r.output) for r in part.requests]
    assert live["host_failed"] == ""
    if clean["verified_tokens"] > 20:
        share = live["accepted_tokens"] / max(live["verified_tokens"], 1)
        assert share < clean["accepted_tokens"] / clean["verified_tokens"], "the corruption was seen"


def test_a_drafter_or_budget_that_misbehaves_leaves_serving_intact_and_is_reported(
    served: list[dict[str, Any]], part: Script
) -> None:
    bad = served[2 * len(PAIRS) : 2 * len(PAIRS) + len(BAD) + len(BAD_BUDGETS)]
    for live, kind in zip(bad, [*BAD, *BAD_BUDGETS], strict=True):
        assert live["answers"] == [list(r.output) for r in part.requests], kind
        assert bool(live["drafter_dropped"]) == (kind in BAD), kind
        assert bool(live["budget_dropped"]) == (kind in BAD_BUDGETS), kind
        assert live["host_failed"] == ""
        assert live["accepted_tokens"] == 0


def test_a_structure_and_a_malformed_one_change_no_output(served: list[dict[str, Any]], part: Script) -> None:
    for live in served[-2:]:
        assert live["answers"] == [list(r.output) for r in part.requests]
        assert (live["drafter_dropped"], live["host_failed"]) == ("", "")
        assert live["accepted_tokens"] > 0


@pytest.mark.parametrize(("drafter", "budget"), [("suffix", "fixed_k"), ("structured", "redundancy")])
def test_steps_are_the_simulators_where_drafting_requests_overlap(
    drafter: str, budget: str, run: Run, script: Script
) -> None:
    options = ("--drafter", drafter, "--budget", budget, "--draft-tokens", 32, "--at-once", 5)
    directory = run("lru", *options, blocks=300, OMP_NUM_THREADS="1")
    outcome = parity.compare(script, directory)
    assert outcome.equal, outcome
    drafted = drafting_of(directory)
    assert drafted is not None
    assert drafted["accepted_tokens"] > 50
    assert outputs(directory) == [list(r.output) for r in script.requests]


@pytest.mark.parametrize(("name", "said"), [("eagle3", "states its acceptance"), ("oracle", "oracle")])
def test_drafters_that_draft_no_tokens_are_refused(name: str, said: str) -> None:
    with pytest.raises(InputError, match=said):
        DraftSettings(drafter=name).load_drafter()
