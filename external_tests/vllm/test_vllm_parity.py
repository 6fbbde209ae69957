"""The same policy object in the simulator and in vLLM: same victims, in order, same hits, unchanged outputs."""

from __future__ import annotations

import os
from itertools import pairwise
from pathlib import Path

import pytest

from calibration import parity
from conftest import BLOCKS, SAME_LOGPROB, Run, about, logprobs, outputs
from live.script import Script, contents_of
from traces.runlog import read_run
from traces.tables import CACHE_EVENTS, REQUEST_STATUS

HIT, INSERT = CACHE_EVENTS.index("hit"), CACHE_EVENTS.index("insert")
EVICTORS = ("lru", "lifecycle", "lookahead")


@pytest.mark.parametrize("evictor", EVICTORS)
def test_victims_and_hits_are_the_simulators(evictor: str, run: Run, script: Script) -> None:
    outcome = parity.compare(script, run(evictor))
    assert outcome.equal, outcome
    assert outcome.victims > 50
    assert outcome.hit_tokens > 0


def test_the_engines_own_queue_is_the_simulators_lru(run: Run, script: Script) -> None:
    outcome = parity.compare(script, run("stock"))
    assert outcome.equal, outcome


def test_the_policies_decide_otherwise_than_each_other(run: Run, script: Script) -> None:
    victims = {parity.live_decisions(script, run(e)).victims for e in EVICTORS}
    assert len(victims) == len(EVICTORS)


@pytest.mark.parametrize("evictor", ["lifecycle"])
def test_nothing_changes_with_the_engine_core_in_a_process_of_its_own(
    evictor: str, run: Run, script: Script
) -> None:
    apart = run(evictor, VLLM_ENABLE_V1_MULTIPROCESSING="1")
    assert parity.compare(script, apart).equal
    assert outputs(apart) == outputs(run(evictor))
    assert about(apart)["process"] != about(run(evictor))["process"] != os.getpid()


@pytest.mark.parametrize("evictor", ["stock", *EVICTORS])
def test_greedy_outputs_are_those_of_the_engine_as_installed(evictor: str, run: Run, script: Script) -> None:
    assert outputs(run(evictor)) == [list(r.output) for r in script.requests]


@pytest.mark.parametrize("evictor", EVICTORS)
def test_log_probabilities_are_those_of_the_engine_as_installed(evictor: str, run: Run) -> None:
    """Finer than tokens: a small model may say the same on wrong KV (see the zeroed blocks)."""
    stock = logprobs(run("stock"))
    assert logprobs(run(evictor)) == pytest.approx(stock, abs=SAME_LOGPROB)


def test_outputs_are_neither_constant_nor_random(script: Script) -> None:
    answers = [r.output for r in script.requests if len(r.output) >= 16]
    assert len(set(answers)) > len(answers) // 2
    assert all(len(set(answer)) > 3 for answer in answers)
    # Random weights repeat a pair of tokens now and then; a model of the text repeats many.
    pairs = [pair for answer in answers for pair in pairwise(answer)]
    assert len(set(pairs)) < len(pairs) * 2 // 3


@pytest.mark.parametrize("evictor", EVICTORS)
def test_the_recorder_writes_the_simulators_tables(evictor: str, run: Run, script: Script) -> None:
    log = read_run(run(evictor))
    finished = REQUEST_STATUS.index("finished")
    assert log.column("requests", "status").tolist() == [finished] * len(script.requests)
    by_stage = dict(zip(log.column("requests", "stage").tolist(), range(len(script.requests)), strict=True))
    for r in script.requests:
        row = {c: int(log.column("requests", c)[by_stage[r.stage]]) for c in (
            "workflow", "agent", "prompt_tokens", "output_tokens", "gpu_hit_tokens", "prefilled_tokens",
            "released_ns", "admitted_ns", "first_token_ns", "finished_ns",
        )}  # fmt: skip
        assert (row["workflow"], row["agent"]) == (r.workflow, script.agents.index(r.agent))
        assert (row["prompt_tokens"], row["output_tokens"]) == (len(r.prompt), len(r.output))
        assert row["gpu_hit_tokens"] + row["prefilled_tokens"] == len(r.prompt)
        times = [row[c] for c in ("released_ns", "admitted_ns", "first_token_ns", "finished_ns")]
        assert times == sorted(times)
    assert len(log.column("workflows", "workflow")) == script.workflows
    assert (log.column("workflows", "finished_ns") > 0).all()


def test_no_active_workflows_block_leaves_while_a_retired_one_could(run: Run, script: Script) -> None:
    """Recomputed from the live log alone: who read what, who had finished, what was a leaf that nobody held."""
    log = read_run(run("lifecycle"))

    def column(table: str, name: str) -> list[int]:
        return [int(v) for v in log.column(table, name)]

    ends = dict(zip(column("workflows", "workflow"), column("workflows", "finished_ns"), strict=True))
    sent = sorted(zip(column("requests", "released_ns"), column("requests", "stage"), strict=True))
    chains = [contents_of([*r.prompt, *r.output], script.block_tokens) for r in script.requests]
    above = {c: chain[i - 1] if i else None for chain in chains for i, c in enumerate(chain)}
    known = [hit // script.block_tokens for hit in parity.live_decisions(script, run("lifecycle")).hit_tokens]
    readers: dict[str, set[int]] = {}  # of resident contents
    of_node: dict[int, str] = {}
    retired_left = 0
    names = ("event", "node", "blocks", "stage", "time_ns")
    for event, node, blocks, stage, time_ns in zip(*(column("blocks", n) for n in names), strict=True):
        if event == HIT:
            for content in chains[stage][:blocks]:
                readers[content].add(script.requests[stage].workflow)
        elif event == INSERT:
            for i in range(blocks):
                content = of_node[node - blocks + 1 + i] = chains[stage][known[stage] + i]
                readers[content] = {script.requests[stage].workflow}
            known[stage] += blocks
        else:
            running = max(s for released, s in sent if released <= time_ns)
            parents = {above[c] for c in readers}
            retired = {c for c, read in readers.items() if all(0 <= ends[w] <= time_ns for w in read)}
            free = {c for c in retired if c not in parents and c not in chains[running]}
            victim = of_node.pop(node)
            assert victim in free or not free
            retired_left += victim in free
            del readers[victim]
    assert retired_left > 20


def test_the_pool_was_under_pressure(run: Run, script: Script) -> None:
    kv = sum(-(-(len(r.prompt) + len(r.output)) // script.block_tokens) for r in script.requests)
    assert about(run("lru"))["kv_blocks"] == BLOCKS
    assert kv > 5 * BLOCKS
    assert Path(run("lru") / "decisions.parquet").is_file()
