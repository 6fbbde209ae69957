"""Law 3: nothing is lost and nothing appears. Checked on the run log of random worlds."""

from functools import cache

import numpy as np
import pytest
from test_speculate import drafting

from sim.worlds import World, random_world
from traces.metrics import generated_tokens, itl_ms
from traces.runlog import RunLog, from_tables
from traces.schema import StageKind
from traces.tables import CACHE_EVENTS, REQUEST_STATUS
from traces.windows import Window

SEEDS = range(40)
FINISHED, REJECTED, INCOMPLETE = (REQUEST_STATUS.index(s) for s in ("finished", "rejected", "incomplete"))


@cache
def world_and_log(seed: int) -> tuple[World, RunLog]:
    world = random_world(seed)
    return world, from_tables(world.run()[1])


def requests(log: RunLog, *columns: str) -> tuple[np.ndarray, ...]:
    return tuple(c.astype(np.int64) for c in log.columns("requests", *columns))


def test_the_worlds_reach_what_the_laws_are_about() -> None:
    logs = [world_and_log(s)[1] for s in SEEDS]
    status = np.concatenate([log.column("requests", "status") for log in logs])
    assert set(np.unique(status)) >= {FINISHED, REJECTED, INCOMPLETE}
    for column in ("preemptions", "gpu_hit_tokens", "host_hit_tokens", "recomputed_tokens"):
        assert sum(int(log.column("requests", column).sum()) for log in logs) > 0, column
    assert any(log.replicas > 1 for log in logs)
    assert any((log.column("requests", "output_tokens") == 0).any() for log in logs)
    assert any(len(log.token_gaps()[0]) for log in logs)


@pytest.mark.parametrize("seed", SEEDS)
def test_every_token_of_a_finished_request_was_prefilled_or_reused(seed: int) -> None:
    """prefilled + reused = requested + recomputed."""
    _, log = world_and_log(seed)
    status, prompt, prefilled, gpu, host, again = requests(
        log,
        "status",
        "prompt_tokens",
        "prefilled_tokens",
        "gpu_hit_tokens",
        "host_hit_tokens",
        "recomputed_tokens",
    )
    done = status == FINISHED
    assert np.array_equal((prefilled + gpu + host)[done], (prompt + again)[done])
    # What has not finished has done no more than that.
    assert ((prefilled + gpu + host)[~done] <= (prompt + again)[~done]).all()
    assert (again >= 0).all()


@pytest.mark.parametrize("seed", SEEDS)
def test_steps_and_requests_count_the_same_prefilled_tokens(seed: int) -> None:
    _, log = world_and_log(seed)
    steps = int(log.column("steps", "prefill_tokens").sum(dtype=np.int64))
    (prefilled,) = requests(log, "prefilled_tokens")
    missing = steps - int(prefilled.sum())
    # A chunk that was running when the run was stopped is in neither.
    assert missing == 0


@pytest.mark.parametrize("seed", SEEDS)
def test_every_request_ends_exactly_once(seed: int) -> None:
    world, log = world_and_log(seed)
    workload = world.workload
    stage, status, output = requests(log, "stage", "status", "output_tokens")
    assert len(np.unique(stage)) == len(stage)
    assert (workload.stage_kind[stage] == StageKind.LLM).all()
    wanted = workload.output_tokens[stage]
    assert np.array_equal(output[status == FINISHED], wanted[status == FINISHED])
    assert (output[status != FINISHED] <= wanted[status != FINISHED]).all()
    assert (output[status == REJECTED] == 0).all()
    workflow, finished, refused, started = log.columns(
        "workflows", "workflow", "finished_ns", "rejected", "started_ns"
    )
    assert len(np.unique(workflow)) == len(workflow)
    assert (finished[refused > 0] == -1).all()
    # A workflow that finished has run every one of its requests.
    done = workflow[finished >= 0]
    llm = workload.stage_kind == StageKind.LLM
    of_done = llm & np.isin(workload.stage_workflow, done)
    assert set(np.flatnonzero(of_done)) == set(
        stage[(status == FINISHED) & np.isin(workload.stage_workflow[stage], done)]
    )
    assert (started >= 0).all()


@pytest.mark.parametrize("seed", SEEDS)
def test_the_times_of_a_request_are_in_order(seed: int) -> None:
    _, log = world_and_log(seed)
    released, admitted, first, finished, status, output = requests(
        log, "released_ns", "admitted_ns", "first_token_ns", "finished_ns", "status", "output_tokens"
    )
    done = status == FINISHED
    assert (released[done] <= admitted[done]).all()
    some = done & (output > 0)
    assert (admitted[some] < first[some]).all()
    assert (first[some] <= finished[some]).all()
    assert ((first >= 0) == (output > 0)).all()
    assert (finished[status == INCOMPLETE] == -1).all()


@pytest.mark.parametrize("seed", SEEDS)
def test_a_stage_is_released_when_its_parents_are_done(seed: int) -> None:
    world, log = world_and_log(seed)
    workload = world.workload
    stage, released, finished, status = requests(log, "stage", "released_ns", "finished_ns", "status")
    end = dict(zip(stage[status == FINISHED].tolist(), finished[status == FINISHED].tolist(), strict=True))
    start = dict(zip(*(c.tolist() for c in log.columns("workflows", "workflow", "started_ns")), strict=True))
    # Tool and wait stages leave no row: their ends follow from their parents'.
    for s in range(workload.n_stages):
        if workload.stage_kind[s] == StageKind.LLM:
            continue
        before = _ready(workload, s, end, start)
        if before is not None:
            end[s] = before + int(workload.stage_duration_ns[s])
    for s, at in zip(stage.tolist(), released.tolist(), strict=True):
        ready = _ready(workload, s, end, start)
        # Each end is rounded down from picoseconds, so a chain of delays may be a nanosecond ahead.
        assert ready is not None
        assert 0 <= at - ready <= 1


def _ready(workload, stage, end, start):  # type: ignore[no-untyped-def]
    parents = workload.parent_idx[workload.parent_ptr[stage] : workload.parent_ptr[stage + 1]].tolist()
    if not parents:
        return start.get(int(workload.stage_workflow[stage]))
    if any(p not in end for p in parents):
        return None
    return max(end[p] for p in parents)


@pytest.mark.parametrize("seed", SEEDS)
def test_gaps_between_tokens_add_up_to_the_time_spent_generating(seed: int) -> None:
    """Little's law of the decode station, exactly: time over the steps equals time over the requests."""
    _, log = world_and_log(seed)
    status, first, finished, output = requests(
        log, "status", "first_token_ns", "finished_ns", "output_tokens"
    )
    gaps = itl_ms(log)
    assert gaps.count is not None
    expected_tokens = int(np.maximum(output - 1, 0).sum())
    assert len(gaps) == expected_tokens
    if (status != INCOMPLETE).all():
        some = output > 0
        total = int((np.rint(gaps.value * 1e6).astype(np.int64) * gaps.count).sum())
        assert total == int((finished - first)[some].sum())


@pytest.mark.parametrize("seed", range(20))
def test_drafts_that_are_accepted_arrive_together(seed: int) -> None:
    """Every token comes alone after a gap, or with the token that verified it: gaps and their sum stay exact."""
    log = from_tables(drafting(seed, rate=0.7)[1].run()[1])
    first, finished, output, accepted = requests(
        log, "first_token_ns", "finished_ns", "output_tokens", "accepted_tokens"
    )
    gaps = itl_ms(log)
    assert gaps.count is not None
    assert len(gaps) + int(accepted.sum()) == int(np.maximum(output - 1, 0).sum())
    total = int((np.rint(gaps.value * 1e6).astype(np.int64) * gaps.count).sum())
    assert total == int((finished - first)[output > 0].sum())
    assert generated_tokens(log, Window("all of it", 0, 1 << 62)) == generated_tokens(log)


@pytest.mark.parametrize("seed", SEEDS)
def test_tokens_emitted_over_time_are_the_tokens_of_the_requests(seed: int) -> None:
    _, log = world_and_log(seed)
    assert generated_tokens(log, Window("all of it", 0, 1 << 62)) == generated_tokens(log)


@pytest.mark.parametrize("seed", SEEDS)
def test_steps_of_a_replica_do_not_overlap_and_its_pool_suffices(seed: int) -> None:
    world, log = world_and_log(seed)
    replica, start, duration, active, cached = log.columns(
        "steps", "replica", "start_ns", "duration_ns", "kv_blocks_active", "kv_blocks_cached"
    )
    assert (duration > 0).all()
    for r in range(log.replicas):
        mine = replica == r
        assert (start[mine][1:] >= (start + duration)[mine][:-1]).all()
    assert (active >= 0).all()
    assert (cached >= 0).all()
    assert (active + cached <= world.kv_blocks).all()


@pytest.mark.parametrize("seed", SEEDS)
def test_no_more_blocks_leave_the_cache_than_entered_it(seed: int) -> None:
    world, log = world_and_log(seed)
    replica, event, blocks = log.columns("blocks", "replica", "event", "blocks")
    insert, evict = (CACHE_EVENTS.index(e) for e in ("insert", "evict"))
    assert (blocks[(event == insert) | (event == evict)] > 0).all()
    for r in range(log.replicas):
        here = replica == r
        delta = np.where(event == insert, blocks, 0) - np.where(event == evict, blocks, 0)
        resident = int(delta[here].astype(np.int64).sum())
        assert resident >= 0
        # A row of eviction is written when a node's last block leaves; whole leaves leave at once.
        if world.config.engine.prefix_cache == "radix":
            assert resident <= world.kv_blocks


@pytest.mark.parametrize("seed", SEEDS)
def test_who_waits_is_who_was_released_and_not_admitted(seed: int) -> None:
    """Little's law of the queue, step by step: `waiting` against the requests' own times."""
    _, log = world_and_log(seed)
    released, admitted, preemptions, status, replica = requests(
        log, "released_ns", "admitted_ns", "preemptions", "status", "replica"
    )
    if preemptions.any():
        return  # a preempted request waits again, which its own times do not tell
    where, start, waiting = log.columns("steps", "replica", "start_ns", "waiting")
    queued = status != REJECTED
    for r in range(log.replicas):
        mine, steps = queued & (replica == r), where == r
        came = np.sort(released[mine])
        went = np.sort(admitted[mine & (admitted >= 0)])
        at = start[steps]
        expected = np.searchsorted(came, at, "right") - np.searchsorted(went, at, "right")
        assert np.array_equal(waiting[steps], expected)
