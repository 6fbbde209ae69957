"""Metrics: pure functions over the run log. What each number means is in `traces/definitions.py`.

Every function takes a log and a window ("full", "steady" or a `Window`). Requests belong to the window they
were released in, whatever became of them later, so that slow requests are not lost at its end; workflows to
the one they arrived in; steps and tokens to the one they ended in.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from traces.branch_metrics import branch_metrics
from traces.definitions import DEFINITIONS, UNITS, Slo
from traces.quantiles import Sample
from traces.runlog import RunLog
from traces.saturation import unissued, warnings
from traces.series import SERIES, Series, series
from traces.tables import REQUEST_STATUS
from traces.windows import Window, window_of

Float = NDArray[np.float64]
Span = str | Window
FINISHED, REJECTED, ABORTED, INCOMPLETE = (REQUEST_STATUS.index(s) for s in REQUEST_STATUS)


def ttft_ms(log: RunLog, window: Span = "full") -> Float:
    """Return time to first token, ms, of every request that generated a token: first token - release."""
    released, first = log.columns("requests", "released_ns", "first_token_ns")
    keep = window_of(log, window).holds(released) & (first >= 0)
    return _ms(first[keep] - released[keep])


def tpot_ms(log: RunLog, window: Span = "full") -> Float:
    """Return time per output token, ms, of finished requests of n >= 2 tokens: (last - first) / (n - 1)."""
    released, first, finished, tokens, status = log.columns(
        "requests", "released_ns", "first_token_ns", "finished_ns", "output_tokens", "status"
    )
    keep = window_of(log, window).holds(released) & (status == FINISHED) & (tokens >= 2)
    return np.asarray(_ms(finished[keep] - first[keep]) / (tokens[keep] - 1))


def e2e_ms(log: RunLog, window: Span = "full") -> Float:
    """Return end-to-end latency, ms, of finished requests: finish - release."""
    released, finished, status = log.columns("requests", "released_ns", "finished_ns", "status")
    keep = window_of(log, window).holds(released) & (status == FINISHED)
    return _ms(finished[keep] - released[keep])


def queue_ms(log: RunLog, window: Span = "full") -> Float:
    """Return queueing time, ms, of admitted requests: first scheduled - release."""
    released, admitted = log.columns("requests", "released_ns", "admitted_ns")
    keep = window_of(log, window).holds(released) & (admitted >= 0)
    return _ms(admitted[keep] - released[keep])


def workflow_latency_s(log: RunLog, window: Span = "full") -> Float:
    """Return latency, s, of finished workflows: finish - arrival."""
    arrival, finished = log.columns("workflows", "arrival_ns", "finished_ns")
    keep = window_of(log, window).holds(arrival) & (finished >= 0)
    return np.asarray((finished[keep] - arrival[keep]) / 1e9)


def workflow_work_s(log: RunLog, window: Span = "full") -> Float:
    """Return latency less the time in wait stages, s, of finished workflows."""
    arrival, finished, waited = log.columns("workflows", "arrival_ns", "finished_ns", "waited_ns")
    keep = window_of(log, window).holds(arrival) & (finished >= 0)
    return np.asarray((finished[keep] - arrival[keep] - waited[keep]) / 1e9)


def finished_workflows(log: RunLog) -> NDArray[np.int64]:
    """Return the ids of the workflows that finished, ascending."""
    workflow, finished = log.columns("workflows", "workflow", "finished_ns")
    return np.unique(workflow[finished >= 0].astype(np.int64))


def itl_ms(log: RunLog, window: Span = "full") -> Sample:
    """Return the gaps between successive arrivals of tokens of a request, ms, with counts.

    A sequence that decoded in the step just before waits from that step's end to this one's: one gap for each
    of the step's `continuing_seqs`. Gaps that span waiting or a preemption are rows of `decisions`. Tokens
    that one verification step commits together arrive together and make one gap.
    """
    span = window_of(log, window)
    replica, end, continuing = _steps_in_order(log, "continuing_seqs")
    keep = np.zeros(len(end), dtype=bool)
    keep[1:] = (replica[1:] == replica[:-1]) & (continuing[1:] > 0) & span.holds(end[1:])
    at = np.flatnonzero(keep)
    time, gap = log.token_gaps()
    inside = span.holds(time)
    return Sample(
        _ms(np.concatenate([end[at] - end[at - 1], gap[inside]])),
        np.concatenate([continuing[at].astype(np.int64), np.ones(np.count_nonzero(inside), dtype=np.int64)]),
    )


def generated_tokens(log: RunLog, window: Span = "full") -> int:
    """Return the output tokens emitted in the window.

    Over the full run: the sum of the requests' output tokens. In a part of it, token by token: first tokens,
    tokens of continuing sequences and accepted drafts by the end of their step, and tokens after a gap.
    """
    span = window_of(log, window)
    if span.name == "full":
        return int(log.column("requests", "output_tokens").sum())
    first = span.holds(log.column("requests", "first_token_ns"))
    start, duration, continuing, accepted = log.columns(
        "steps", "start_ns", "duration_ns", "continuing_seqs", "accepted_tokens"
    )
    inside = span.holds(start + duration)
    after_gap = span.holds(log.token_gaps()[0])
    return int(first.sum() + continuing[inside].sum() + accepted[inside].sum() + after_gap.sum())


def meets_slo(log: RunLog, slo: Slo, window: Span = "full") -> NDArray[np.bool_]:
    """Return, for each request released in the window, whether it finished and met both limits.

    A request of one token has no TPOT and a request of none no TTFT: the first is judged by TTFT alone, the
    second by its latency in TTFT's place.
    """
    released, first, finished, tokens, status = log.columns(
        "requests", "released_ns", "first_token_ns", "finished_ns", "output_tokens", "status"
    )
    ttft = np.where(first >= 0, first, finished) - released
    rest = np.where(tokens >= 2, finished - first, 0)
    ok = (
        (status == FINISHED)
        & (ttft <= slo.ttft_ms * 1e6)
        & (rest <= slo.tpot_ms * 1e6 * np.maximum(tokens - 1, 1))
    )
    return np.asarray(ok[window_of(log, window).holds(released)])


def run_metrics(log: RunLog, window: Span = "full", slo: Slo | None = None) -> dict[str, float]:
    """Return every metric of `DEFINITIONS`; nan where it is not defined (no such requests, no time)."""
    span = window_of(log, window)
    out: dict[str, float] = {
        "window_start_s": span.start_ns / 1e9,
        "window_s": span.seconds,
        "window_reliable": float(span.reliable),
    }
    for name, values in (
        ("ttft_ms", Sample(ttft_ms(log, span))),
        ("tpot_ms", Sample(tpot_ms(log, span))),
        ("itl_ms", itl_ms(log, span)),
        ("e2e_ms", Sample(e2e_ms(log, span))),
        ("queue_ms", Sample(queue_ms(log, span))),
        ("workflow_latency_s", Sample(workflow_latency_s(log, span))),
        ("workflow_work_s", Sample(workflow_work_s(log, span))),
    ):
        out[f"{name}_mean"] = values.mean()
        out[f"{name}_p50"], out[f"{name}_p90"], out[f"{name}_p99"] = values.percentiles(50, 90, 99)
    out |= _request_metrics(log, span, slo or Slo())
    out |= _workflow_metrics(log, span)
    out |= _step_metrics(log, span)
    out |= branch_metrics(log, span, out["workflows"])
    return {name: out[name] for name in DEFINITIONS}


def _request_metrics(log: RunLog, span: Window, slo: Slo) -> dict[str, float]:
    released, admitted, finished, status = log.columns(
        "requests", "released_ns", "admitted_ns", "finished_ns", "status"
    )
    here = span.holds(released)
    counts = np.bincount(status[here], minlength=len(REQUEST_STATUS))
    at = np.flatnonzero(here & (admitted >= 0))
    sums = {
        c: float(log.column("requests", c)[at].sum(dtype=np.int64))
        for c in (
            "prompt_tokens", "gpu_hit_tokens", "host_hit_tokens", "prefilled_tokens", "recomputed_tokens",
            "preemptions", "drafted_tokens", "accepted_tokens",
        )
    }  # fmt: skip
    prompt = sums["prompt_tokens"]
    drafted, accepted = (log.column("requests", c)[at] for c in ("drafted_tokens", "accepted_tokens"))
    some = drafted > 0
    met = float(meets_slo(log, slo, span).sum())
    done = float(np.count_nonzero((status == FINISHED) & span.holds(finished)))
    return {
        "requests": float(here.sum()),
        "completed": float(counts[FINISHED]),
        "rejected": float(counts[REJECTED]),
        "aborted": float(counts[ABORTED]),
        "incomplete": float(counts[INCOMPLETE]),
        "gpu_hit_rate": _ratio(sums["gpu_hit_tokens"], prompt),
        "host_hit_rate": _ratio(sums["host_hit_tokens"], prompt),
        "compute_saved": _ratio(sums["gpu_hit_tokens"] + sums["host_hit_tokens"], prompt),
        "prefilled_tokens": sums["prefilled_tokens"],
        "recomputed_tokens": sums["recomputed_tokens"],
        "preemptions": sums["preemptions"],
        "acceptance_rate": _ratio(sums["accepted_tokens"], sums["drafted_tokens"]),
        "rejection_rate_mean": float(np.mean(1 - accepted[some] / drafted[some])) if some.any() else math.nan,
        "requests_per_s": _ratio(done, span.seconds),
        "generated_tokens_per_s": _ratio(generated_tokens(log, span), span.seconds),
        "slo_goodput": _ratio(met, span.seconds),
        "slo_attainment": _ratio(met, float(here.sum())),
    }


def _workflow_metrics(log: RunLog, span: Window) -> dict[str, float]:
    arrival, finished = log.columns("workflows", "arrival_ns", "finished_ns")
    here = span.holds(arrival)
    return {
        "workflows": float(here.sum()),
        "workflows_completed": float(np.count_nonzero(here & (finished >= 0))),
        "workflows_unfinished": float(np.count_nonzero(here & (finished < 0))),
        "requests_never_issued": float(unissued(log)[here].sum()),
        "workflows_per_s": _ratio(float(np.count_nonzero(span.holds(finished))), span.seconds),
    }


def _step_metrics(log: RunLog, span: Window) -> dict[str, float]:
    start, duration, decode, prefill, waiting, active, cached, drafted = log.columns(
        "steps", "start_ns", "duration_ns", "decode_seqs", "prefill_seqs", "waiting", "kv_blocks_active",
        "kv_blocks_cached", "drafted_tokens",
    )  # fmt: skip
    end = start + duration
    inside = span.holds(end)
    busy = np.maximum(np.minimum(end, span.end_ns) - np.maximum(start, span.start_ns), 0).astype(np.float64)
    time = float(busy.sum())
    blocks = log.kv_blocks
    capacity = float(blocks) if blocks else math.nan
    here = active[inside]
    decoding = float(np.count_nonzero(inside & (decode > 0)))
    return {
        "steps": float(inside.sum()),
        "utilisation": _ratio(time, span.seconds * 1e9 * log.replicas),
        "mean_batch": _ratio(float(busy @ (decode + prefill)), time),
        "mean_waiting": _ratio(float(busy @ waiting), time),
        "kv_blocks_active_mean": _ratio(float(busy @ active), time),
        "kv_blocks_active_max": float(here.max()) if len(here) else math.nan,
        "kv_active_share": _ratio(float(busy @ active), time * capacity),
        "kv_resident_share": _ratio(float(busy @ (active + cached)), time * capacity),
        "drafted_tokens_mean": _ratio(float(drafted[inside].sum()), decoding),
        "drafting_steps_share": _ratio(float(np.count_nonzero(inside & (drafted > 0))), decoding),
    }


def _steps_in_order(log: RunLog, column: str) -> tuple[NDArray[Any], NDArray[Any], NDArray[Any]]:
    """Return replica, end_ns and `column` of the steps, replica by replica, each in order of time."""
    replica, start, duration, values = log.columns("steps", "replica", "start_ns", "duration_ns", column)
    end = start + duration
    later = (replica[1:] > replica[:-1]) | ((replica[1:] == replica[:-1]) & (start[1:] >= start[:-1]))
    if later.all():
        return replica, end, values
    order = np.lexsort((start, replica))
    return replica[order], end[order], values[order]


def _ms(time_ns: NDArray[Any]) -> Float:
    return np.asarray(time_ns / 1e6, dtype=np.float64)


def _ratio(part: float, whole: float) -> float:
    return part / whole if whole > 0 else math.nan


__all__ = [
    "DEFINITIONS", "SERIES", "UNITS", "Series", "Slo", "e2e_ms", "finished_workflows", "generated_tokens", "itl_ms",
    "meets_slo", "queue_ms", "run_metrics", "series", "tpot_ms", "ttft_ms", "warnings", "workflow_latency_s",
    "workflow_work_s",
]  # fmt: skip
