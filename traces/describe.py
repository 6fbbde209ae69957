"""What a trace holds, as numbers: counts, distributions, arrivals, prefix reuse, provenance, warnings."""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np
from numpy.typing import NDArray

from traces.describe_branches import describe_branches
from traces.reuse import Reuse, prefix_reuse
from traces.schema import StageKind, Workload

ENGINE_BLOCK_TOKENS = 16
_DAY_NS = 86_400 * 10**9
_KINDS = {StageKind.LLM: "llm", StageKind.TOOL: "tool", StageKind.WAIT: "wait"}


def describe(workload: Workload, engine_block_tokens: int = ENGINE_BLOCK_TOKENS) -> dict[str, Any]:
    """Return the description as plain data (`python -m traces describe --json`). Does not mutate.

    engine_block_tokens: block size against which a shared prefix is called short.
    """
    w = workload
    recorded = w.canonical()
    llm = (w.stage_kind == StageKind.LLM) & recorded
    reuse = prefix_reuse(w)
    requests_per_workflow = np.bincount(w.stage_workflow[llm], minlength=w.n_workflows)
    duplicates = near_duplicates(w)
    return {
        "name": w.name,
        "digest": w.digest(),
        "workflows": w.n_workflows,
        "stages": {
            name: int(np.count_nonzero((w.stage_kind == kind) & recorded)) for kind, name in _KINDS.items()
        },
        "requests": w.n_requests,
        "requests_per_agent": _agents(w, llm),
        "prompt_tokens": spread(w.prompt_tokens[llm]),
        "output_tokens": spread(w.output_tokens[llm]),
        "tool_ms": spread(w.stage_duration_ns[(w.stage_kind == StageKind.TOOL) & recorded] / 1e6),
        "wait_ms": spread(w.stage_duration_ns[(w.stage_kind == StageKind.WAIT) & recorded] / 1e6),
        "requests_per_workflow": spread(requests_per_workflow),
        "arrivals": _arrivals(w),
        "prefix_reuse": _reuse(w, reuse),
        "branches": describe_branches(w),
        "output_ids": w.output_ids is not None,
        "near_duplicates": duplicates,
        "provenance": w.provenance,
        "warnings": _warnings(w, llm, reuse, duplicates, engine_block_tokens),
    }


def spread(values: NDArray[Any]) -> dict[str, float] | None:
    """Return total, mean, max and nearest-rank p50, p90, p99 (values that occur); None for no values."""
    if not len(values):
        return None
    cuts = np.percentile(values, [50, 90, 99], method="inverted_cdf")
    named = dict(zip(("p50", "p90", "p99"), cuts, strict=True))
    figures = {"sum": values.sum(), "mean": values.mean(), **named, "max": values.max()}
    return {k: round(float(v), 3) for k, v in figures.items()}


def near_duplicates(workload: Workload) -> dict[str, int]:
    """Count workflows of two requests or more whose (prompt, output) token sequence recurs in another."""
    llm = np.flatnonzero((workload.stage_kind == StageKind.LLM) & workload.canonical())
    sizes = np.stack([workload.prompt_tokens[llm], workload.output_tokens[llm]], axis=1)
    bounds = np.searchsorted(workload.stage_workflow[llm], np.arange(workload.n_workflows + 1))
    many = np.flatnonzero(np.diff(bounds) >= 2)
    seen = Counter(sizes[bounds[i] : bounds[i + 1]].tobytes() for i in many)
    groups = [n for n in seen.values() if n > 1]
    return {"groups": len(groups), "workflows": sum(groups), "largest": max(groups, default=0)}


def _agents(w: Workload, llm: NDArray[np.bool_]) -> dict[str, int]:
    counts = np.bincount(w.stage_agent[llm & (w.stage_agent >= 0)], minlength=len(w.agents))
    return {name: int(n) for name, n in zip(w.agents, counts, strict=True) if n or w.branches is None}


def _arrivals(w: Workload) -> dict[str, float] | None:
    if w.workflow_arrival_ns is None or not w.n_workflows:
        return None
    times = np.sort(w.workflow_arrival_ns)
    gaps = np.diff(times) / 1e9
    span_s = float(times[-1] - times[0]) / 1e9
    out = {"first_s": float(times[0]) / 1e9, "last_s": float(times[-1]) / 1e9}
    if span_s > 0:
        out |= {"rate_per_s": len(gaps) / span_s, "interarrival_cv": float(gaps.std() / gaps.mean())}
    return {k: round(v, 6) for k, v in out.items()}


def _reuse(w: Workload, reuse: Reuse) -> dict[str, Any]:
    block = w.hash_block_tokens
    known = int(np.count_nonzero(w.prompt_segment[reuse.stage] >= 0))
    across = reuse.hit_tokens - reuse.own_hit_tokens
    everything, own = (reuse.block_rate(h, block) for h in (reuse.hit_tokens, reuse.own_hit_tokens))
    return {
        "block_tokens": block,
        "requests_with_identity": known,
        "infinite_cache_block_hit_rate": round(everything, 6),
        "of_that_within_workflow": round(own, 6),
        "of_that_only_across_workflows": round(everything - own, 6),
        "infinite_cache_token_hit_rate": round(reuse.token_rate(reuse.hit_tokens), 6),
        "requests_hit_across_workflows": int(np.count_nonzero(across)),
        "segments": len(w.prefix),
    }


def _warnings(
    w: Workload, llm: NDArray[np.bool_], reuse: Reuse, duplicates: dict[str, int], engine_block_tokens: int
) -> list[str]:
    out = []
    empty = int(np.count_nonzero(llm & (w.output_tokens == 0)))
    if empty:
        out.append(f"{empty} requests generate no token (output of 0)")
    if duplicates["workflows"]:
        out.append(
            f"near-duplicate sessions: {duplicates['workflows']} workflows in {duplicates['groups']} groups "
            f"have the same sizes throughout (largest group {duplicates['largest']}); cross-session reuse "
            "may be theirs"
        )
    short = int(np.count_nonzero((reuse.hit_tokens > 0) & (reuse.hit_tokens < engine_block_tokens)))
    if short:
        out.append(
            f"{short} requests share a prefix shorter than a block of {engine_block_tokens} tokens: "
            "a block cache cannot reuse it"
        )
    if len(w.prefix) and w.hash_block_tokens > engine_block_tokens:
        out.append(
            f"identity is known in blocks of {w.hash_block_tokens} tokens: shorter shared prefixes are unseen"
        )
    out += _arrival_warnings(w)
    idle = w.n_workflows - len(np.unique(w.stage_workflow[llm]))
    if idle:
        out.append(f"{idle} workflows have no request")
    return out


def _arrival_warnings(w: Workload) -> list[str]:
    if w.workflow_arrival_ns is None or not w.n_workflows:
        return []
    out = []
    unsorted = int(np.count_nonzero(np.diff(w.workflow_arrival_ns) < 0))
    if unsorted:
        out.append(f"arrivals are not in time order ({unsorted} steps back)")
    first = int(w.workflow_arrival_ns.min())
    if first > _DAY_NS and first > 10 * (int(w.workflow_arrival_ns.max()) - first):
        out.append(
            f"the first arrival is at {first / 1e9:.0f} s: times look absolute, not counted from a start"
        )
    return out
