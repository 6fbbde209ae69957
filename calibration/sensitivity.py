"""How wrong a profile may be before it recommends the wrong policy, and which measurement guards best against it.

A choice is made under the profile as it is: the arm with the least mean workflow latency. Then one term of the profile
is wrong by a factor: under the true costs another arm may be faster. That is a flip where the paired 95 % interval over
seeds of their log-ratio lies below 0, and the regret is the latency lost by the choice. The expected regret of
leaving a term unmeasured takes every factor of the grid as equally likely; measuring the term removes it.
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
        Case("hover-evictors", "hover", "H200x1--Qwen3-8B--bf16--vllm", "evictors", _EVICTORS, 200, 32, blocks=1_500),
        Case("hover-routers", "hover", "H200x1--Qwen3-8B--bf16--vllm", "routers",
             ("round_robin", "least_loaded", "prefix_aware"), 256, 96, replicas=4),
    )
}  # fmt: skip


def keys(case: Case, seeds: Sequence[int], factors: Sequence[int] = FACTORS) -> list[Key]:
    """Return every run that `judge` needs for the case."""
    worlds = [("", PPM), *[(term, f) for term in TERMS for f in factors]]
    return [(case.name, arm, term, f, s) for s in seeds for term, f in worlds for arm in case.arms]


def judge(
    case: Case, latency_s: Mapping[Key, float], seeds: Sequence[int], factors: Sequence[int] = FACTORS
) -> dict[str, Any]:
    """Return the choice, how sure it is, and for each term its flips, smallest flipping factors and mean regret."""

    def versus(arm: str, base: str, term: str, factor: int) -> tuple[float, float, float]:
        logs = [
            math.log(latency_s[case.name, arm, term, factor, s] / latency_s[case.name, base, term, factor, s])
            for s in seeds
        ]
        return interval(logs)

    mean = {a: math.fsum(latency_s[case.name, a, "", PPM, s] for s in seeds) / len(seeds) for a in case.arms}
    chosen = min(case.arms, key=lambda a: (mean[a], case.arms.index(a)))
    rivals = [a for a in case.arms if a != chosen]
    # Nominally best and beaten nowhere: the closest rival says by how much.
    margins = {a: versus(a, chosen, "", PPM) for a in rivals}
    closest = min(rivals, key=lambda a: margins[a][0])
    terms: dict[str, Any] = {}
    for term in TERMS:
        regrets: dict[str, float] = {}
        flips = []
        for factor in factors:
            best = min(rivals, key=lambda a: versus(a, chosen, term, factor)[0])
            change, _, high = versus(best, chosen, term, factor)
            flipped = high < 0
            regrets[_shown(factor)] = 100 * math.expm1(-change) if flipped else 0.0
            if flipped:
                flips.append(
                    {"factor": _shown(factor), "winner": best, "regret_percent": regrets[_shown(factor)]}
                )
        terms[term] = {
            "flips": flips,
            "below": _nearest_flip([f for f in factors if f < PPM], flips),
            "above": _nearest_flip([f for f in factors if f > PPM], flips),
            "mean_regret_percent": math.fsum(regrets.values()) / len(factors),
            "measured_by": MEASURED_BY[term],
        }
    worst = max(TERMS, key=lambda t: terms[t]["mean_regret_percent"])
    return {
        "case": case.name,
        "chosen": chosen,
        "mean_latency_s": mean,
        "closest": closest,
        "margin_percent": [100 * math.expm1(x) for x in margins[closest]],
        "sure": margins[closest][1] > 0,
        "terms": terms,
        "measure_first": worst if terms[worst]["mean_regret_percent"] > 0 else None,
        "seeds": len(seeds),
    }


def overall(judged: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Return, over all cases, the smallest flipping error and the term whose measurement saves most regret."""
    flips = [
        (abs(math.log(float(f["factor"]))), term, f, j)
        for j in judged
        for term, t in j["terms"].items()
        for f in t["flips"]
    ]
    saved = {t: math.fsum(j["terms"][t]["mean_regret_percent"] for j in judged) / len(judged) for t in TERMS}
    first = max(TERMS, key=lambda t: saved[t])
    body: dict[str, Any] = {
        "mean_regret_percent": saved,
        "measure_first": first if saved[first] > 0 else None,
        "smallest": None,
    }
    if flips:
        _, term, flip, j = min(flips, key=lambda x: (x[0], x[1]))
        body["smallest"] = {"case": j["case"], "term": term, "chosen": j["chosen"], **flip}
    return body


def interval(values: Sequence[float]) -> tuple[float, float, float]:
    """Return mean, low and high of Student's t interval at CONFIDENCE; at least two values."""
    n = len(values)
    mean = math.fsum(values) / n
    deviation = math.sqrt(math.fsum((v - mean) ** 2 for v in values) / (n - 1))
    half = float(stdtrit(n - 1, 0.5 + CONFIDENCE / 2)) * deviation / math.sqrt(n)
    return mean, mean - half, mean + half


def _nearest_flip(side: Sequence[int], flips: Sequence[Mapping[str, Any]]) -> str | None:
    """Return the flipping factor nearest to 1 on one side, None where none flips."""
    flipped = {f["factor"] for f in flips}
    for factor in sorted(side, key=lambda f: abs(math.log(f / PPM))):
        if _shown(factor) in flipped:
            return _shown(factor)
    return None


def _shown(factor: int) -> str:
    return f"{factor / PPM:.3g}"
