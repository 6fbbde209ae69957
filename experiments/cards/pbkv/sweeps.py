"""R51 to R53 and R58 to R60: what happens along one knob."""

from __future__ import annotations

import statistics
from collections.abc import Mapping
from itertools import pairwise

from experiments.cards.results import HIT, Results, option
from experiments.cards.rows import (
    NOT_ATTEMPTED,
    BySeed,
    Check,
    Row,
    judged,
    mean,
    near,
    over_seeds,
    rises,
    shown,
)
from experiments.stats import paired_difference
from experiments.targets import target

AT_72 = "A_w literal; Markov chains of orders 1 to 3, nearest neighbours, uniform, oracle; 72 in progress"
AT_36 = AT_72.replace("72 in", "36 in")
NEGLIGIBLE_PT = 1.0  # a difference of hit rates below one point counts as none
Curve = dict[float, BySeed]


def rows(studies: Mapping[str, Results], accuracies: Mapping[str, float]) -> list[Row]:
    """Return a row for each sweep that was run. accuracies: step-1 top-1 by predictor as written."""
    out = []
    for study, judge in (
        ("concurrency", concurrency), ("horizon", horizon), ("gamma", gamma), ("rho", rho), ("noise", noise),
    ):  # fmt: skip
        if study in studies:
            out.append(judge(studies[study]))
    for study, table, reading in (
        ("predictor", "hover_32b", AT_72),
        ("predictor_half", "hover_half_32b", AT_36),
    ):
        if study in studies:
            base: BySeed = {}
            if table in studies:
                base = studies[table].metric(
                    studies[table].arm(evictors="lifecycle", prefetchers="none"), HIT
                )
            out.append(predictor(studies[study], accuracies, base, reading))
    return sorted(out, key=lambda r: r.id)


def concurrency(results: Results) -> Row:
    """Judge R51."""
    by_arm: dict[str, Curve] = {}
    for arm in results.plan.arms:
        by_arm.setdefault(arm.policies["evictors"], {})[float(arm.axes["load.concurrency"])] = results.metric(
            arm, HIT
        )
    lru, he = by_arm["lru"], by_arm["lookahead"]
    gaps = {c: paired_difference(lru[c], he[c]) for c in sorted(lru)}
    checks = []
    for name, curve in by_arm.items():
        places = sorted(curve)
        up = [
            (a, b) for a, b in pairwise(places)
            if (d := paired_difference(curve[a], curve[b])) is not None and d.excludes_zero and d.mean > 0
        ]  # fmt: skip
        checks.append(Check(f"{name} never rises with concurrency", not up))
    first = min(gaps)
    low = gaps[first]
    checks.append(
        Check(f"no gap at {first:g}: {shown(low)} pt", low is not None and abs(low.mean) < NEGLIGIBLE_PT)
    )
    checks.append(rises(f"lookahead over lru at {max(lru):g}", lru[max(lru)], he[max(lru)]))
    without = [c for c, g in gaps.items() if g is not None and abs(g.mean) < NEGLIGIBLE_PT]
    until = max(without, default=0.0)
    wanted = target("R51").values["no_gap_below"]
    nexts = [c for c in gaps if c > until]
    ok = until <= wanted <= min(nexts, default=until)
    checks.append(Check(f"no gap up to {until:g} workflows", ok, "value"))
    ours = "; ".join(f"{c:g}: lru {over_seeds(lru[c])} %, gap {shown(g)} pt" for c, g in gaps.items())
    return judged(
        "R51",
        ours,
        "A_w literal; running out of memory is queueing here, so the crashes are not attempted",
        checks,
    )


def _by_option(results: Results, family: str, name: str, **policies: str) -> Curve:
    out: Curve = {}
    for arm in results.plan.arms:
        if all(arm.policies[f] == w for f, w in policies.items()):
            out[float(option(arm, family, name))] = results.metric(arm, HIT)
    return dict(sorted(out.items()))


def _peak(curve: Curve) -> float:
    return max(curve, key=lambda x: mean(curve[x]))


def _told(curve: Curve) -> str:
    return ", ".join(f"{x:g}: {over_seeds(v, 2)}" for x, v in curve.items())


def horizon(results: Results) -> Row:
    """Judge R53."""
    he = _by_option(results, "evictors", "horizon", prefetchers="none")
    full = _by_option(results, "evictors", "horizon", prefetchers="conservative")
    wanted = float(target("R53").values["peak"])
    checks = [rises(f"K={wanted:g} over K=1", he[1.0], he[wanted])]
    last = max(he)
    fall = paired_difference(he[wanted], he[last])
    checks.append(
        Check(f"K={last:g} below K={wanted:g}: {shown(fall)} pt", fall is not None and fall.mean < 0)
    )
    gaps = [mean(full[k]) - mean(he[k]) for k in he]
    checks.append(
        Check(
            f"gap of prefetching {min(gaps):.2f} to {max(gaps):.2f} pt over K",
            max(gaps) - min(gaps) < NEGLIGIBLE_PT,
        )
    )
    checks.append(Check(f"peak at K={_peak(he):g}", _peak(he) == wanted, "value"))
    return judged(
        "R53",
        f"no prefetching, by K: {_told(he)}; with: {_told(full)}",
        "A_w literal, Markov of order 3",
        checks,
    )


def gamma(results: Results) -> Row:
    """Judge R58."""
    he = _by_option(results, "evictors", "gamma", prefetchers="none")
    wanted, peak = float(target("R58").values["peak"]), _peak(he)
    checks = [Check(f"a peak inside, at {peak:g}", min(he) < peak < max(he))]
    spread = max(map(mean, he.values())) - min(map(mean, he.values()))
    checks.append(Check(f"gamma matters: {spread:.2f} pt from best to worst", spread >= NEGLIGIBLE_PT))
    checks.append(Check(f"peak at {peak:g}", peak == wanted, "value"))
    return judged("R58", f"by gamma: {_told(he)}", "A_w literal, Markov of order 3, no prefetching", checks)


def _aggressive(results: Results) -> Curve:
    out: Curve = {}
    for arm in results.plan.arms:
        if arm.policies["prefetchers"].startswith("aggressive"):
            out[float(option(arm, "prefetchers", "rho"))] = results.metric(arm, HIT)
    return dict(sorted(out.items()))


def rho(results: Results) -> Row:
    """Judge R59."""
    wanted = target("R59").values
    base = results.metric(results.arm(prefetchers="conservative"), HIT)
    curve = _aggressive(results)
    peak, last = _peak(curve), max(curve)
    gain = paired_difference(base, curve[peak])
    checks = [
        rises(f"rho {peak:g} over conservative", base, curve[peak]),
        Check(f"rho {last:g} below conservative", mean(curve[last]) < mean(base)),
        Check(f"peak at rho {peak:g}", peak == wanted["peak"], "value"),
        near("gain at the peak, pt", 0.0 if gain is None else gain.mean, wanted["gain_points"], 0.25),
    ]
    if len(base) > 2 and statistics.stdev(base.values()) > 0:
        ratio = statistics.stdev(curve[peak].values()) / statistics.stdev(base.values())
        checks.append(near("standard deviation over conservative's", ratio, wanted["sd_ratio"], 0.25))
    ours = f"conservative {over_seeds(base, 2)} %; aggressive by rho: {_told(curve)}"
    return judged("R59", ours, "rho bounds what is prefetched and unused", checks)


def noise(results: Results) -> Row:
    """Judge R60, and conservative prefetching against none as non-inferiority (protocol P-5)."""
    wanted = target("R60").values
    curves = {name: by_level(results, name) for name in ("none", "conservative", "aggressive")}
    none, conservative, aggressive = curves["none"], curves["conservative"], curves["aggressive"]
    checks = []
    for level in wanted["aggressive_ahead_at"]:
        if level in aggressive:
            checks.append(rises(f"aggressive ahead at {level:g}", conservative[level], aggressive[level]))
    for level, other, name in (
        (wanted["overtaken_at"], conservative, "conservative"), (wanted["below_he_at"], none, "no prefetching"),
    ):  # fmt: skip
        if level in aggressive:
            checks.append(rises(f"{name} ahead of aggressive at {level:g}", aggressive[level], other[level]))
    losses = {x: paired_difference(conservative[x], none[x]) for x in none}
    for level, loss in losses.items():
        high = None if loss is None else loss.high
        limit = 0.02 * mean(none[level])
        checks.append(
            Check(
                f"conservative no worse than none at {level:g}: loss {shown(loss)} pt",
                high is not None and high <= limit,
            )
        )
    ours = "; ".join(f"{n}: {_told(c)}" for n, c in curves.items())
    return judged("R60", ours, "U over agents, P(END) kept; Markov of order 3; rho 0.2", checks)


def by_level(results: Results, prefetcher: str) -> Curve:
    """Return hit rates by noise level and seed of one prefetcher's arms."""
    out: Curve = {}
    for arm in results.plan.arms:
        if arm.policies["prefetchers"] == prefetcher:
            out[float(option(arm, "predictors", "level"))] = results.metric(arm, HIT)
    return dict(sorted(out.items()))


def predictor(results: Results, accuracies: Mapping[str, float], lifecycle: BySeed, reading: str) -> Row:
    """Judge R52: hit rate against step-1 accuracy on the evaluated workflows, which no predictor learned from."""
    hits = {a.policies["predictors"]: results.metric(a, HIT) for a in results.plan.arms}
    order = sorted((n for n in hits if n in accuracies), key=lambda n: accuracies[n])
    checks = []
    for a, b in pairwise(order):
        change = paired_difference(hits[a], hits[b])
        down = change is not None and change.excludes_zero and change.mean < 0
        checks.append(Check(f"{_short(b)} not below {_short(a)}: {shown(change)} pt", not down))
    if order:
        checks.append(rises(f"{_short(order[-1])} over {_short(order[0])}", hits[order[0]], hits[order[-1]]))
    learned = [n for n in order if n not in ("uniform", "oracle")]
    if learned and lifecycle:
        checks.append(rises(f"weakest, {_short(learned[0])}, over lifecycle", lifecycle, hits[learned[0]]))
    ours = "; ".join(
        f"{_short(n)}: accuracy {accuracies[n]:.3f}, hit {over_seeds(hits[n], 2)} %" for n in order
    )
    row = judged(
        "R52",
        ours,
        "A_w literal; Markov chains of orders 1 to 3, nearest neighbours, uniform, oracle",
        checks,
    )
    if not learned:
        return Row("R52", ours, row.reading, NOT_ATTEMPTED, row.checks, "no learned arm in these runs")
    return row


def _short(written: str) -> str:
    name, _, options = written.partition("(")
    order = next((p.split("=")[1] for p in options.rstrip(")").split(", ") if p.startswith("order=")), None)
    return f"{name}-{order or 3}" if name == "markov" else name
