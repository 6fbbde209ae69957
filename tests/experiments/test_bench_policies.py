"""What `bench policies` times is what it says, and its words are checked."""

from __future__ import annotations

import json

import pytest

from experiments import bench_drafters, bench_policies
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
    assert main(["bench", "policies", "part=cache", "workflows=3", "predictor=uniform", "--json"]) == 0
    body = json.loads(capsys.readouterr().out)
    assert len(body["cost_us"]) == 13
    for by_load in body["cost_us"].values():
        assert set(by_load) == {"3", "30"}
        assert all(c["mean"] > 0 and c["p99"] > 0 for c in by_load.values())
    assert main(["bench", "policies", "part=cache", "workflows=3", "predictor=uniform"]) == 0
    assert "30 workflows" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["policies", "predictor=oracle"], "it has no cost to measure"),
        (["policies", "workflow=3"], "unknown option of bench policies 'workflow'; did you mean 'workflows'"),
        (["policies", "part=drafter"], "unknown part 'drafter'; did you mean 'drafters'"),
        (["policies", "history_tokens=9"], "history_tokens=9: expected at least"),
        (["policies", "workflows=0"], "workflows=0: expected at least 1"),
        (["policies", "--workload", "hover"], "leave out --workload"),
        (["speculation", "requests=10"], "requests=10: expected a multiple of 4"),
        (["speculation", "tokens=10"], "unknown option of bench speculation 'tokens'"),
        (["speculation", "--workload", "hover"], "leave out --workload"),
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


def test_every_form_of_the_structured_drafter_drafts_the_same(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(bench_drafters, "STEPS", 12)
    words = ["bench", "policies", "part=drafters", "batch=12", "history_tokens=4000"]
    assert main([*words, "--json"]) == 0
    drafters = json.loads(capsys.readouterr().out)["drafters"]
    forms = [c for name, c in drafters.items() if name.startswith("structured")]
    assert len(forms) >= 2
    assert len({(c["drafted"], c["accepted"]) for c in forms}) == 1
    assert forms[0]["accepted"] > 0
    assert all(c["step_ms"] > 0 and c["append_us"] > 0 for c in drafters.values())
    flat = drafters["structured, flat arrays, plain Python"]["mb_per_million_tokens"]
    assert 0 < flat < drafters["structured, dictionaries"]["mb_per_million_tokens"] / 3
    assert main(words) == 0
    assert "structured, dictionaries" in capsys.readouterr().out


def test_the_automaton_of_dictionaries_proposes_what_the_flat_one_does():
    made = bench_drafters.contenders()
    flat, other = made["structured, flat arrays, plain Python"](), made["structured, dictionaries"]()
    for timed in (flat, other):
        for query in range(2):
            timed.history(query, bench_drafters.text(query, 300))
            timed.begin(query)
    follow = bench_drafters.text(7, 200, bench_drafters.text(0, 300))
    requests = [1, 3]
    drafted = 0
    for at in range(0, 200, 2):
        for timed in (flat, other):
            timed.commit(requests, [follow[at : at + 2]] * 2)
        for a, b in zip(flat.propose(requests), other.propose(requests), strict=True):
            assert a.tokens.tolist() == b.tokens.tolist()
            assert a.confidence.tolist() == b.confidence.tolist()
            assert (a.matches, a.agreeing, a.consensus_tokens) == (b.matches, b.agreeing, b.consensus_tokens)
            drafted += len(a.tokens)
    assert drafted > 100


def test_runs_that_draft_are_timed_on_the_same_requests(capsys: pytest.CaptureFixture[str]):
    words = ["bench", "speculation", "requests=24", "output_tokens=60", "concurrency=6"]
    assert main([*words, "--json"]) == 0
    body = json.loads(capsys.readouterr().out)
    plain, *drafting = body["methods"].values()
    assert len(drafting) == 4
    assert plain["drafting_steps"] == 0
    for m in drafting:
        assert 0 < m["drafting_steps"] <= m["steps"] <= plain["steps"]
        assert m["requests_per_cpu_s"] == pytest.approx(24 / m["cpu_s"], rel=0.01)
        assert m["tokens_per_cpu_s"] == pytest.approx(60 * m["requests_per_cpu_s"], rel=0.01)
    assert min(m["steps"] for m in drafting) < plain["steps"]
    assert main(words) == 0
    said = capsys.readouterr().out
    assert "24 requests of 60 output tokens, 6 at a time" in said
    assert "structured, redundancy" in said
