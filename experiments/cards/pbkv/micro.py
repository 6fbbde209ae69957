"""R61 and R62: what a decision costs, and the bounds of appendix G."""

from __future__ import annotations

from experiments import bench_policies
from experiments.cards.pbkv.theorem import check
from experiments.cards.rows import INCONSISTENT, Check, Row, judged
from experiments.targets import target

COSTS = {
    "evict_ms": ("evict decision (choose and remove one node)", 1e3),
    "score_us": ("score update of one node", 1.0),
    "prefetch_ms": ("prefetch decision (whole host tier)", 1e3),
    "predict_ms": ("predictor forward, all workflows", 1e3),
}


def rows(instances: int) -> list[Row]:
    """Return both rows. instances: random instances of appendix G."""
    return [_costs(), _theorem(instances)]


def _costs() -> Row:
    wanted = target("R61").values
    loads = (72, 720)
    found = bench_policies.measure(bench_policies.DEFAULT_PREDICTOR, loads)["cost_us"]
    checks, told = [], []
    for key, (name, unit) in COSTS.items():
        ours, more = (found[name][str(n)]["median"] / unit for n in loads)
        told.append(f"{key} {ours:.3g} ({more:.3g} at {loads[1]} workflows)")
        checks.append(Check(f"{key} {ours:.3g}, at most {wanted[key]}", ours <= wanted[key], "value"))
    for name in (COSTS["evict_ms"][0], COSTS["score_us"][0]):
        growth = found[name][str(loads[1])]["median"] / found[name][str(loads[0])]["median"]
        checks.append(Check(f"{name} grows {growth:.1f}-fold at ten times the nodes", growth < 3))
    row = judged(
        "R61",
        "; ".join(told),
        "medians, Python on this machine; Markov forecasts; a whole host tier offered",
        checks,
    )
    note = (
        f"DecodeStep ({'/'.join(map(str, wanted['decode_ms']))} ms) is {INCONSISTENT}: its mean is below the time"
        " that two such GPUs need to read the weights once"
    )
    return Row(row.id, row.ours, row.reading, row.verdict, row.checks, note)


def _theorem(instances: int) -> Row:
    found = check(instances)
    checks = [
        Check(f"lemma G.2 on {found.instances} instances", found.lipschitz_failures == 0),
        Check(f"theorem G.4 on {found.instances} instances", found.regret_failures == 0),
        Check(
            f"largest regret {found.largest_share:.2f} of its bound",
            found.largest_share <= 1,
            "value",
        ),
    ]
    ours = f"{found.lipschitz_failures} and {found.regret_failures} failures in {found.instances} instances"
    return judged("R62", ours, "scores of the served code, unit-size nodes", checks)
