"""The run log: tables with one schema, written by the simulator, the live recorder and importers.

Times are int64 nanoseconds since the start of the run; -1 means "did not happen". The schema version is in the
metadata of every file. Metrics (`traces/metrics.py`) are pure functions over these tables.
"""

from __future__ import annotations

import pyarrow as pa

TABLES_VERSION = 2

_dict = pa.dictionary(pa.int16(), pa.string())


def _schema(**fields: pa.DataType) -> pa.Schema:
    return pa.schema(
        [pa.field(name, kind, nullable=False) for name, kind in fields.items()],
        metadata={"foreserve.tables_version": str(TABLES_VERSION)},
    )


REQUEST_STATUS = ("finished", "rejected", "aborted", "incomplete")
CACHE_EVENTS = ("insert", "hit", "evict", "load_back", "write_host", "drop_host", "prefetch")

SCHEMAS: dict[str, pa.Schema] = {
    # One row per LLM stage of the canonical flow that was released to a replica, written when it ends.
    "requests": _schema(
        stage=pa.int32(),  # index into the workload's stages
        workflow=pa.int32(),
        agent=pa.int32(),
        replica=pa.int16(),
        prompt_tokens=pa.int32(),
        output_tokens=pa.int32(),  # generated, not requested
        released_ns=pa.int64(),  # the workflow issued it
        admitted_ns=pa.int64(),  # first scheduled
        first_token_ns=pa.int64(),
        finished_ns=pa.int64(),
        gpu_hit_tokens=pa.int32(),  # prompt tokens found in HBM at first admission
        host_hit_tokens=pa.int32(),  # prompt tokens loaded back from the host tier
        prefilled_tokens=pa.int32(),  # prompt and recomputed tokens that went through prefill
        recomputed_tokens=pa.int32(),  # of those, tokens computed before and lost to preemption
        preemptions=pa.int16(),
        drafted_tokens=pa.int32(),
        accepted_tokens=pa.int32(),
        status=pa.int8(),  # index into REQUEST_STATUS
        reason=_dict,  # why it was rejected or aborted; "" otherwise
    ),
    # One row per engine step; fast-forwarded stretches are expanded to their steps.
    "steps": _schema(
        replica=pa.int16(),
        start_ns=pa.int64(),
        duration_ns=pa.int64(),
        decode_seqs=pa.int32(),  # sequences that decode in this step
        fill_seqs=pa.int32(),  # of those, fills; what they prefill is in prefill_tokens, too
        continuing_seqs=pa.int32(),  # canonical sequences whose previous token came from the step just before
        prefill_seqs=pa.int32(),
        prefill_tokens=pa.int32(),
        context_tokens=pa.int64(),  # KV tokens read by decoding sequences
        waiting=pa.int32(),
        kv_blocks_active=pa.int32(),  # referenced by running sequences
        kv_blocks_cached=pa.int32(),  # resident, evictable or pinned only by structure
        drafted_tokens=pa.int32(),
        accepted_tokens=pa.int32(),
        graph_tokens=pa.int32(),  # executed width of the graph that ran; 0 when eager
    ),
    # One row per decision of a policy that is not implied by the other tables.
    "decisions": _schema(
        time_ns=pa.int64(),
        replica=pa.int16(),
        family=_dict,
        action=_dict,
        workflow=pa.int32(),
        stage=pa.int32(),
        value=pa.int64(),  # meaning depends on (family, action); docs/invariants.md lists them
    ),
    # One row per prefix-cache event.
    "blocks": _schema(
        time_ns=pa.int64(),
        replica=pa.int16(),
        event=pa.int8(),  # index into CACHE_EVENTS
        node=pa.int32(),
        blocks=pa.int32(),
        workflow=pa.int32(),
        stage=pa.int32(),
    ),
    # One row per branch entry that settled (speculation controller).
    "branches": _schema(
        workflow=pa.int32(),
        stage=pa.int32(),
        branch=pa.int32(),
        opened_ns=pa.int64(),  # the deciding stage began
        resolved_ns=pa.int64(),  # -1: never
        gate_open=pa.int8(),  # candidates were drafted
        candidates=pa.int16(),
        covered=pa.int8(),  # 0: no candidate had the outcome, 1: with other arguments only, 2: exactly
        fills=pa.int16(),
        filled=pa.int8(),  # the exact candidate was filled
        promoted=pa.int16(),  # fills of which a stage was promoted
        promoted_stages=pa.int16(),
        setup_ns=pa.int64(),
        saved_ns=pa.int64(),
        wasted_ns=pa.int64(),
        stalled_ns=pa.int64(),
    ),
    # One row per stage that a fill ran (or found done), written when its fate is known.
    "fills": _schema(
        fill=pa.int32(),
        workflow=pa.int32(),
        branch=pa.int32(),
        option=pa.int32(),  # index into the workload's options
        rank=pa.int16(),  # of the candidate, 0 best
        position=pa.int16(),  # of the stage in the path
        stage=pa.int32(),
        replica=pa.int16(),  # -1: no request
        started_ns=pa.int64(),
        admitted_ns=pa.int64(),
        first_token_ns=pa.int64(),
        ended_ns=pa.int64(),
        prompt_tokens=pa.int32(),
        output_tokens=pa.int32(),
        gpu_hit_tokens=pa.int32(),
        host_hit_tokens=pa.int32(),
        prefilled_tokens=pa.int32(),
        recomputed_tokens=pa.int32(),
        preemptions=pa.int16(),
        share_ns=pa.int64(),  # its part of the steps it was in, by tokens
        status=pa.int8(),  # index into REQUEST_STATUS
        fate=_dict,  # promoted, or why it was not
    ),
    "workflows": _schema(
        workflow=pa.int32(),
        arrival_ns=pa.int64(),
        started_ns=pa.int64(),
        finished_ns=pa.int64(),  # -1: incomplete
        stages=pa.int32(),
        requests=pa.int32(),
        rejected=pa.int32(),
        waited_ns=pa.int64(),  # in wait stages (think time), summed
    ),
}
