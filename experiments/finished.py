"""Whether arms may be compared by workflow latency: it is that of finished workflows, so all must finish."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

Arm = Mapping[str, Any]


def no_latency(arms: Sequence[Arm]) -> str | None:
    """Return why no mean workflow latency of these arms can be a headline; None where it can.

    arms: of one point of the axes, the first one first. It can where every run's workflows all finished, and each
    arm finished the same ones as the first arm, seed by seed.
    """
    lost = [(a, sum(_counts(a, "workflows_unfinished"))) for a in arms]
    lost = [(a, n) for a, n in lost if n]
    other = [a for a in arms if any(a["finished_otherwise"].values())]
    reasons = []
    if lost:
        told = [f"{n:g} of {sum(_counts(a, 'workflows')):g} with {a['name']}" for a, n in lost]
        reasons.append(f"workflows did not finish ({_some(told)})")
    if other:
        reasons.append(f"{_some([a['name'] for a in other])} finished other workflows than {arms[0]['name']}")
    if not reasons:
        return None
    return f"No headline on workflow latency, which only finished workflows have: {'; '.join(reasons)}."


def same_workflows(arms: Sequence[Arm]) -> bool:
    """Say whether each arm finished the workflows that the first arm finished, seed by seed."""
    return not any(any(a["finished_otherwise"].values()) for a in arms)


def _counts(arm: Arm, key: str) -> list[float]:
    metric = arm["windows"]["full"]["metrics"][key]
    return [] if metric is None else list(metric["per_seed"].values())


def _some(texts: Sequence[str]) -> str:
    """Join texts, the later ones counted rather than told where there are many.

    >>> _some(["a", "b"]), _some(list("abcde"))
    ('a, b', 'a, b, c and 2 more arms')
    """
    if len(texts) <= 4:
        return ", ".join(texts)
    return f"{', '.join(texts[:3])} and {len(texts) - 3} more arms"
