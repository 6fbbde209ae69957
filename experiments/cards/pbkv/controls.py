"""P9, P5 and B1: what must not help does not, what must not hurt does not, and what the readings of A_w decide."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping

from experiments.cards.pbkv.sweeps import by_level
from experiments.cards.results import HIT, Results, option
from experiments.cards.rows import BySeed, Check, Row, judged, mean, over_seeds, rises, shown
from experiments.policyspec import parse
from experiments.stats import paired_difference

LOSS_MAX = 0.02  # of the hit rate without prefetching: the margin of protocol P-5
ACCESS = ("literal", "inherit", "global_pin")
# study -> (what it is, the table that has its other arms)
MATRIX = {
    "access": ("own prompts, 72 in progress", "hover_32b"),
    "access_half": ("own prompts, 36", "hover_half_32b"),
    "access_shared": ("one transcript, 72", "hover_shared_32b"),
    "access_swe": ("coding, 24", "swe_32b"),
    "access_finance": ("static pipeline, 48", "finance_32b"),
}


def shuffled(results: Results) -> Row:
    """Judge the shuffled forecasts against uniform ones: a gain must vanish."""
    by: dict[str, BySeed] = {}
    for arm in results.plan.arms:
        choice = parse("predictors", arm.policies["predictors"])
        exchanged = str(dict(choice.options).get("agents", "false")).lower() == "true"
        by[choice.name + (", agents exchanged" if exchanged else "")] = results.metric(arm, HIT)
    uniform, right = by.pop("uniform"), by.pop("markov")
    checks = [rises("the right forecasts over uniform", uniform, right)]
    for name, hits in by.items():
        change = paired_difference(uniform, hits)
        low = None if change is None else change.low
        checks.append(Check(f"{name} over uniform: {shown(change)} pt", low is not None and low <= 0))
    told = "; ".join(f"{n} {over_seeds(v)} %" for n, v in {"uniform": uniform, "markov": right, **by}.items())
    return judged("P9", told, "forecasts shuffled among workflows, own prompts, 36 in progress", checks)


def ample(results: Results) -> Row:
    """Judge memory for all: every evictor must write the same log."""
    digests: dict[int, set[str]] = {}
    for arm in results.plan.arms:
        for seed, folder in results.runs(arm).items():
            h = hashlib.blake2b(digest_size=16)
            for file in sorted(folder.glob("*.parquet")):
                h.update(file.name.encode() + file.read_bytes())
            digests.setdefault(seed, set()).add(h.hexdigest())
    names = [arm.policies["evictors"] for arm in results.plan.arms]
    same = bool(digests) and all(len(found) == 1 for found in digests.values())
    hit = results.metric(results.plan.arms[0], HIT)
    check = Check(f"logs of {len(names)} evictors are the same bytes in {len(digests)} seeds", same)
    return judged("P9", f"{', '.join(names)}: hit {over_seeds(hit)} %", "memory for everything", [check])


def inferiority(results: Results) -> Row:
    """Judge conservative prefetching against none over the noise sweep: no loss above the margin."""
    none, conservative = by_level(results, "none"), by_level(results, "conservative")
    checks, told = [], []
    for level in none:
        loss = paired_difference(conservative[level], none[level])
        limit = LOSS_MAX * mean(none[level])
        ok = loss is not None and loss.high is not None and loss.high <= limit
        checks.append(Check(f"noise {level:g}: loss {shown(loss)} pt, margin {limit:.2f}", ok))
        told.append(f"{level:g}: {shown(paired_difference(none[level], conservative[level]))}")
    ours = "gain of conservative over none, pt, by noise: " + ", ".join(told)
    return judged("P5", ours, "own prompts, 72 in progress", checks)


def readings(studies: Mapping[str, Results]) -> Row:
    """Judge the readings of A_w in one matrix: hits over LRU, and whether HE is above LAE."""
    checks, told = [], []
    for study, (what, table) in MATRIX.items():
        if study not in studies:
            continue
        base, lae = (
            studies[table].metric(studies[table].arm(evictors=e, prefetchers="none"), HIT)
            if table in studies
            else {}
            for e in ("lru", "lifecycle")
        )
        cells = []
        for arm in studies[study].plan.arms:
            reading = option(arm, "evictors", "access")
            hits = studies[study].metric(arm, HIT)
            cells.append(f"{reading} {over_seeds(hits)} ({shown(paired_difference(base, hits), 1)} over LRU)")
            if lae:
                checks.append(rises(f"{what}, {reading}: HE over LAE", lae, hits))
        told.append(f"{what}: " + ", ".join(cells))
    return judged("B1", "; ".join(told), "access=" + "|".join(ACCESS), checks)


def rows(studies: Mapping[str, Results], wanted: tuple[str, ...]) -> list[Row]:
    """Return the rows whose studies were run."""
    out = []
    if "P9" in wanted:
        out += [judge(studies[s]) for s, judge in (("controls", shuffled), ("ample", ample)) if s in studies]
    if "P5" in wanted and "noise" in studies:
        out.append(inferiority(studies["noise"]))
    if "B1" in wanted and any(s in studies for s in MATRIX):
        out.append(readings(studies))
    return out
