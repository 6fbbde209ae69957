"""R54 and R63: the course of a run, and how many of its batches decode only."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from experiments.cards.pbkv.tables import OWN, SHARED
from experiments.cards.results import Results
from experiments.cards.rows import BySeed, Check, Row, judged, mean, over_seeds, rises
from experiments.plots.timeline import PHASES, between, phases_s
from experiments.targets import target
from traces.runlog import RunLog
from traces.windows import full_window

_ARMS = {"lru": ("lru", "none"), "lae": ("lifecycle", "none"), "pbkv": ("lookahead", "conservative")}
ONSET, FIRST_END, LAST_START = PHASES


def rows(studies: Mapping[str, Results]) -> list[Row]:
    """Return R54 under both readings, and R63."""
    out = [
        _course(studies[study], reading)
        for study, reading in (("hover_14b", OWN), ("hover_shared_14b", SHARED))
        if study in studies
    ]
    if "hover_32b" in studies:
        out.append(_decode_only(studies["hover_32b"]))
    return out


def phase_rates(run: RunLog) -> dict[str, float]:
    """Return the GPU hit rate in percent by phase: warm-up, pressure, first ends, steady, tail; NaN without one.

    Phases follow the run's own events: warm-up until the first eviction, pressure until the first workflow ends, first
    ends for as long again as it took to get there, steady until the last workflow starts, then the tail; the end is the
    last tenth of the run.
    """
    at = phases_s(run)
    end = full_window(run).end_ns / 1e9
    onset, first, last = at.get(ONSET, end), at.get(FIRST_END, end), at.get(LAST_START, end)
    settled = min(max(2 * first, onset), last)
    cuts = {
        "warm-up": (0.0, onset), "pressure": (onset, max(first, onset)), "first ends": (first, settled),
        "steady": (settled, last), "tail": (last, end), "end": (0.9 * end, end),
    }  # fmt: skip
    return {name: 100 * between(run, a, b) for name, (a, b) in cuts.items()}


def _course(results: Results, reading: str) -> Row:
    wanted = target("R54").values
    by_arm: dict[str, dict[str, BySeed]] = {}
    for name, (evictor, prefetcher) in _ARMS.items():
        arm = results.arm(evictors=evictor, prefetchers=prefetcher)
        if arm is not None:
            rates = {seed: phase_rates(log) for seed, log in results.logs(arm).items()}
            by_arm[name] = {
                p: {s: r[p] for s, r in rates.items() if np.isfinite(r[p])}
                for p in next(iter(rates.values()), {})
            }
    lru, lae, pbkv = (by_arm[n] for n in _ARMS)
    warm = mean(lru["warm-up"])
    checks = [
        Check(f"warm-up of lru {warm:.0f} %", warm >= wanted["warm_up_pct_min"]),
        rises("lru: steady to warm-up", lru["steady"], lru["warm-up"]),
        rises("first ends: lru to lae", lru["first ends"], lae["first ends"]),
        rises("steady: lru to pbkv", lru["steady"], pbkv["steady"]),
        rises("lru: steady to end", lru["steady"], lru["end"]),
        Check(
            f"lru steady {mean(lru['steady']):.0f} %",
            _close(lru["steady"], wanted["lru_steady_pct"]),
            "value",
        ),
        Check(
            f"pbkv steady {mean(pbkv['steady']):.0f} %",
            _close(pbkv["steady"], wanted["pbkv_steady_pct"]),
            "value",
        ),
        Check(f"end {mean(pbkv['end']):.0f} %", _close(pbkv["end"], wanted["tail_pct"]), "value"),
    ]
    ours = "; ".join(
        f"{n}: " + ", ".join(f"{p} {over_seeds(v, 0)}" for p, v in phases.items() if v)
        for n, phases in by_arm.items()
    )
    return judged("R54", ours + " %", f"{reading}; phases by each run's own events", checks)


def _close(values: BySeed, paper: float) -> bool:
    return bool(abs(mean(values) - paper) <= 0.25 * paper)


def _decode_only(results: Results) -> Row:
    arm = results.arm(evictors="lookahead", prefetchers="conservative")
    shares: dict[int, float] = {}
    for seed, log in results.logs(arm).items() if arm is not None else ():
        prefill, decoding = log.columns("steps", "prefill_tokens", "decode_seqs")
        shares[seed] = 100 * float(((prefill == 0) & (decoding > 0)).sum()) / max(len(prefill), 1)
    limit = target("R63").values["share_pct_min"]
    share = mean(shares)
    checks = [
        Check(f"most batches decode only: {share:.0f} %", share > 50),
        Check(f"above {limit} %", share > limit, "value"),
    ]
    return judged(
        "R63", f"{over_seeds(shares)} % of steps", "steps with decoding sequences and no prefill", checks
    )
