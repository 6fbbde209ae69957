"""How wrong a profile may be before it recommends the wrong policy, and which measurement guards best against it.

A choice is made under the profile as it is: the arm with the least mean workflow latency. Then one term of the profile
is wrong by a factor: under the true costs another arm may be faster. That is a flip where the paired interval over
seeds of their log-ratio lies below 0, at 95 % for all comparisons of a case together (Bonferroni: dozens are made, and
one in forty would flip by luck). Where the choice itself is a tie there is nothing to overturn. The regret is the
latency lost by the choice. The expected regret of leaving a term unmeasured takes every factor from half to twice
as equally likely; measuring the term removes it.
Where nothing flips there, the swing says which term the choice hangs on most: how far the margin between the choice
and its closest rival moves. Larger errors (`FAR`) are then tried, for the first that flips at all.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from scipy.special import stdtrit

from calibration.bias import MEASURED_BY, TERMS
from calibration.uncertainty import PPM

# Factors on one term, in millionths: a quarter of an octave, half of one, and one, both ways.
FACTORS = (500_000, 707_107, 840_896, 1_189_207, 1_414_214, 2_000_000)
FAR = (125_000, 250_000, 4_000_000, 8_000_000)
CONFIDENCE = 0.95

# (case, arm, term, factor, seed) -> mean workflow latency in seconds; the nominal profile is ("", PPM).
Key = tuple[str, str, str, int, int]


@dataclass(frozen=True)
class Case:
    """A load and the arms that compete for it.

    family      the policy family that differs; every other is the simplest
    workflows   resampled from the embedded workload, another order a seed
    blocks      KV blocks; None: what the engine computes
    tokens_max  workflows with a longer request are left out
    """

    name: str
    workload: str
    profile: str
    family: str
    arms: tuple[str, ...]
    workflows: int
    concurrency: int
    blocks: int | None = None
    replicas: int = 1
    tokens_max: int | None = None


_EVICTORS = ("lru", "lifecycle", "s3_fifo", "gdsf")

# The main job's engine and arms that a live engine can run, the embedded workloads, and the routers experiment; the
# pool of the two smaller traces is cut until they overfill it as the main job does.
CASES = {
    c.name: c
    for c in (
        Case("weka-evictors", "weka", "H200x1--Qwen3-14B--bf16--vllm", "evictors", _EVICTORS, 32, 16,
             tokens_max=131_072),
        Case("lmcache-evictors", "lmcache", "H200x1--Qwen3-14B--bf16--vllm", "evictors", _EVICTORS, 60, 16,
             blocks=2_000),
        Case("hover-evictors", "hover", "H200x1--Qwen3-8B--bf16--vllm", "evictors", _EVICTORS, 100, 32, blocks=1_000),
        Case("hover-routers", "hover", "H200x1--Qwen3-8B--bf16--vllm", "routers",
             ("round_robin", "least_loaded", "prefix_aware"), 256, 96, replicas=4),
    )
}  # fmt: skip


def keys(case: Case, seeds: Sequence[int], factors: Sequence[int] = FACTORS) -> list[Key]:
    """Return the runs of the case under each term wrong by each factor; of FACTORS also those of the profile itself."""
    worlds = [*([("", PPM)] if factors is FACTORS else []), *[(term, f) for term in TERMS for f in factors]]
    return [(case.name, arm, term, f, s) for s in seeds for term, f in worlds for arm in case.arms]


def judge(
    case: Case, latency_s: Mapping[Key, float], seeds: Sequence[int], far: Sequence[int] = ()
) -> dict[str, Any]:
    """Return the choice, how sure it is, and for each term its flips, their nearest factors, regret and swing.

    far: factors beyond FACTORS that `latency_s` also holds; they may flip, and count for no regret and no swing.
    """

    # Also those of far errors, which may be tried: the bar is the same whether they are or not.
    comparisons = len(TERMS) * len((*FACTORS, *FAR)) * (len(case.arms) - 1)

    def versus(arm: str, base: str, term: str, factor: int) -> tuple[float, float, float]:
        pairs = [[latency_s[case.name, a, term, factor, s] for a in (arm, base)] for s in seeds]
        return interval([math.log(a / b) for a, b in pairs], comparisons if term else len(case.arms) - 1)

    mean = {a: math.fsum(latency_s[case.name, a, "", PPM, s] for s in seeds) / len(seeds) for a in case.arms}
    chosen = min(case.arms, key=lambda a: (mean[a], case.arms.index(a)))
    rivals = [a for a in case.arms if a != chosen]
    margins = {a: versus(a, chosen, "", PPM) for a in rivals}
    closest = min(rivals, key=lambda a: margins[a][0])
    terms: dict[str, Any] = {}
    for term in TERMS:
        under = {f: {a: versus(a, chosen, term, f) for a in rivals} for f in sorted((*FACTORS, *far))}
        flips: list[dict[str, Any]] = []
        for factor, changes in under.items():
            best = min(rivals, key=lambda a: changes[a][0])
            change, _, high = changes[best]
            if high < 0:
                regret = 100 * math.expm1(-change)
                flips.append({"factor": _shown(factor), "winner": best, "regret_percent": regret})
        near = {_shown(f) for f in FACTORS}
        shifts = [under[f][closest][0] - margins[closest][0] for f in FACTORS]
        terms[term] = {
            "flips": flips,
            "below": _nearest_flip([f for f in under if f < PPM], flips),
            "above": _nearest_flip([f for f in under if f > PPM], flips),
            "mean_regret_percent": math.fsum(f["regret_percent"] for f in flips if f["factor"] in near)
            / len(FACTORS),
            "margin_swing_percent": 100 * (max(shifts) - min(shifts)),
            "measured_by": MEASURED_BY[term],
        }
    return {
        "case": case.name,
        "chosen": chosen,
        "mean_latency_s": mean,
        "closest": closest,
        "margin_percent": [100 * math.expm1(x) for x in margins[closest]],
        "sure": margins[closest][1] > 0,
        "terms": terms,
        "measure_first": _first([terms]),
        "seeds": len(seeds),
    }


def overall(judged: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Return the smallest flipping error and the term to measure first, over the cases whose choice is sure."""
    sure = [j for j in judged if j["sure"]]
    body: dict[str, Any] = {"cases": [j["case"] for j in sure], "measure_first": None, "smallest": None}
    if not sure:
        return body
    tables = [j["terms"] for j in sure]
    body |= {
        "mean_regret_percent": _mean(tables, "mean_regret_percent"),
        "margin_swing_percent": _mean(tables, "margin_swing_percent"),
        "measure_first": _first(tables),
    }
    flips = [
        (abs(math.log(float(f["factor"]))), term, f, j)
        for j in sure
        for term, t in j["terms"].items()
        for f in t["flips"]
    ]
    if flips:
        _, term, flip, j = min(flips, key=lambda x: (x[0], x[1]))
        body["smallest"] = {"case": j["case"], "term": term, "chosen": j["chosen"], **flip}
    return body


def interval(values: Sequence[float], comparisons: int = 1) -> tuple[float, float, float]:
    """Return mean, low and high of Student's t interval, at least two values.

    At CONFIDENCE for `comparisons` two-sided intervals together.
    """
    n = len(values)
    mean = math.fsum(values) / n
    deviation = math.sqrt(math.fsum((v - mean) ** 2 for v in values) / (n - 1))
    half = float(stdtrit(n - 1, 1 - (1 - CONFIDENCE) / 2 / comparisons)) * deviation / math.sqrt(n)
    return mean, mean - half, mean + half


def _first(tables: Sequence[Mapping[str, Any]]) -> str:
    """Return the term whose measurement saves most regret; where none saves any, the one that moves the margin most."""
    regret, swing = _mean(tables, "mean_regret_percent"), _mean(tables, "margin_swing_percent")
    return max(TERMS, key=lambda t: (regret[t], swing[t]))


def _mean(tables: Sequence[Mapping[str, Any]], field: str) -> dict[str, float]:
    return {t: math.fsum(table[t][field] for table in tables) / len(tables) for t in TERMS}


def _nearest_flip(side: Sequence[int], flips: Sequence[Mapping[str, Any]]) -> str | None:
    """Return the flipping factor nearest to 1 on one side, None where none flips."""
    flipped = {f["factor"] for f in flips}
    for factor in sorted(side, key=lambda f: abs(math.log(f / PPM))):
        if _shown(factor) in flipped:
            return _shown(factor)
    return None


def _shown(factor: int) -> str:
    return f"{factor / PPM:.3g}"
