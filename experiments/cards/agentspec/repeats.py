"""R28 and R29: what the recorded outputs repeat; no engine runs."""

from __future__ import annotations

import math

from experiments.cards.rows import Check, Row, judged, shown
from experiments.stats import Interval, mean_interval
from experiments.token_repeats import SOURCES, by_redundancy, drafts, repeated, slope
from policies.views import HostInfo
from traces import workloads

WORKLOADS = ("reflexion", "taubench", "miniswe", "magagent")
SPANS = (4, 8, 16)
GROUPS = ((2, 3), (4, 7), (8, 1 << 30))


def by_block_and_query() -> Row:
    """Judge R28 against one other query, a source of like size; show the whole store of other queries beside it."""
    checks, told = [], []
    for name in WORKLOADS:
        workload = workloads.open(name)
        line = []
        for k in SPANS:
            found = repeated(workload, k)
            ratio = {s: sum(c for c, _ in v) / sum(n for _, n in v) for s, v in found.items()}
            line.append(f"k={k} " + "/".join(f"{100 * ratio[s]:.1f}" for s in SOURCES))
            for source in SOURCES[1:4]:
                change = mean_interval(
                    [(a - b) / n for (a, n), (b, _) in zip(found[SOURCES[0]], found[source], strict=True)]
                )
                ok = change is not None and change.mean > 0 and change.excludes_zero
                checks.append(Check(f"{name}, k={k}: above {source}: {_percent(change)} pt", ok))
        told.append(f"{name}: " + ", ".join(line))
    return judged(
        "R28",
        f"% of generated tokens repeated, {' / '.join(SOURCES)}: " + "; ".join(told),
        "another query is one other workflow; intervals over workflows",
        checks,
        "against all other queries together the claim fails where that column is the larger one",
    )


def against_redundancy(host: HostInfo, *, quick: bool) -> Row:
    """Judge R29: acceptance rises with redundancy, and more steeply with more matches."""
    checks, told = [], []
    for name in WORKLOADS:
        found = drafts(workloads.open(name), host, 12 if quick else 1 << 30)
        line = []
        slopes = []
        for low, high in GROUPS:
            keep = (found.matches >= low) & (found.matches <= high)
            size = f"{low} to {high}" if high < 1 << 20 else f"{low} or more"
            curve = by_redundancy(found, keep)
            line.append(f"{size} matches " + "/".join("-" if math.isnan(c) else f"{c:.2f}" for c in curve))
            got = slope(found, keep)
            slopes.append(got)
            ok = got is not None and got.mean > 0 and got.excludes_zero
            checks.append(Check(f"{name}, {size} matches: slope {shown(got)}", ok))
        first, last = slopes[0], slopes[-1]
        ok = first is not None and last is not None and last.mean > first.mean
        checks.append(Check(f"{name}: steeper with 8 or more matches than with 2 or 3", ok))
        told.append(f"{name}: " + ", ".join(line))
    return judged(
        "R29",
        "accepted share of the consensus by redundancy (to 0.25/0.5/0.75/1): " + "; ".join(told),
        "redundancy is c/n of equation 1; drafts of up to 8 tokens at every position; intervals over workflows",
        checks,
    )


def _percent(change: Interval | None) -> str:
    if change is None or change.low is None or change.high is None:
        return shown(change)
    return shown(Interval(100 * change.mean, 100 * change.low, 100 * change.high, change.n))
