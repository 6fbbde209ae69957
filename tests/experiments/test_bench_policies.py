"""What `bench policies` times is what it says, and its words are checked."""

from __future__ import annotations

import json

import pytest

from experiments import bench_policies
from experiments.__main__ import main
from experiments.bench_policies import DEPTH, World

AGENTS = ("a", "b", "c")


def test_the_made_up_cache_holds_a_chain_for_each_agent_and_leaves_are_evictable():
    world = World(5, AGENTS)
    assert len(world.nodes) == 5 * len(AGENTS) * DEPTH
    victim = world.evictor.next_victim(world.state, 0)
    assert victim is not None
    assert victim.depth_tokens == DEPTH * bench_policies.TOKENS


def test_costs_are_printed_for_the_load_and_ten_times_it(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(bench_policies, "ROUNDS", 10)
    assert main(["bench", "policies", "workflows=3", "predictor=uniform", "--json"]) == 0
    body = json.loads(capsys.readouterr().out)
    assert len(body["cost_us"]) == 13
    for by_load in body["cost_us"].values():
        assert set(by_load) == {"3", "30"}
        assert all(c["mean"] > 0 and c["p99"] > 0 for c in by_load.values())
    assert main(["bench", "policies", "workflows=3", "predictor=uniform"]) == 0
    assert "30 workflows" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["policies", "predictor=oracle"], "it has no cost to measure"),
        (["policies", "workflow=3"], "unknown option of bench policies 'workflow'; did you mean 'workflows'"),
        (["policies", "workflows=0"], "workflows=0: expected at least 1"),
        (["policies", "--workload", "hover"], "leave out --workload"),
        (["sim"], "name what to simulate with --workload"),
    ],
)
def test_bad_words_end_in_one_line_and_status_2(
    words: list[str], message: str, capsys: pytest.CaptureFixture[str]
):
    assert main(["bench", *words]) == 2
    said = capsys.readouterr()
    assert message in said.err
    assert said.err.count("\n") == 1
