"""A description as lines for a terminal."""

from __future__ import annotations

from typing import Any

_COLUMNS = ("mean", "p50", "p90", "p99", "max", "sum")
_SPREADS = ("prompt_tokens", "output_tokens", "requests_per_workflow", "tool_ms", "wait_ms")


def render(described: dict[str, Any]) -> str:
    """Return the text of `describe`'s result, without a final newline."""
    d = described
    stages = ", ".join(f"{n:,} {kind}" for kind, n in d["stages"].items() if n)
    out = [
        f"{d['name']}: {d['workflows']:,} workflows, {d['requests']:,} requests; stages: {stages}",
        f"digest {d['digest']}",
        "",
        " " * 22 + "".join(f"{c:>13}" for c in _COLUMNS),
    ]
    for name in _SPREADS:
        if d[name] is not None:
            out.append(f"{name:<22}" + "".join(f"{_figure(d[name][c]):>13}" for c in _COLUMNS))
    out += ["", _arrivals(d["arrivals"]), *_reuse(d["prefix_reuse"])]
    out.append(f"output token ids: {'yes' if d['output_ids'] else 'no'}")
    if d["requests_per_agent"]:
        out.append("requests per agent: " + _counts(d["requests_per_agent"]))
    if d["branches"] is not None:
        out += ["", *_branches(d["branches"])]
    out += ["", *_provenance(d["provenance"])]
    out += [f"warning: {w}" for w in d["warnings"]]
    return "\n".join(out)


def _figure(value: float) -> str:
    return f"{value:,.0f}" if value == int(value) or abs(value) >= 1000 else f"{value:,.2f}"


def _counts(counts: dict[str, int], most: int = 12) -> str:
    top = sorted(counts.items(), key=lambda item: (-item[1], item[0]))
    more = f" and {len(top) - most} more" if len(top) > most else ""
    return ", ".join(f"{name} {n:,}" for name, n in top[:most]) + more


def _arrivals(arrivals: dict[str, float] | None) -> str:
    if arrivals is None:
        return "arrivals: not in the source"
    if "rate_per_s" not in arrivals:
        return f"arrivals: all at {arrivals['first_s']:,.3f} s"
    return (
        f"arrivals: {arrivals['rate_per_s']:.3f} workflows/s, "
        f"inter-arrival CV {arrivals['interarrival_cv']:.2f}, "
        f"from {arrivals['first_s']:,.3f} s to {arrivals['last_s']:,.3f} s"
    )


def _reuse(reuse: dict[str, Any]) -> list[str]:
    if not reuse["requests_with_identity"]:
        return ["prefix reuse: prompts have no identity in the source, nothing is shared"]
    return [
        f"prefix reuse, infinite cache, blocks of {reuse['block_tokens']}: "
        f"{100 * reuse['infinite_cache_block_hit_rate']:.1f} % of prompt blocks "
        f"({100 * reuse['of_that_within_workflow']:.1f} % from the same workflow, "
        f"{100 * reuse['of_that_only_across_workflows']:.1f} % only from others); "
        f"{100 * reuse['infinite_cache_token_hit_rate']:.1f} % of tokens",
        f"identity: {reuse['requests_with_identity']:,} requests, {reuse['segments']:,} prefix segments",
    ]


def _branches(b: dict[str, Any]) -> list[str]:
    window = b["overlap"]
    again = b["repeated_inputs"]
    out = [
        f"branches: {b['branches']:,}, of which {b['branches_with_a_taken_path']:,} start something, "
        f"{b['open_space']:,} in an open vocabulary, {b['several_valid']:,} with several valid outcomes; "
        f"{b['options_offered_mean']:.2f} candidates each; not taken: {b['not_taken']['llm']:,} llm, "
        f"{b['not_taken']['tool']:,} tool stages",
        f"early execution, idle engine, nominal costs: overlap share {100 * window['window']:.1f} % "
        f"({100 * window['bound']:.1f} % when each path starts with its window), downstream work "
        f"{100 * window['downstream']:.1f} % of {window['wall_ms']:,.0f} ms a workflow",
        f"repeated inputs: {100 * again['stages']:.1f} % of stages, {100 * again['time']:.1f} % of time; "
        + ", ".join(f"{name} {100 * s['stages']:.1f} %" for name, s in again["by_agent"].items()),
    ]
    for kind, found in b["drafters"].items():
        for what in ("choice", "choice and arguments"):
            out.append(f"coverage of {kind}, {what}: " + _shares(found[what]))
    if b["most_frequent_outcome"]:
        out.append("coverage of the most frequent outcomes: " + _shares(b["most_frequent_outcome"]))
    return out


def _shares(by_rank: dict[str, float]) -> str:
    return ", ".join(f"{100 * share:.1f} % @{k}" for k, share in by_rank.items())


def _provenance(provenance: dict[str, Any]) -> list[str]:
    out = []
    for name, value in provenance.items():
        if name == "not_imported":
            continue
        if isinstance(value, dict):
            value = ", ".join(f"{k}={v}" for k, v in value.items()) or "none"
        out.append(f"{name}: {value}")
    skipped = provenance.get("not_imported") or {}
    said = ", ".join(f"{n:,} {reason}" for reason, n in skipped.items())
    return [*out, f"not imported: {said or 'nothing was left out'}"]
