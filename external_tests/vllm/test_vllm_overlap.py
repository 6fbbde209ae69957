"""Requests that overlap: every step, victim and hit as the simulator has it, preemptions included."""

from __future__ import annotations

import pytest

from calibration import parity
from calibration.parity_live import live_decisions, load_of
from conftest import Run, about, outputs
from live.script import Script
from traces.runlog import read_run

RUNS = {  # evictor, blocks of the pool, workflows at once
    "tight": ("lru", 31, 6),
    "retiring": ("lifecycle", 40, 5),
    "forecasting": ("lookahead", 34, 6),
}


@pytest.fixture(params=RUNS)
def overlapped(request: pytest.FixtureRequest, run: Run) -> tuple[str, object]:
    evictor, blocks, at_once = RUNS[request.param]
    return request.param, run(evictor, "--at-once", at_once, blocks=blocks)


def test_steps_victims_and_hits_are_the_simulators_where_requests_overlap(
    overlapped: tuple[str, object], script: Script
) -> None:
    name, directory = overlapped
    outcome = parity.compare(script, directory)  # type: ignore[arg-type]
    assert outcome.equal, outcome
    assert outcome.victims > 100
    assert outcome.steps > 300
    decided = live_decisions(script, directory)  # type: ignore[arg-type]
    assert max(row[0] for row in decided.steps) == RUNS[name][2], (
        "as many sequences decode at once as are open"
    )
    assert any(decodes and prefills for decodes, prefills, *_ in decided.steps), "steps that do both"


def test_overlapping_changes_no_output(overlapped: tuple[str, object], script: Script) -> None:
    _, directory = overlapped
    assert outputs(directory) == [list(r.output) for r in script.requests]  # type: ignore[arg-type]
    assert not about(directory)["host_failed"]  # type: ignore[arg-type]


def test_a_pool_that_is_too_small_preempts_and_decides_as_the_simulator(run: Run, script: Script) -> None:
    log = read_run(run("lru", "--at-once", 6, blocks=31))
    assert log.column("requests", "preemptions").sum() > 0
    assert log.column("requests", "recomputed_tokens").sum() > 0


def test_steps_account_for_every_token(run: Run, script: Script) -> None:
    for directory in (run("lru"), run("lru", "--at-once", 6, blocks=31)):
        log = read_run(directory)
        computed = log.column("requests", "prefilled_tokens").sum()
        assert log.column("steps", "prefill_tokens").sum() == computed
        first = len(script.requests)  # each prefill emits a token, a resumed one again
        resumed = log.column("requests", "preemptions").sum()
        tokens = log.column("steps", "decode_seqs").sum() + first + resumed
        assert tokens == log.column("requests", "output_tokens").sum()
        start, duration = log.columns("steps", "start_ns", "duration_ns")
        assert (duration > 0).all()
        assert (start[1:] >= (start + duration)[:-1]).all(), (
            "without asynchronous scheduling steps do not overlap"
        )


def test_the_load_is_read_back(run: Run) -> None:
    load = load_of(run("lru", "--at-once", 6, blocks=31))
    assert load.max_num_seqs == 6
    assert load.sent.count(0) > 0
    assert not load_of(run("lru")).sent
