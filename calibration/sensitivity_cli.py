"""The command `sensitivity`: the smallest profile error that changes which policy wins."""

from __future__ import annotations

import argparse
import json
import os
import sys
from typing import Any

from calibration.bias import MEASURED_BY, TERMS
from calibration.sensitivity import CASES, FAR, judge, keys, overall
from calibration.sensitivity_runs import run_all
from traces.errors import InputError, nearest


def add_parser(commands: Any) -> None:
    """Add `sensitivity` to the command line."""
    parser = commands.add_parser("sensitivity", help="how wrong a profile may be before another policy wins")
    parser.add_argument("--cases", default=",".join(CASES), help=", ".join(CASES))
    parser.add_argument("--seeds", type=int, default=8, help="at least 2")
    parser.add_argument("--jobs", type=int, default=len(os.sched_getaffinity(0)), help="worker processes")
    parser.add_argument("--json", action="store_true")
    parser.set_defaults(run=_run)


def _run(args: argparse.Namespace) -> None:
    names = [n for n in args.cases.split(",") if n]
    for name in names:
        if name not in CASES:
            raise InputError(nearest(name, CASES, what="case"))
    for option, low in (("seeds", 2), ("jobs", 1)):
        if getattr(args, option) < low:
            raise InputError(f"--{option} {getattr(args, option)}: expected a whole number of at least {low}")
    seeds = range(args.seeds)
    chosen = [CASES[name] for name in names]
    latency = run_all([k for case in chosen for k in keys(case, seeds)], args.jobs, _progress)
    judged = {case.name: judge(case, latency, seeds) for case in chosen}
    # A tie is no choice to overturn, and a choice that flips already needs no larger error.
    open_cases = [c for c in chosen if judged[c.name]["sure"] and not _flips(judged[c.name])]
    far = [k for case in open_cases for k in keys(case, seeds, FAR)]
    latency |= run_all(far, args.jobs, _progress)
    judged |= {case.name: judge(case, latency, seeds, FAR) for case in open_cases}
    found = list(judged.values())
    body = {
        "cases": found,
        "overall": overall(found),
        "latency_s": [[*key, value] for key, value in latency.items()],
    }
    print(json.dumps(body, indent=1, sort_keys=True) if args.json else describe(body))


def describe(body: dict[str, Any]) -> str:
    """Return the result as text."""
    lines = []
    for j in body["cases"]:
        mean, low, high = j["margin_percent"]
        lines += [
            f"{j['case']}: {j['chosen']} wins; {j['closest']} is {mean:+.2f} % [{low:+.2f}, {high:+.2f}] "
            f"({j['seeds']} paired seeds{'' if j['sure'] else '; a tie'})",
            f"  {'term':<10}{'flips below':>12}{'flips above':>12}{'mean regret':>13}"
            f"{'margin moves':>15}   winner there",
        ]
        for term in TERMS:
            t = j["terms"][term]
            sides = ["never" if t[s] is None else f"x{t[s]}" for s in ("below", "above")]
            winners = ", ".join(dict.fromkeys(f["winner"] for f in t["flips"])) or "-"
            lines.append(
                f"  {term:<10}{sides[0]:>12}{sides[1]:>12}{t['mean_regret_percent']:>11.3f} %"
                f"{t['margin_swing_percent']:>12.3f} pt   {winners}"
            )
        lines.append("")
    o = body["overall"]
    smallest = o["smallest"]
    if o["measure_first"] is None:
        return "\n".join([*lines, "Every choice is a tie: no error can overturn what was not decided."])
    lines.append(f"Over the cases whose choice is sure ({', '.join(o['cases'])}):")
    if smallest is None:
        lines.append("No error of one term that was tried makes another policy win beyond its interval.")
    else:
        lines.append(
            f"Smallest error that changes the winner: {smallest['term']} off by x{smallest['factor']} on "
            f"{smallest['case']}: {smallest['winner']} beats {smallest['chosen']} by "
            f"{smallest['regret_percent']:.2f} %."
        )
    for field, what in (
        ("mean_regret_percent", "latency lost on average where a term is unknown between half and twice"),
        ("margin_swing_percent", "how far the margin to the closest rival moves there"),
    ):
        lines.append(f"{what}: " + ", ".join(f"{term} {o[field][term]:.3f} %" for term in TERMS))
    lines.append(f"Measure first: {o['measure_first']} ({MEASURED_BY[o['measure_first']]}).")
    return "\n".join(lines)


def _flips(judged: dict[str, Any]) -> bool:
    return any(t["flips"] for t in judged["terms"].values())


def _progress(done: int, total: int) -> None:
    if done % 50 == 0 or done == total:
        print(f"{done}/{total} runs", file=sys.stderr, flush=True)
