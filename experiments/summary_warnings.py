"""What to know before relying on the numbers: each line once, with the arms and seeds it holds for."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from experiments.plan import Plan


def arm_warnings(by_seed: Mapping[int, Sequence[str]]) -> list[str]:
    """Join the seeds that say the same, numbers aside: the first one's words, and which seeds.

    >>> arm_warnings({0: ["2 of 9 were cut"], 1: [], 2: ["3 of 9 were cut"]})
    ['2 of 9 were cut (seed 0; likewise seed 2)']
    """
    kinds: dict[str, list[tuple[int, str]]] = {}
    for seed, lines in by_seed.items():
        for line in lines:
            kinds.setdefault("".join(c for c in line if not c.isdigit()), []).append((seed, line))
    out = []
    for found in kinds.values():
        seeds, line = [s for s, _ in found], found[0][1]
        if len(by_seed) == 1:
            out.append(line)
        elif all(other == line for _, other in found):
            out.append(f"{line} ({'every seed' if len(seeds) == len(by_seed) else _seeds(seeds)})")
        else:
            out.append(f"{line} ({_seeds(seeds[:1])}; likewise {_seeds(seeds[1:])})")
    return out


def _seeds(seeds: Sequence[int]) -> str:
    return f"seed{'' if len(seeds) == 1 else 's'} {', '.join(str(s) for s in seeds)}"


def _labels(labels: Sequence[str], total: int) -> str:
    if len(labels) == total > 1:
        return "every arm"
    return ", ".join(labels) if len(labels) < 4 else f"{labels[0]} and {len(labels) - 1} more arms"


def _served_early(arm: Mapping[str, Any]) -> bool:
    metrics = arm["windows"]["full"]["metrics"]
    found = (metrics.get(key) for key in ("promoted_stages", "reused_stages"))
    return any(m is not None and m["mean"] > 0 for m in found)


def all_warnings(groups: Sequence[Mapping[str, Any]], plan: Plan) -> list[str]:
    """Return the warnings of all arms and of the workload, each line once with the arms it holds for."""
    by_line: dict[str, list[str]] = {}
    for arm in (a for g in groups for a in g["arms"]):
        for line in arm["warnings"]:
            by_line.setdefault(line, []).append(arm["label"])
    total = sum(len(g["arms"]) for g in groups)
    lines = [f"{_labels(labels, total)}: {line}" for line, labels in by_line.items()]
    lines += [f"workload: {line}" for line in plan.workload.get("warnings", [])]
    if any(_served_early(arm) for g in groups for arm in g["arms"]):
        lines.append(
            "stages that a fill or an earlier result served are no requests: 'requests completed' and 'SLO goodput' "
            "leave them out, latencies of workflows count them"
        )
    if len(plan.seeds) == 1:
        lines.append("one seed: no interval can be given, differences may be luck")
    return lines
