"""Every number of the result table with its interval and seeds, as JSON that is the same bytes every time.

`summarise` reads the complete runs of a plan, one at a time, and nothing else. Arms are compared with the
first arm at the same point of the axes, seed by seed.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from experiments import calibrated
from experiments.calibrated import Draws
from experiments.columns import COLUMNS, Column
from experiments.headline import headline
from experiments.plan import Arm, Plan
from experiments.stats import CONFIDENCE, Interval, holm, mean_interval, paired_difference, paired_percent
from experiments.store import Store, write_whole
from experiments.summary_run import Run, differently_finished, read, read_metrics
from experiments.summary_warnings import all_warnings, arm_warnings
from traces.definitions import DEFINITIONS, SHARES, UNITS, Slo
from traces.quantiles import Sample
from traces.windows import WINDOWS

SUMMARY_SCHEMA = 1
SUMMARY = "summary.json"
Json = dict[str, Any]
# Percentiles over the requests of all seeds together, beside the mean over seeds of each seed's own.
POOLED = {
    "ttft_ms_p50": ("ttft", 50.0),
    "ttft_ms_p99": ("ttft", 99.0),
    "itl_ms_p99": ("itl", 99.0),
    "workflow_latency_s_p99": ("workflow", 99.0),
}


def summarise(plan: Plan, store: Store) -> Json:
    """Return the summary of all complete runs of `plan`; runs that are missing are listed, not guessed."""
    slo = Slo(**plan.slo)
    kept: dict[str, Run] = {}
    groups = []
    for point in plan.axis_points():
        arms = [a for a in plan.arms if a.axes == point]
        group, runs = _group(point, arms, plan, store, slo, kept)
        if plan.draws:
            _add_calibration(group["arms"], runs, plan, store, slo)
        groups.append(group)
    missing = [m for g in groups for a in g["arms"] for m in a["missing"]]
    body: Json = {
        "schema": SUMMARY_SCHEMA,
        "name": plan.name,
        "command": plan.command,
        "seeds": sorted(plan.seeds),
        "confidence": CONFIDENCE,
        "interval": "Student t over seeds, of a mean cut where the metric cannot be; differences are paired by seed"
        if len(plan.seeds) > 1
        else "none: an interval needs at least two seeds",
        "slo": {"ttft_ms": slo.ttft_ms, "tpot_ms": slo.tpot_ms},
        "groups": groups,
        "metrics": {k: {"definition": DEFINITIONS[k], "unit": UNITS[k]} for k in DEFINITIONS},
        **({"profile_draws": plan.draw_count} if plan.draws else {}),
        "table": [c.key for c in COLUMNS],
        "workload": plan.workload,
        "profile": plan.profile,
        "kv": plan.kv,
        "config": _results_only(plan.config),
        "changed": _results_only(plan.changed),
        "notes": list(plan.notes),
        "warnings": all_warnings(groups, plan),
        "failures": missing,
    }
    body["headline"] = headline(body)
    cleaned: Json = _clean(body)
    return cleaned


def to_json(summary: Mapping[str, Any]) -> str:
    """Return the summary as JSON text: sorted keys, no NaN, ten significant digits."""
    return json.dumps(summary, indent=1, sort_keys=True, allow_nan=False) + "\n"


def write_summary(summary: Mapping[str, Any], directory: Path) -> Path:
    """Write `summary.json` into `directory`, whole or not at all; return its path."""
    path = directory / SUMMARY
    write_whole(path, to_json(summary))
    return path


def _group(
    point: Json, arms: Sequence[Arm], plan: Plan, store: Store, slo: Slo, kept: dict[str, Run]
) -> tuple[Json, list[dict[int, Run]]]:
    runs: list[dict[int, Run]] = []
    entries = []
    for arm in arms:
        found: dict[int, Run] = {}
        missing = []
        for seed in sorted(plan.seeds):
            run_id = plan.runs.get((arm.label, seed), "")
            if run_id and store.has(run_id):
                if run_id not in kept:
                    kept[run_id] = read(store, run_id, slo)
                found[seed] = kept[run_id]
            else:
                reason = plan.failures.get((arm.label, seed), "not run")
                missing.append({"arm": arm.label, "seed": seed, "reason": reason})
        runs.append(found)
        entries.append(_arm(arm, found, missing, plan))
    for entry, found in zip(entries, runs, strict=True):
        shared = sorted(set(runs[0]) & set(found))
        entry["finished_otherwise"] = {str(s): differently_finished(runs[0][s], found[s]) for s in shared}
    for window in WINDOWS:
        _compare(entries, runs, window)
    return {"axes": point, "baseline": arms[0].label, "arms": entries}, runs


def _add_calibration(
    entries: Sequence[Json], runs: Sequence[Mapping[int, Run]], plan: Plan, store: Store, slo: Slo
) -> None:
    """Add to each metric and each change of the table its interval with calibration error. Mutates entries."""
    drawn: list[dict[int, dict[str, dict[str, float]]]] = []
    for entry in entries:
        found = {d: plan.draws[entry["label"], d] for d in range(plan.draw_count)}
        there = {d: read_metrics(store, run, slo) for d, run in found.items() if store.has(run)}
        drawn.append(there)
        entry["profile_draws"] = sorted(there)
        if lost := len(found) - len(there):
            entry["warnings"].append(f"{lost} of {len(found)} runs under drawn profiles are missing")
    for window in WINDOWS:
        for column in COLUMNS:
            key = column.key
            values = [{s: r.metrics[window][key] for s, r in found.items()} for found in runs]
            under = [Draws({d: m[window][key] for d, m in of.items()}, plan.draw_seed) for of in drawn]
            for entry, v, u in zip(entries, values, under, strict=True):
                if (metric := entry["windows"][window]["metrics"][key]) is not None:
                    both = calibrated.with_calibration(v, u.values, plan.draw_seed)
                    metric["calibrated"] = _maybe(both and _possible(both, key), "p")
            changes = [
                calibrated.change(column, values[0], v, under[0], u)
                for v, u in zip(values[1:], under[1:], strict=True)
            ]
            adjusted = holm([None if c is None else c.p for c in changes])
            for entry, change, p_holm in zip(entries[1:], changes, adjusted, strict=True):
                if (shown := entry["windows"][window]["change"][key]) is not None:
                    body = _maybe(change)
                    shown["calibrated"] = None if body is None else body | {"p_holm": p_holm}


def _maybe(interval: Interval | None, without: str = "") -> Json | None:
    return None if interval is None else {k: v for k, v in _interval(interval).items() if k != without}


def _arm(arm: Arm, runs: Mapping[int, Run], missing: list[Json], plan: Plan) -> Json:
    first = next(iter(runs.values())).manifest if runs else {}
    ratios = {seed: _fast_forward(run.manifest) for seed, run in runs.items()}
    return {
        "label": arm.label,
        "name": arm.name or arm.label,
        "offline_reference": arm.offline_reference,
        "policies": arm.policies,
        "overrides": list(arm.overrides),
        "axes": arm.axes,
        "seeds": sorted(runs),
        "run_ids": {str(s): plan.runs[arm.label, s] for s in runs},
        "missing": missing,
        "kv": first.get("kv", plan.kv),
        "fast_forward_ratio": _estimate(ratios, "fast_forward_ratio"),
        "windows": {
            w: {"metrics": {k: _metric(k, w, runs) for k in DEFINITIONS}, "change": {}} for w in WINDOWS
        },
        "warnings": arm_warnings({s: r.warnings for s, r in runs.items()}),
    }


def _metric(key: str, window: str, runs: Mapping[int, Run]) -> Json | None:
    out = _estimate({seed: run.metrics[window][key] for seed, run in runs.items()}, key)
    if out is not None and key in POOLED:
        sample, percent = POOLED[key]
        out["pooled"] = _pool([r.samples[window][sample] for r in runs.values()]).percentiles(percent)[0]
    return out


def _pool(samples: Sequence[Sample]) -> Sample:
    values = np.concatenate([s.value for s in samples])
    if all(s.count is None for s in samples):
        return Sample(values)
    return Sample(
        values,
        np.concatenate([np.ones(len(s.value), np.int64) if s.count is None else s.count for s in samples]),
    )


def _compare(entries: Sequence[Json], runs: Sequence[Mapping[int, Run]], window: str) -> None:
    """Add each arm's change against the first arm, with Holm's correction over the arms. Mutates entries."""
    for column in COLUMNS:
        changes = []
        for found in runs[1:]:
            base, other = ({s: r.metrics[window][column.key] for s, r in f.items()} for f in (runs[0], found))
            changes.append(_change(column, base, other))
        adjusted = holm([None if c is None else c.p for c in changes])
        for entry, change, p_holm in zip(entries[1:], changes, adjusted, strict=True):
            entry["windows"][window]["change"][column.key] = (
                None if change is None else _interval(change) | {"unit": column.change_unit, "p_holm": p_holm}
            )


def _change(column: Column, base: Mapping[int, float], other: Mapping[int, float]) -> Interval | None:
    if column.change == "percent":
        return paired_percent(base, other)
    scale = column.scale
    return paired_difference(
        {s: scale * v for s, v in base.items()}, {s: scale * v for s, v in other.items()}
    )


def _estimate(values: Mapping[int, float], key: str) -> Json | None:
    interval = mean_interval(list(values.values()))
    if interval is None:
        return None
    out = _interval(_possible(interval, key))
    del out["p"]  # "the mean of a metric is 0" is no question anyone asks
    return out | {"per_seed": {str(s): v for s, v in values.items()}}


def _interval(i: Interval) -> Json:
    return {"mean": i.mean, "low": i.low, "high": i.high, "n": i.n, "p": i.p}


def _possible(interval: Interval, key: str) -> Interval:
    """Cut an interval at the values that the metric can have; all are counts, times, rates or shares."""
    return interval.within(0.0, 1.0 if key in SHARES or key == "fast_forward_ratio" else math.inf)


def _fast_forward(manifest: Mapping[str, Any]) -> float:
    value = (manifest.get("stats") or {}).get("fast_forward_ratio")
    return math.nan if value is None else float(value)


def _results_only(options: Mapping[str, Any]) -> Json:
    """Leave out where runs lie and who runs them: neither may change a byte of the results."""
    return {k: v for k, v in options.items() if k.partition(".")[0] not in ("store", "executor")}


def _clean(value: Any) -> Any:
    """Return plain JSON data: NaN becomes null, floats keep ten significant digits, tuples become lists."""
    if isinstance(value, Mapping):
        return {str(k): _clean(v) for k, v in value.items()}
    if isinstance(value, list | tuple):
        return [_clean(v) for v in value]
    if isinstance(value, float | np.floating):
        return float(f"{value:.10g}") if math.isfinite(value) else None
    return int(value) if isinstance(value, np.integer) else value
