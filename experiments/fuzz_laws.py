"""What must hold of the run log of any world: the books that the fuzzer checks. Every law raises AssertionError."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from sim.run import RunStats
from sim.worlds import World
from traces.schema import StageKind
from traces.tables import CACHE_EVENTS, REQUEST_STATUS

Tables = dict[str, pa.Table]
_FINISHED, _REJECTED = REQUEST_STATUS.index("finished"), REQUEST_STATUS.index("rejected")
_ENTER = [CACHE_EVENTS.index(event) for event in ("insert", "prefetch")]
_EVICT = CACHE_EVENTS.index("evict")


def check_log(world: World, stats: RunStats, tables: Tables) -> None:
    """Check all laws of one run."""
    check_requests(world, tables)
    check_steps(world, stats, tables)
    check_cache(world, tables)
    check_workflows(world, stats, tables)
    check_pause(world, tables)
    check_branches(world, stats, tables)


def check_requests(world: World, tables: Tables) -> None:
    """Every request ends once, with the output it wanted, and its prompt tokens add up."""
    r = _columns(tables["requests"])
    workload = world.workload
    stage, status = r["stage"], r["status"]
    assert len(np.unique(stage)) == len(stage), "a request ended twice"
    assert (workload.stage_kind[stage] == StageKind.LLM).all(), "a stage that is no LLM call became a request"
    done = status == _FINISHED
    wanted = workload.output_tokens[stage]
    assert (r["output_tokens"][done] == wanted[done]).all(), "a finished request lacks output"
    assert (r["output_tokens"] <= wanted).all(), "a request has more output than it wanted"
    got = r["prefilled_tokens"] + r["gpu_hit_tokens"] + r["host_hit_tokens"]
    needed = r["prompt_tokens"] + r["recomputed_tokens"]
    assert (got[done] == needed[done]).all(), "prefilled + hit is not prompt + recomputed"
    assert (got <= needed).all(), "an open request has more tokens than it needs"
    hit = r["gpu_hit_tokens"] + r["host_hit_tokens"]
    assert (hit < r["prompt_tokens"]).all(), "the last prompt token was not computed"
    assert (r["recomputed_tokens"] >= 0).all(), "fewer than no tokens recomputed"
    assert not r["recomputed_tokens"][r["preemptions"] == 0].any(), "recomputed without preemption"
    assert (r["accepted_tokens"] <= r["drafted_tokens"]).all(), "more accepted than drafted"
    assert (r["accepted_tokens"] <= r["output_tokens"]).all(), "more accepted than put out"
    assert not r["output_tokens"][status == _REJECTED].any(), "a rejected request has output"
    for earlier, later in (
        ("released_ns", "admitted_ns"), ("admitted_ns", "first_token_ns"), ("first_token_ns", "finished_ns"),
        ("admitted_ns", "finished_ns"),
    ):  # fmt: skip
        both = done & (r[later] >= 0) & (r[earlier] >= 0)
        assert (r[earlier][both] <= r[later][both]).all(), f"{later} before {earlier}"
    assert ((r["first_token_ns"] >= 0)[done] == (r["output_tokens"] > 0)[done]).all(), (
        "a first token of nothing"
    )


def check_steps(world: World, stats: RunStats, tables: Tables) -> None:
    """Steps of a replica never overlap, keep the limits, and count what the requests count."""
    s, r, f = _columns(tables["steps"]), _columns(tables["requests"]), _columns(tables["fills"])
    engine = world.config.engine
    assert len(s["replica"]) == stats.steps, "step rows and statistics differ"
    for replica in range(world.config.replicas):
        mine = s["replica"] == replica
        start, end = s["start_ns"][mine], (s["start_ns"] + s["duration_ns"])[mine]
        assert (start[1:] >= end[:-1]).all(), f"steps of replica {replica} overlap"
    assert (s["duration_ns"] >= 0).all(), "a step of negative duration"
    used = s["kv_blocks_active"] + s["kv_blocks_cached"]
    assert (used <= world.kv_blocks).all(), f"{used.max(initial=0)} KV blocks of {world.kv_blocks}"
    assert min(s["kv_blocks_active"].min(initial=0), s["kv_blocks_cached"].min(initial=0)) >= 0, "negative KV"
    assert (s["decode_seqs"] + s["prefill_seqs"] <= engine.max_num_seqs).all(), "too many sequences in a step"
    tokens = s["decode_seqs"] + s["drafted_tokens"] + s["prefill_tokens"]
    assert (tokens <= engine.max_num_batched_tokens).all(), "too many tokens in a step"
    assert (tokens > 0).all(), "a step without tokens"
    assert (s["continuing_seqs"] <= s["decode_seqs"]).all(), "more continue than decode"
    assert (s["accepted_tokens"] <= s["drafted_tokens"]).all(), "a step accepted more than it drafted"
    for column in ("drafted_tokens", "accepted_tokens"):
        assert s[column].sum() == r[column].sum(), f"steps and requests differ in {column}"
    assert s["prefill_tokens"].sum() == sum(t["prefilled_tokens"].sum() for t in (r, f)), (
        "steps and requests differ in prefill"
    )
    assert (s["fill_seqs"] <= s["decode_seqs"]).all(), "more fills decode than sequences"
    # A last prefill chunk emits a token; after a preemption there may be several.
    generated = sum(t["output_tokens"].sum() for t in (r, f))
    decoded = s["decode_seqs"].sum() + s["accepted_tokens"].sum()
    firsts = sum((t["output_tokens"] > 0).sum() for t in (r, f))
    preemptions = sum(t["preemptions"].sum() for t in (r, f))
    assert firsts <= generated - decoded <= firsts + preemptions, "steps and requests differ in output"


def check_cache(world: World, tables: Tables) -> None:
    """Nothing leaves the cache that had not entered it."""
    b = _columns(tables["blocks"])
    assert (b["blocks"][np.isin(b["event"], _ENTER) | (b["event"] == _EVICT)] > 0).all(), (
        "an event of no blocks"
    )
    for replica in range(world.config.replicas):
        mine = b["replica"] == replica
        time, event, blocks = b["time_ns"][mine], b["event"][mine], b["blocks"][mine]
        assert (time[1:] >= time[:-1]).all(), "cache events out of order"
        resident = (
            np.where(np.isin(event, _ENTER), blocks, 0).sum() - np.where(event == _EVICT, blocks, 0).sum()
        )
        assert resident >= 0, "more blocks left the cache than entered it"
        if world.config.engine.prefix_cache == "radix":  # whole leaves leave at once, so the rows are exact
            assert resident <= world.kv_blocks, "more blocks are cached than there are"
        if world.config.engine.prefix_cache == "none":
            assert not len(time), "events of a cache that is off"


def check_workflows(world: World, stats: RunStats, tables: Tables) -> None:
    """Rows of workflows are complete, and those that finished ran every stage."""
    w, r = _columns(tables["workflows"]), _columns(tables["requests"])
    workload = world.workload
    assert len(np.unique(w["workflow"])) == len(w["workflow"]), "a workflow has two rows"
    if world.config.load.horizon_s is None:
        assert len(w["workflow"]) == workload.n_workflows, "a workflow has no row"
    assert np.isin(r["workflow"], w["workflow"]).all(), "a request of a workflow that has no row"
    completed = w["finished_ns"] >= 0
    assert completed.sum() == stats.completed, "workflow rows and statistics differ"
    assert stats.completed + stats.incomplete == workload.n_workflows, "workflows were lost"
    canonical = workload.canonical()
    llm = (workload.stage_kind == StageKind.LLM) & canonical
    finished = np.bincount(r["workflow"][r["status"] == _FINISHED], minlength=workload.n_workflows)
    spliced = _spliced(tables)
    assert len(np.unique(spliced)) == len(spliced), "a stage was given a result twice"
    of_calls = workload.stage_workflow[spliced[llm[spliced]]]
    finished += np.bincount(of_calls, minlength=workload.n_workflows)
    wanted = np.bincount(workload.stage_workflow[llm], minlength=workload.n_workflows)
    done = w["workflow"][completed]
    assert (finished[done] == wanted[done]).all(), "a workflow is complete without all its requests"
    stages = np.bincount(workload.stage_workflow[canonical], minlength=workload.n_workflows)
    assert (w["stages"][completed] == stages[done]).all(), "a workflow is complete without all its stages"
    rejected = np.bincount(r["workflow"][r["status"] == _REJECTED], minlength=workload.n_workflows)
    assert (w["rejected"] == rejected[w["workflow"]]).all(), "workflow rows miscount rejected requests"
    assert not completed[w["rejected"] > 0].any(), "a workflow is complete with a rejected request"
    # A stage starts when its parents are done.
    end = np.full(workload.n_stages, -1, dtype=np.int64)
    end[r["stage"][r["status"] == _FINISHED]] = r["finished_ns"][r["status"] == _FINISHED]
    for stage, released in zip(r["stage"].tolist(), r["released_ns"].tolist(), strict=True):
        for parent in workload.parent_idx[workload.parent_ptr[stage] : workload.parent_ptr[stage + 1]]:
            if llm[parent] and not spliced.size:
                assert 0 <= end[parent] <= released, f"stage {stage} was released before its parent ended"


def check_pause(world: World, tables: Tables) -> None:
    """A paused replica begins no step."""
    fault = world.config.fault
    s = _columns(tables["steps"])
    begin, length = round(fault.pause_at_s * 1e9), round(fault.pause_for_s * 1e9)
    inside = (s["replica"] == fault.replica) & (s["start_ns"] > begin) & (s["start_ns"] < begin + length)
    assert not inside.any(), "a paused replica began a step"


def check_branches(world: World, stats: RunStats, tables: Tables) -> None:
    """No result is spliced that would not have been computed; every stage of a fill has one row, and a fate."""
    assert stats.unsafe == 0, f"{stats.unsafe} unsafe splices"
    assert len(_spliced(tables)) == stats.spliced, "decisions and statistics differ in splices"
    f, b = _columns(tables["fills"]), _columns(tables["branches"])
    assert len(np.unique(f["fill"] << 16 | f["position"])) == len(f["fill"]), "a stage of a fill has two rows"
    assert len(np.unique(f["fill"])) == stats.filled, "a fill has no row"
    assert ((f["ended_ns"] >= f["started_ns"]) | (f["ended_ns"] < 0)).all(), "a fill ended before it began"
    assert (b["resolved_ns"] >= b["opened_ns"])[b["resolved_ns"] >= 0].all(), (
        "a branch resolved before it opened"
    )
    assert (b["promoted"] <= b["fills"]).all(), "more fills promoted than launched"
    assert not b["fills"][b["gate_open"] == 0].any(), "fills behind a closed gate"
    ran = np.unique(tables["requests"]["stage"].to_numpy())
    assert world.workload.canonical()[ran].all(), "a stage that was not taken ran in canonical flow"


def _spliced(tables: Tables) -> NDArray[np.int64]:
    """Return the stages that were given a result that they did not compute."""
    rows = tables["decisions"].to_pylist()
    kinds = {("reuse", "served"), ("speculation", "promoted")}
    return np.array([d["stage"] for d in rows if (d["family"], d["action"]) in kinds], dtype=np.int64)


def _columns(table: pa.Table) -> dict[str, NDArray[Any]]:
    """Return the numeric columns, widened so that sums do not overflow."""
    return {
        field.name: table[field.name].to_numpy().astype(np.int64)
        for field in table.schema
        if pa.types.is_integer(field.type)
    }
