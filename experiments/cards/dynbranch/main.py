"""R5 to R9, R17, R18, R23: systems against each other and against the floor."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from experiments.cards.dynbranch.arms import (
    BASELINES,
    LOAD,
    LOW,
    P99,
    WORK,
    WORKLOADS,
    at,
    change,
    diverged,
    system,
    told,
    work,
)
from experiments.cards.results import Results
from experiments.cards.rows import Check, Row, judged, mean
from experiments.targets import target

Studies = Mapping[str, Results]
LESS_WAITS = "latency without users' waits; loads are shares of the floor's own capacity"


def _r5(studies: Studies) -> Row:
    wanted, results = target("R5").values, studies["main"]
    said, checks, gain = [], [], {}
    for name in WORKLOADS:
        found = change(work(results, "C1", at(name, LOAD)), work(results, "full", at(name, LOAD)))
        said.append(f"{name} {told(found)}")
        gain[name] = -found.mean if found else 0.0
        checks.append(
            Check(
                f"{name}: {gain[name]:.1f} % for {wanted[f'{name}_pct']} %",
                abs(gain[name] - wanted[f"{name}_pct"]) <= max(0.25 * wanted[f"{name}_pct"], 1.0),
                "value",
            )
        )
    for name in WORKLOADS[:1] + WORKLOADS[2:]:
        checks.append(Check(f"{name} gains more than ReAct", gain[name] > gain["react"]))
    return judged("R5", "; ".join(said), LESS_WAITS, checks)


def _r6(studies: Studies) -> Row:
    wanted, results = target("R6").values, studies["main"]
    gains, missed = {}, {}
    for load in (LOW, LOAD):
        found = change(work(results, "C1", at("react", load)), work(results, "full", at("react", load)))
        gains[load] = found
        arm = system(results, "full", at("react", load))
        missed[load] = 100 * _mismatch(results, arm)
    low, high = (-found.mean if (found := gains[x]) else 0.0 for x in (LOW, LOAD))
    checks = [
        Check(f"early fill gains at low load: {told(gains[LOW])}", low > 0),
        Check(f"and less at load: {told(gains[LOAD])}", high < low),
        Check(f"low {low:.1f} % for {wanted['low_pct']} %", abs(low - wanted["low_pct"]) <= 4, "value"),
        Check(f"load {high:.1f} % for {wanted['load_pct']} %", abs(high - wanted["load_pct"]) <= 1, "value"),
        Check(
            f"fills that do not match: {missed[LOW]:.0f} and {missed[LOAD]:.0f} %",
            all(abs(m - wanted["mismatch_pct"][0]) <= 14 for m in missed.values()),
            "value",
        ),
    ]
    ours = f"low {told(gains[LOW])}, load {told(gains[LOAD])}; mismatch {missed[LOW]:.0f} and {missed[LOAD]:.0f} %"
    return judged("R6", ours, LESS_WAITS, checks)


def _mismatch(results: Results, arm: object) -> float:
    """Return the share of fills whose candidate was not what happened."""
    lost = total = 0
    for log in results.logs(arm).values() if arm is not None else ():  # type: ignore[arg-type]
        position = log.column("fills", "position")
        first = position == 0
        wrong = log.select("fills", "fate", "unselected") | log.select("fills", "fate", "wrong argument")
        lost, total = lost + int((wrong & first).sum()), total + int(first.sum())
    return lost / total if total else float("nan")


def _r7(studies: Studies) -> Row:
    wanted, results = target("R7").values, studies["main"]
    said, checks = [], []
    for load, key in ((LOAD, "load_pct"), (LOW, "low_pct")):
        for name in WORKLOADS:
            found = change(
                work(results, "floor", at(name, load), P99), work(results, "full", at(name, load), P99)
            )
            said.append(f"{name} at {load}: {told(found)}")
            less = -found.mean if found else 0.0
            if name != "hci":
                checks.append(Check(f"{name} at {load} falls by {less:.1f} %", less > 0))
                inside = 0.75 * wanted[key][0] <= less <= 1.25 * wanted[key][1]
                checks.append(Check(f"{name} at {load}: {less:.1f} % for {wanted[key]}", inside, "value"))
    return judged("R7", "; ".join(said), f"p99 of one run's workflows, mean over seeds; {LESS_WAITS}", checks)


def _against(results: Results, id: str) -> Row:
    """Judge the full system against each cell's strongest baseline and against the floor."""
    wanted = target(id).values
    said, checks = [], []
    for axes in {tuple(a.axes.items()): a.axes for a in results.plan.arms}.values():
        workload = str(axes.get("workload", results.plan.workload["name"])).removeprefix("dynbranch_")
        name = f"{workload} at {axes['load.utilisation']}"
        floor, full = work(results, "floor", axes), work(results, "full", axes)
        lost = [b for b in BASELINES if diverged(results, system(results, b, axes))]
        there = {b: work(results, b, axes) for b in BASELINES if b not in lost}
        there = {b: v for b, v in there.items() if v}
        if not there or not full:
            continue
        best = min(there, key=lambda b: mean(there[b]))
        over, under = change(there[best], full), change(floor, full)
        said.append(f"{name}: {told(over)} to {best}, {told(under)} to the floor")
        if lost:
            said[-1] += f" (diverged: {', '.join(lost)})"
        checks.append(
            Check(f"{name}: below the strongest ({best}), {told(over)}", bool(over and over.mean < 0))
        )
        checks.append(Check(f"{name}: below the floor, {told(under)}", bool(under and under.mean < 0)))
        low, high = wanted["floor_pct"]
        size = -under.mean if under else 0.0
        checks.append(
            Check(f"{name}: {size:.1f} % off the floor for {low} to {high}", low <= size <= high, "value")
        )
    return judged(id, "; ".join(said), LESS_WAITS, checks)


def _r17(studies: Studies) -> Row:
    wanted, results = target("R17").values, studies["mix"]
    axes = results.plan.arms[0].axes
    floor = results.metric(results.arm(axes, reuse="none"), WORK)
    found = {
        name: change(floor, results.metric(results.arm(axes, reuse=name), WORK))
        for name in ("subgraph", "per_operator", "whole_response")
    }
    size = {n: -c.mean if c else 0.0 for n, c in found.items()}
    checks = [
        Check("the subgraph boundary gains", size["subgraph"] > 0),
        Check(
            "about as much as results of single operators", abs(size["subgraph"] - size["per_operator"]) < 5
        ),
        Check(
            "whole responses gain least", size["whole_response"] < min(size["subgraph"], size["per_operator"])
        ),
        Check(
            f"{size['subgraph']:.1f} % for {wanted['mix_pct']} %",
            abs(size["subgraph"] - wanted["mix_pct"]) <= 8,
            "value",
        ),
    ]
    said = "; ".join(f"{n} {told(c)}" for n, c in found.items())
    return judged(
        "R17", said, "the mix of `dynbranch_mix` (its provenance says the shares), low load", checks
    )


def _r18(studies: Studies) -> Row:
    wanted, results = target("R18").values, studies["alone"]
    low, high = wanted["reduction_pct"]
    said, checks = [], []
    for axes in {tuple(a.axes.items()): a.axes for a in results.plan.arms}.values():
        name = ", ".join(f"{k.rpartition('.')[2]}={v}" for k, v in axes.items()).replace("dynbranch_", "")
        by = {
            g: results.metric(results.arm(axes, gates=g), WORK) for g in ("never", "priced", "dsp", "spagent")
        }
        ours = change(by["never"], by["priced"])
        said.append(f"{name}: {told(ours)}")
        checks.append(Check(f"{name}: falls, {told(ours)}", bool(ours and ours.mean < 0)))
        for other in ("dsp", "spagent"):
            checks.append(Check(f"{name}: below {other}", mean(by["priced"]) <= mean(by[other])))
        size = -ours.mean if ours else 0.0
        checks.append(Check(f"{name}: {size:.1f} % for {low} to {high}", low <= size <= high, "value"))
    return judged("R18", "; ".join(said), LESS_WAITS, checks)


def _r23(studies: Studies) -> Row:
    spliced = unsafe = runs = 0
    for results in studies.values():
        for arm in results.plan.arms:
            for log in results.logs(arm).values():
                runs += 1
                spliced += int(log.select("fills", "fate", "promoted").sum())
                if log.rows("decisions"):
                    spliced += int(log.select("decisions", "action", "served").sum())
                    unsafe += int(log.select("decisions", "action", "unsafe").sum())
    checks = [
        Check(f"{unsafe} unsafe splices of {spliced}", unsafe == 0),
        Check(f"{spliced} splices", spliced > 0),
    ]
    checks.append(Check("none at all", unsafe == target("R23").values["unsafe"], "value"))
    return judged(
        "R23", f"{unsafe} of {spliced} splices in {runs} runs differ from what would have been computed",
        "every result that was served, joined or promoted is compared with the truth function's value", checks,
    )  # fmt: skip


ROWS: dict[str, Callable[[Studies], Row]] = {
    "R5": _r5, "R6": _r6, "R7": _r7, "R8": lambda s: _against(s["commodity"], "R8"),
    "R9": lambda s: _against(s["main"], "R9"), "R17": _r17, "R18": _r18, "R23": _r23,
}  # fmt: skip
