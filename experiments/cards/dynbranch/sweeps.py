"""R10 to R16 and R20 to R22: how gains move with width, replicas, depth, recurrence, size, drafter, gates and load."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping
from typing import Any

from experiments.cards.dynbranch.arms import change, latency, ratio, told
from experiments.cards.results import LATENCY, Results
from experiments.cards.rows import BySeed, Check, Row, judged, mean, near, over_seeds
from experiments.plan import Arm
from experiments.targets import target

Studies = Mapping[str, Results]
CLOCK = "lengths and times of the workload's clock file"


def _points(results: Results) -> list[dict[str, Any]]:
    return list({tuple(a.axes.items()): dict(a.axes) for a in results.plan.arms}.values())


def _at(results: Results, axes: dict[str, Any]) -> dict[str, Any]:
    """Return the point, without axes of which the study has one value only."""
    known = _points(results)[0]
    return {name: value for name, value in axes.items() if name in known}


def _fan(results: Results, k: int, replicas: int) -> Arm | None:
    return results.arm({"replicas": replicas}, gates=f"fanout(k={k})") or (
        results.arm({"replicas": replicas}, gates="fanout") if k == 2 else None
    )


def _r10(studies: Studies) -> Row:
    wanted, results = target("R10").values, studies["fanout"]
    replicas = max(p["replicas"] for p in _points(results))
    by = {k: latency(results, _fan(results, k, replicas)) for k in range(4)}
    waste = {k: results.metric(_fan(results, k, replicas), "fill_discarded_share") for k in (1, 2, 3)}
    other = {k: results.metric(_fan(results, k, replicas), "fill_unselected_share") for k in (1, 3)}
    gpu = results.metric(_fan(results, 3, replicas), "fill_gpu_s")
    found = {k: change(by[0], by[k]) for k in (1, 2, 3)}
    share = {k: mean(v) for k, v in waste.items()}
    less = {k: -c.mean if c else 0.0 for k, c in found.items()}
    checks = [
        Check(
            f"wider is faster: {', '.join(told(c) for c in found.values())}", 0 < less[1] < less[2] < less[3]
        ),
        Check(
            f"a growing share is thrown away: {share[1]:.2f} to {share[3]:.2f}",
            share[1] < share[2] < share[3],
        ),
        Check(
            f"it moves to what was not chosen: {mean(other[1]) / share[1]:.2f} to {mean(other[3]) / share[3]:.2f}",
            mean(other[1]) / share[1] < mean(other[3]) / share[3],
        ),
        near(
            "K=3 over K=0", mean(by[3]) / mean(by[0]), wanted["latency_s"][1] / wanted["latency_s"][0], 0.15
        ),
        near("GPU-seconds a request", mean(gpu), wanted["fill_gpu_s"], 0.25),
        near("share discarded at K=1", 100 * share[1], wanted["waste_pct"][0], 0.25),
        near("share discarded at K=3", 100 * share[3], wanted["waste_pct"][1], 0.25),
    ]
    ours = (
        f"{over_seeds(by[0], 2)} to {over_seeds(by[3], 2)} s; {over_seeds(gpu)} GPU-s (residence) at K=3; discarded "
        f"{100 * share[1]:.0f}, {100 * share[2]:.0f}, {100 * share[3]:.0f} %"
    )
    return judged(
        "R10", ours, f"Sub-Agent, {replicas} replicas, half of the floor's capacity; {CLOCK}", checks
    )


def _r11(studies: Studies) -> Row:
    wanted, results = target("R11").values, studies["fanout"]
    counts = sorted(p["replicas"] for p in _points(results))
    by = {w: latency(results, _fan(results, w - 1, w)) for w in counts}
    lost = {w: results.metric(_fan(results, w - 1, w), "fill_discarded_s") for w in counts}
    used = {w: results.metric(_fan(results, w - 1, w), "promoted_stages") for w in counts}
    first, before, last = counts[0], counts[-2], counts[-1]
    saved, total = mean(by[before]) - mean(by[last]), mean(by[first]) - mean(by[last])
    checks = [
        Check(f"latency falls with replicas by {total:.2f} s", total > 0),
        Check(f"the last replica saves {saved:.2f} s, under a third of it", saved < total / 3),
        Check(
            f"and discards {mean(lost[last]) - mean(lost[before]):.2f} GPU-s more",
            mean(lost[last]) > mean(lost[before]),
        ),
        Check(
            f"consumed work is nearly flat at the end: {mean(used[before]):.2f} to {mean(used[last]):.2f} stages",
            mean(used[last]) < 1.1 * mean(used[before]),
        ),
        near(
            "last over first",
            mean(by[last]) / mean(by[first]),
            wanted["latency_s"][1] / wanted["latency_s"][0],
            0.15,
        ),
        near("saved by the last, s", saved, wanted["fourth_saves_s"], 0.25),
    ]
    ours = "; ".join(f"W={w}: {over_seeds(v, 2)} s" for w, v in by.items())
    return judged("R11", ours, f"Sub-Agent, K = W - 1, the same arrivals a replica; {CLOCK}", checks)


def _r12(studies: Studies) -> Row:
    wanted, results = target("R12").values, studies["depth"]
    by = {
        d: {
            name: results.metric(results.arm({"branching.depth": d}, gates=gate), "workflow_latency_s_p50")
            for name, gate in (("off", "never"), ("on", "fanout(k=3)"))
        }
        for d in (1, 2, 3)
    }
    one = change(by[1]["off"], by[1]["on"])
    deeper = {d: change(by[1]["on"], by[d]["on"]) for d in (2, 3)}
    served = results.metric(results.arm({"branching.depth": 1}, gates="fanout(k=3)"), "promoted_stages")
    checks = [
        Check(f"one cycle ahead helps: {told(one)}", bool(one and one.mean < 0)),
        Check(
            f"more cycles change little: {', '.join(told(c) for c in deeper.values())}",
            all(c is not None and abs(c.mean) <= 2.0 for c in deeper.values()),
        ),
        near("one cycle, % of the median", -one.mean if one else 0.0, wanted["median_pct"], 0.25),
        Check(
            f"deeper within {wanted['deeper_pct_max']} %",
            all(c is not None and abs(c.mean) <= wanted["deeper_pct_max"] for c in deeper.values()),
            "value",
        ),
    ]
    ours = (
        f"one {told(one)}; two {told(deeper[2])}, three {told(deeper[3])}; {over_seeds(served, 2)} promoted"
    )
    return judged("R12", ours, f"ReAct, three candidates, low load; {CLOCK}", checks)


def _r13(studies: Studies) -> Row:
    wanted, results = target("R13").values, studies["replay"]
    shares = sorted(p["load.replay"] for p in _points(results))
    speed = {}
    for share in shares:
        axes = {"load.replay": share}
        floor = latency(results, results.arm(axes, gates="never", reuse="none"))
        speed[share] = ratio(floor, latency(results, results.arm(axes, gates="priced", reuse="subgraph")))
    ordered = [speed[s] for s in shares]
    checks = [
        Check("speedup rises with recurrence", all(a < b for a, b in itertools.pairwise(ordered))),
        Check(f"more than in proportion: {speed[shares[-1]]:.2f}", speed[shares[-1]] > 1 / (1 - shares[-1])),
        *(
            near(f"replay {s}", speed[s], wanted["speedup"][i], 0.15)
            for i, s in ((0, 0.22), (1, 0.77))
            if s in speed
        ),
    ]
    ours = ", ".join(f"{s:g}: {v:.2f}x" for s, v in speed.items())
    return judged("R13", ours, f"Sub-Agent, open loop at 0.6 of the floor's capacity; {CLOCK}", checks)


def _sizes(results: Results) -> tuple[dict[str, float], dict[str, float]]:
    speed, saved = {}, {}
    for p in _points(results):
        floor = latency(results, results.arm(p, gates="never"))
        full = latency(results, results.arm(p, gates="priced"))
        speed[p["model"]], saved[p["model"]] = ratio(floor, full), mean(floor) - mean(full)
    return speed, saved


def _r14(studies: Studies) -> Row:
    wanted = target("R14").values
    speed, saved = _sizes(studies["model_size"])
    order = list(speed)
    low, high = min(speed.values()), max(speed.values())
    checks = [
        Check(f"larger models save more seconds: {saved[order[0]]:.2f} to {saved[order[-1]]:.2f}",
              saved[order[0]] < saved[order[-1]]),
        Check(f"at a speedup that varies little: {low:.2f} to {high:.2f}", high / low < 1.3),
        near("smallest speedup", low, wanted["speedup"][0], 0.15),
        near("largest speedup", high, wanted["speedup"][1], 0.15),
    ]  # fmt: skip
    ours = ", ".join(f"{m} {speed[m]:.2f}x ({saved[m]:.2f} s)" for m in order)
    return judged("R14", ours, "Sub-Agent; sizes without measured kernels are rooflines", checks)


def _r15(studies: Studies) -> Row:
    wanted = target("R15").values
    speed, _ = _sizes(studies["backbones"])
    low, high = min(speed.values()), max(speed.values())
    checks = [
        Check(f"every family gains: {low:.2f} to {high:.2f}", low > 1),
        Check("and varies little", high / low < 1.3),
        near("smallest", low, wanted["speedup"][0], 0.15),
        near("largest", high, wanted["speedup"][1], 0.15),
    ]
    ours = ", ".join(f"{m} {v:.2f}x" for m, v in speed.items())
    return judged("R15", ours, "time only: what a model answers is the trace's", checks)


def _r16(studies: Studies) -> Row:
    wanted, results = target("R16").values, studies["drafter"]
    place = _at(results, {"drafter_device.place": "own"})
    floor = latency(results, results.arm(place, candidates="none"))
    names = ("oracle(accuracy=0.5)", "oracle(accuracy=0.7)", "oracle(accuracy=0.9)")
    speed = {n: ratio(floor, latency(results, results.arm(place, candidates=n))) for n in names}
    chance = change(floor, latency(results, results.arm(place, candidates="random")))
    low, high = min(speed.values()), max(speed.values())
    checks = [
        Check(f"accuracy moves the speedup little: {low:.2f} to {high:.2f}", high / low < 1.05),
        Check(f"every accuracy gains: {low:.2f}", low > 1),
        Check(
            f"candidates at random gain nothing, and cost little: {told(chance)}",
            bool(chance and abs(chance.mean) < 2),
        ),
        near("smallest", low, wanted["speedup"][0], 0.15),
        near("largest", high, wanted["speedup"][1], 0.15),
    ]
    ours = ", ".join(f"{n} {v:.2f}x" for n, v in speed.items()) + f"; random {told(chance)}"
    return judged(
        "R16", ours, "Sub-Agent, reuse off; an oracle of dialled accuracy stands for the drafters", checks
    )


def _gate(results: Results, gate: str) -> tuple[BySeed, BySeed, BySeed, BySeed]:
    load = max(p.get("load.utilisation", 0) for p in _points(results))
    arm = results.arm(_at(results, {"load.utilisation": load}), gates=gate)
    return tuple(results.metric(arm, m) for m in (LATENCY, "fills", "branches_opened", "drafting_s"))  # type: ignore[return-value]


BOTH, NO_A0, NO_A1 = "priced", "priced(action0=open)", "priced(action1=fixed, p_star=0.1)"
# Plans leave out options at their default: p_star is 0.5.
NEITHER = tuple(
    f"priced(action0=open, action1=fixed{p})" for p in (", p_star=0.1", "", ", p_star=0.9", ", p_star=0.999")
)


def _r20(studies: Studies) -> Row:
    wanted, results = target("R20").values, studies["gates"]
    both, a1, a0, none = (_gate(results, g) for g in (BOTH, NO_A0, NO_A1, NEITHER[0]))
    fewer = mean(none[1]) / mean(both[1]) if mean(both[1]) > 0 else float("inf")
    same = change(none[0], both[0])
    checks = [
        Check(f"pricing both levels issues {fewer:.1f} times fewer fills", fewer > 1.5),
        Check(f"at the same latency: {told(same)}", bool(same and abs(same.mean) <= 2)),
        Check(
            f"action 0 cuts openings: {mean(a1[2]):.2f} to {mean(both[2]):.2f}", mean(both[2]) < mean(a1[2])
        ),
        Check(
            f"with action 1 fixed, too: {mean(none[2]):.2f} to {mean(a0[2]):.2f}", mean(a0[2]) < mean(none[2])
        ),
        near("times fewer", fewer, wanted["fewer_fills"], 0.25),
    ]
    ours = f"fills {over_seeds(none[1], 2)} to {over_seeds(both[1], 2)}, latency {told(same)}"
    reading = f"ReAct at load, reuse off; fixed at p* = 0.1, which the paper does not say; {CLOCK}"
    return judged("R20", ours, reading, checks)


def _r21(studies: Studies) -> Row:
    wanted, results = target("R21").values, studies["gates"]
    by = {g: _gate(results, g) for g in (BOTH, *NEITHER)}
    drafts = [mean(by[g][3]) for g in NEITHER]
    counts = [mean(by[g][1]) for g in NEITHER]
    base = by[NEITHER[-1]][0]
    found = {g: change(base, by[g][0]) for g in (BOTH, *NEITHER[:-1])}
    priced, fixed = found[BOTH], [c.mean for g, c in found.items() if g != BOTH and c]
    checks = [
        Check(
            f"thresholds move fills: {min(counts):.2f} to {max(counts):.2f}",
            max(counts) > 3 * max(min(counts), 0.01),
        ),
        Check(
            f"and not drafting: {min(drafts):.3f} to {max(drafts):.3f} s", max(drafts) <= 1.05 * min(drafts)
        ),
        Check(f"priced gates draft less: {mean(by[BOTH][3]):.3f} s", mean(by[BOTH][3]) < 0.8 * min(drafts)),
        Check(
            f"and are no slower than the best threshold: {told(priced)}",
            bool(priced and priced.mean <= min(fixed) + 1),
        ),
        near("% off the latency", -priced.mean if priced else 0.0, wanted["priced_pct"], 0.5),
    ]
    ours = "; ".join(f"{g}: {told(c)}" for g, c in found.items())
    return judged("R21", ours, f"ReAct at load, reuse off, against {NEITHER[-1]}; {CLOCK}", checks)


def _r22(studies: Studies) -> Row:
    wanted, results = target("R22").values, studies["load"]
    taken, filled = dict[float, list[float]](), dict[float, list[float]]()
    for p in _points(results):
        floor = latency(results, results.arm(p, gates="never", reuse="none"))
        reuse = latency(results, results.arm(p, gates="never", reuse="subgraph"))
        full = latency(results, results.arm(p, gates="priced"))
        mix = p["load.replay"]
        taken.setdefault(mix, []).append(100 * (1 - mean(reuse) / mean(floor)))
        filled.setdefault(mix, []).append(mean(reuse) - mean(full))
    mixes = sorted(taken)
    checks = [
        Check(
            f"{m:g} repeated: reuse takes a flat share, {min(taken[m]):.1f} to {max(taken[m]):.1f} %",
            min(taken[m]) > 1 and max(taken[m]) - min(taken[m]) < 0.25 * max(taken[m]),
        )
        for m in mixes
        if m > 0
    ]
    checks += [
        Check(f"{b:g} repeated takes more than {a:g}", min(taken[b]) > max(taken[a]))
        for a, b in itertools.pairwise(mixes)
    ]
    checks += [
        Check(
            f"{m:g} repeated: early fill's saving moves with load, {min(filled[m]):.2f} to {max(filled[m]):.2f} s",
            max(filled[m]) > 1.5 * max(min(filled[m]), 0.01),
        )
        for m in mixes
    ]
    as_they_are = taken[mixes[0]]
    checks.append(
        near(
            f"reuse with {mixes[0]:g} repeated, %",
            sum(as_they_are) / len(as_they_are),
            sum(wanted["reuse_pct"]) / 2,
            0.25,
        )
    )
    said = (
        f"{m:g} repeated: reuse {min(taken[m]):.1f} to {max(taken[m]):.1f} %, fill "
        + ", ".join(f"{v:.2f}" for v in filled[m])
        + " s"
        for m in mixes
    )
    note = (
        "what the published mix repeats is not said; BFCL's records ask nothing twice, so the share of exact repeats "
        "is an input here, and the size that follows from it is no result"
    )
    loads = ", ".join(f"{u:g}" for u in sorted({p["load.utilisation"] for p in _points(results)}))
    return judged(
        "R22", "; ".join(said), f"Routing at {loads} of what the floor serves; {CLOCK}", checks, note
    )


ROWS: dict[str, Callable[[Studies], Row]] = {
    "R10": _r10, "R11": _r11, "R12": _r12, "R13": _r13, "R14": _r14, "R15": _r15, "R16": _r16, "R20": _r20,
    "R21": _r21, "R22": _r22,
}  # fmt: skip
