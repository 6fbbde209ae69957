"""R46 to R50: the main tables, and latency as a function of the miss rate."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import pairwise

import numpy as np

from experiments.cards.results import HIT, LATENCY, TTFT, Results
from experiments.cards.rows import (
    RATIO_TOLERANCE,
    VALUE_TOLERANCE,
    BySeed,
    Check,
    Row,
    falls,
    judged,
    mean,
    near,
    over_seeds,
    rises,
)
from experiments.targets import target

ARMS = {
    "lru": ("lru", "none"),
    "lae": ("lifecycle", "none"),
    "he": ("lookahead", "none"),
    "pbkv": ("lookahead", "conservative"),
    "kvflow": ("kvflow", "none"),
    "continuum": ("continuum", "none"),
}
# target -> (study, further reading of the same cell)
CELLS = {
    "R46": ("hover_32b", "hover_shared_32b"),
    "R47": ("hover_14b", "hover_shared_14b"),
    "R48a": ("swe_32b", "swe_shared_32b"),
    "R48b": ("swe_14b", None),
    "R49a": ("finance_32b", "finance_shared_32b"),
    "R49b": ("finance_14b", None),
}
HALF = {"R46": "hover_half_32b"}
OWN = "every agent has its own system prompt before the transcript; A_w literal"
OWN_HALF = "own prompts as above, 36 in progress: half, since a workflow's prompts fill the pool sooner here"
SHARED = "one preamble and transcript for all agents; A_w literal"


def rows(studies: Mapping[str, Results]) -> list[Row]:
    """Return a row for every cell of the table and reading of it, and R50."""
    out = []
    for id, (study, shared) in CELLS.items():
        if study in studies:
            out.append(_cell(id, studies[study], OWN))
        if shared is not None and shared in studies:
            out.append(_cell(id, studies[shared], SHARED))
        if HALF.get(id) in studies:
            out.append(_cell(id, studies[HALF[id]], OWN_HALF))
    out.append(_affine({id: studies[s] for id, (s, _) in CELLS.items() if s in studies}))
    return out


def columns(results: Results, metric: str) -> dict[str, BySeed]:
    """Return a metric by arm of the table and seed."""
    out: dict[str, BySeed] = {}
    for name, (evictor, prefetcher) in ARMS.items():
        arm = results.arm(evictors=evictor, prefetchers=prefetcher)
        if arm is not None:
            out[name] = results.metric(arm, metric)
    return out


def _cell(id: str, results: Results, reading: str) -> Row:
    paper = target(id).values
    names = list(paper)
    hit, latency, ttft = (columns(results, m) for m in (HIT, LATENCY, TTFT))
    checks = [rises(f"hit {a} to {b}", hit[a], hit[b]) for a, b in pairwise(names)]
    checks.append(falls(f"latency {names[0]} to {names[-1]}", latency[names[0]], latency[names[-1]]))
    checks.append(falls(f"TTFT {names[0]} to {names[-1]}", ttft[names[0]], ttft[names[-1]]))
    for name in names:
        checks.append(near(f"hit of {name}", mean(hit[name]), paper[name]["hit_pct"], VALUE_TOLERANCE))
    base = names[0]
    for name in names[1:]:
        ours = mean(latency[name]) / mean(latency[base])
        theirs = paper[name]["latency_s"] / paper[base]["latency_s"]
        checks.append(near(f"latency of {name} over {base}", ours, theirs, RATIO_TOLERANCE))
    ours_text = "; ".join(
        f"{n}: hit {over_seeds(hit[n])} %, latency {over_seeds(latency[n], 0)} s, TTFT {over_seeds(ttft[n], 2)} s"
        for n in [*names, *(n for n in ("kvflow", "continuum") if n not in names and n in hit)]
    )
    steady = results.metric(results.arm(evictors="lru", prefetchers="none"), HIT, "steady")
    note = f"steady state, LRU hit {over_seeds(steady)} %" if steady else ""
    return judged(id, ours_text, reading, checks, note)


def _affine(cells: Mapping[str, Results]) -> Row:
    """Fit latency = a miss + b on LRU and PBKV, predict the other arms; and by all arms for R2."""
    limit = target("R50").values
    checks, told = [], []
    for id, results in cells.items():
        miss = {n: 100 - mean(v) for n, v in columns(results, HIT).items()}
        latency = {n: mean(v) for n, v in columns(results, LATENCY).items()}
        x, y = np.array([miss[n] for n in miss]), np.array([latency[n] for n in miss])
        spread = float(np.ptp(x))
        if len(x) < 3 or spread < 2.0:
            checks.append(
                Check(f"{id}: miss rates of the arms span {spread:.1f} pt, too few for a line", False)
            )
            continue
        slope, base = np.polyfit(x, y, 1)
        r2 = 1 - float(((y - slope * x - base) ** 2).sum() / ((y - y.mean()) ** 2).sum())
        line = np.polyfit([miss["lru"], miss["pbkv"]], [latency["lru"], latency["pbkv"]], 1)
        worst = max(
            100 * abs(float(np.polyval(line, miss[n])) / latency[n] - 1)
            for n in miss
            if n not in ("lru", "pbkv")
        )
        told.append(f"{id}: {slope:.2f} s a point, R2 {r2:.3f}, held-out error at most {worst:.1f} %")
        checks.append(Check(f"{id}: latency rises with misses", bool(slope > 0)))
        checks.append(Check(f"{id}: R2 {r2:.3f}", r2 >= limit["r2_min"], "value"))
        checks.append(Check(f"{id}: held-out {worst:.1f} %", worst <= limit["held_out_pct_max"], "value"))
    return judged("R50", "; ".join(told), "all arms of a cell, means over seeds", checks)
