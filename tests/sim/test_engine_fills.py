"""An engine with fills: requests of their own number, that may be aborted at any time and queue behind the others."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from policies.registry import PolicySet
from policies.views import HostInfo
from sim.check import check_engine
from sim.clock import PRIORITY_ARRIVAL, PS_PER_NS, Clock, call_after
from sim.config import EngineConfig
from sim.engine import Engine
from sim.kv.paths import PrefixPaths
from sim.log import MemorySink, RunLog
from sim.request import Request
from sim.worlds import Dice, World, random_world
from traces.schema import StageKind


@dataclass
class Ran:
    """What became of every request, and the log."""

    engine: Engine
    requests: list[Request]
    ended: dict[int, str] = field(default_factory=dict)
    tables: dict[str, pa.Table] = field(default_factory=dict)


def drive(
    world: World,
    *,
    fast_forward: bool = True,
    abort: bool = True,
    low: bool = False,
) -> Ran:
    """Run every LLM stage once as itself and once as a fill, on one engine; abort half of the fills at random."""
    dice = Dice(world.config.seed, "fills")
    env = Clock(initial_time=0)
    sink = MemorySink()
    engines: list[Engine] = []
    log = RunLog(sink, world.config.engine.block_tokens, lambda: min(e.settled_ns for e in engines))
    config: EngineConfig = replace(world.config.engine, fast_forward=fast_forward)
    host = HostInfo(world.profile, config.block_tokens, world.kv_blocks * config.block_tokens)
    policies = PolicySet()
    ran: Ran

    def fill_ended(request: Request, finished_ps: int, status: str) -> None:
        assert request.number not in ran.ended
        ran.ended[request.number] = status
        engine.log.add(
            "decisions", (env.now // PS_PER_NS, 0, "fill", status, 0, request.number, request.share_ps)
        )

    def done(request: Request, finished: bool) -> None:
        if not request.fill:
            ran.ended[request.number] = "finished" if finished else "rejected"
        elif (
            abort and request.number % 3 == 0
        ):  # one fill's end takes another with it, in the middle of a step's end
            other = next(
                (r for r in ran.requests if r.fill and not r.ended and r.released_ps <= env.now), None
            )
            if other is not None:
                engine.abort(other)

    engine = Engine(
        env, 0, config, world.profile, host, policies.evictor, policies.bucketer,
        PrefixPaths(world.workload, config.block_tokens), world.kv_blocks, None, log, done, lone=True,
        fill_ended=fill_ended, check=check_engine,
    )  # fmt: skip
    engines.append(engine)
    ran = Ran(engine, [])
    w = world.workload
    calls = np.flatnonzero(w.stage_kind == StageKind.LLM).tolist()
    for number, (stage, early) in enumerate((s, f) for s in calls for f in (False, True)):
        at = dice.below(400) * 1_000_000_000
        request = Request(
            stage, int(w.stage_workflow[stage]), 0, int(w.prompt_tokens[stage]), int(w.output_tokens[stage]), at, 0,
            number=w.n_stages + number if early else stage, fill=early, low=low and early,
        )  # fmt: skip
        ran.requests.append(request)
        call_after(env, at, PRIORITY_ARRIVAL, lambda _, r=request: engine.submit(r))
        if early and abort and dice.below(2):
            late = at + dice.below(200) * 777_000_001
            call_after(env, late, PRIORITY_ARRIVAL, lambda _, r=request: engine.abort(r))
    env.run()
    log.close()
    ran.tables = sink.tables()
    return ran


@pytest.mark.parametrize("seed", range(40))
def test_aborted_fills_leave_nothing_behind(seed: int) -> None:
    world = random_world(seed)
    ran = drive(world, low=bool(seed % 2))
    assert len(ran.ended) == len(ran.requests)
    engine = ran.engine
    check_engine(engine)
    assert engine.memory.private_blocks == 0
    assert engine.tree.protected_blocks == 0
    assert (engine.running, engine.waiting, engine.fill_seqs) == (0, 0, 0)
    assert engine.queued_tokens == 0
    prefilled = sum(r.prefilled_tokens for r in ran.requests)
    steps = ran.tables["steps"].to_pydict()
    assert sum(steps["prefill_tokens"]) == prefilled


@pytest.mark.parametrize("seed", range(30))
def test_fast_forward_writes_the_log_of_single_steps_with_fills(seed: int) -> None:
    world = random_world(seed)
    fast, single = drive(world), drive(world, fast_forward=False)
    for name, table in fast.tables.items():
        assert table.equals(single.tables[name]), name
    assert fast.ended == single.ended


@pytest.mark.parametrize("seed", range(10))
def test_shares_of_all_sequences_add_up_to_the_time_in_steps(seed: int) -> None:
    ran = drive(random_world(seed))
    total = sum(r.share_ps for r in ran.requests)
    rounded = 64 * ran.engine.stretches * max(r.output_tokens + 1 for r in ran.requests)
    assert 0 <= ran.engine.busy_ps - total <= rounded
    assert ran.engine.busy_ps > 100 * rounded or ran.engine.steps < 50


def test_a_low_fill_waits_for_every_canonical_request_and_gives_its_memory_back_first() -> None:
    canonical_later = low_later = 0
    for seed in range(25):
        world = random_world(seed)
        low, equal = drive(world, abort=False, low=True), drive(world, abort=False)
        wait = {
            name: sum(
                r.admitted_ps - r.released_ps for r in ran.requests if not r.fill and r.admitted_ps >= 0
            )
            for name, ran in (("low", low), ("equal", equal))
        }
        low_later += wait["low"] < wait["equal"]
        canonical_later += wait["low"] > wait["equal"]
        assert sum(r.preemptions for r in low.requests if not r.fill) <= sum(
            r.preemptions for r in equal.requests
        )
    assert low_later > 3 * canonical_later
    assert low_later >= 5


def test_a_request_that_never_ran_may_be_aborted_in_the_queue() -> None:
    world = random_world(3)
    ran = drive(world)
    assert "aborted" in ran.ended.values()
    waited: Any = [r for r in ran.requests if ran.ended[r.number] == "aborted" and r.admitted_ps < 0]
    assert all(r.prefilled_tokens == 0 and r.generated == 0 for r in waited)
