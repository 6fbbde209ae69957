"""What every metric means, in which unit. `run_metrics` returns exactly these names, in this order."""

from __future__ import annotations

from dataclasses import dataclass

from traces import branch_metrics
from traces.errors import InputError


@dataclass(frozen=True)
class Slo:
    """Limits that a request must meet to count in slo_goodput: TTFT and TPOT."""

    ttft_ms: float = 2000.0
    tpot_ms: float = 50.0

    def __post_init__(self) -> None:
        for name in ("ttft_ms", "tpot_ms"):
            if not getattr(self, name) > 0:
                raise InputError(f"slo.{name}={getattr(self, name)}: expected more than 0")


_STATISTICS = {
    "mean": "mean",
    "p50": "median",
    "p90": "90th percentile",
    "p99": "99th percentile",
}

_LATENCIES = {
    "ttft_ms": ("ms", "time to first token: first token - release, requests that generated a token"),
    "tpot_ms": (
        "ms",
        "time per output token of a request: (last - first token) / (tokens - 1), finished, 2 or more",
    ),
    "itl_ms": (
        "ms",
        "inter-token latency: each gap between successive token arrivals of a request counts once",
    ),
    "e2e_ms": ("ms", "request latency: finish - release, finished requests"),
    "queue_ms": ("ms", "queueing: first scheduled - release, admitted requests"),
    "workflow_latency_s": ("s", "workflow latency: finish - arrival, finished workflows"),
    "workflow_work_s": ("s", "the same without the time in wait stages: what a user waits for"),
}

_OTHERS = {
    "window_start_s": ("s", "start of the window the metrics look at"),
    "window_s": ("s", "length of the window"),
    "window_reliable": ("", "1, or 0 where no steady state was found"),
    "requests": ("", "requests released in the window"),
    "completed": ("", "of those, finished"),
    "rejected": ("", "of those, refused (prompt larger than the pool or the model's length)"),
    "aborted": ("", "of those, cancelled"),
    "incomplete": ("", "of those, unfinished when the run ended"),
    "workflows": ("", "workflows that arrived in the window"),
    "workflows_completed": ("", "of those, finished"),
    "workflows_unfinished": (
        "",
        "of those, not finished: a request was rejected or cancelled, or the run ended first",
    ),
    "requests_never_issued": (
        "",
        "requests of unfinished workflows that were never released (nor served by reuse); in no other count",
    ),
    "gpu_hit_rate": (
        "",
        "prompt tokens found in HBM at first admission / prompt tokens; host hits are misses",
    ),
    "host_hit_rate": ("", "prompt tokens loaded back from the host tier / prompt tokens"),
    "compute_saved": ("", "prompt tokens found in HBM or loaded back / prompt tokens"),
    "prefilled_tokens": ("tokens", "tokens that went through prefill, recomputed ones included"),
    "recomputed_tokens": ("tokens", "tokens prefilled again after a preemption; never hits"),
    "preemptions": ("", "times a running request was put back in the queue"),
    "acceptance_rate": ("", "draft tokens accepted / draft tokens verified"),
    "rejection_rate_mean": (
        "",
        "draft tokens rejected / verified, of each request that verified any; mean over these requests",
    ),
    "requests_per_s": ("1/s", "requests finished in the window / its length"),
    "workflows_per_s": ("1/s", "workflows finished in the window / its length"),
    "generated_tokens_per_s": ("tokens/s", "output tokens emitted in the window / its length"),
    "slo_goodput": ("1/s", "requests of the window that met both TTFT and TPOT limits / its length"),
    "slo_attainment": ("", "requests of the window that met both limits / requests of the window"),
    "steps": ("", "engine steps that ended in the window"),
    "utilisation": ("", "time in steps / (length of the window x replicas)"),
    "mean_batch": ("sequences", "sequences in a step, mean over the time spent in steps"),
    "mean_waiting": ("requests", "requests waiting at a replica, mean over the time spent in steps"),
    "kv_blocks_active_mean": (
        "blocks",
        "KV blocks held by running requests, mean over the time spent in steps",
    ),
    "kv_blocks_active_max": ("blocks", "most KV blocks held by running requests of a replica"),
    "kv_active_share": (
        "",
        "KV blocks held by running requests / blocks of the replica; nan: pool size not logged",
    ),
    "kv_resident_share": ("", "the same with evictable cached blocks"),
    "drafted_tokens_mean": ("tokens", "draft tokens verified a step, over steps with a decoding sequence"),
    "drafting_steps_share": ("", "steps that verified a draft / steps with a decoding sequence"),
}

_OTHERS |= branch_metrics.DEFINITIONS

# Metrics between 0 and 1; every other one is at least 0.
SHARES = frozenset(
    {
        "window_reliable", "gpu_hit_rate", "host_hit_rate", "compute_saved", "acceptance_rate", "slo_attainment",
        "rejection_rate_mean", "drafting_steps_share", "fill_discarded_share", "fill_unselected_share",
        "utilisation", "kv_active_share", "kv_resident_share",
    }
)  # fmt: skip

DEFINITIONS: dict[str, str] = {
    f"{name}_{stat}": f"{text}; {word}"
    for name, (_, text) in _LATENCIES.items()
    for stat, word in _STATISTICS.items()
} | {name: text for name, (_, text) in _OTHERS.items()}

UNITS: dict[str, str] = {
    f"{name}_{stat}": unit for name, (unit, _) in _LATENCIES.items() for stat in _STATISTICS
} | {name: unit for name, (unit, _) in _OTHERS.items()}
