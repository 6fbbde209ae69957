"""R25, R30, R34, R35: methods by workloads."""

from __future__ import annotations

import math

import numpy as np

from experiments.cards.agentspec.studies import ADASPEC, CAPPED, MODES, NGRAM, NORMAL, REGIMES, SUFFIX
from experiments.cards.results import Results
from experiments.cards.rows import (
    INCONSISTENT,
    VALUE_TOLERANCE,
    BySeed,
    Check,
    Row,
    judged,
    mean,
    near,
    over_seeds,
    shown,
)
from experiments.plan import Arm
from experiments.stats import paired_difference, paired_percent
from experiments.targets import target
from traces.runlog import RunLog

GOODPUT = "generated_tokens_per_s"
REGIME = "verify.attention"
CONTROL = "mtbench"
NAMES = {"no drafts": NORMAL, "ngram": NGRAM, "suffix": SUFFIX, "suffix + AdaSpec": ADASPEC}


def pairs(mode: str) -> dict[str, tuple[str, str]]:
    """Return method -> (drafter, budget); AgentSpec with its budget in `mode`."""
    return {**NAMES, "AgentSpec": ("structured", MODES.get(mode, CAPPED))}


def arm(results: Results, axes: dict[str, object], pair: tuple[str, str]) -> Arm | None:
    """Return the arm of a (drafter, budget) where options have these values, swept or not; None without one."""
    for found in results.plan.arms:
        if (found.policies["drafters"], found.policies["budgets"]) == pair and all(
            option(results, found, name) == value for name, value in axes.items()
        ):
            return found
    return None


def option(results: Results, found: Arm, name: str) -> object:
    """Return an option of an arm by its dotted name: the axis' value, else the plan's."""
    value: object = results.plan.config
    for part in name.split("."):
        value = value.get(part) if isinstance(value, dict) else None
    return found.axes.get(name, value)


def workloads_of(results: Results) -> list[str]:
    """Return the workloads of a study, in order."""
    return list(dict.fromkeys(str(option(results, a, "workload")) for a in results.plan.arms))


def speedup(results: Results, axes: dict[str, object], pair: tuple[str, str]) -> BySeed:
    """Return goodput over that without drafting, by seed; empty where a run is missing."""
    base = results.metric(arm(results, axes, NORMAL), GOODPUT)
    other = results.metric(arm(results, axes, pair), GOODPUT)
    return {s: other[s] / base[s] for s in sorted(base.keys() & other.keys()) if base[s] > 0}


def above_one(name: str, values: BySeed, *, never_below: bool = False) -> Check:
    """Check that a speedup exceeds 1, its 95 % interval included; never_below: that it is not below 1."""
    change = paired_percent(dict.fromkeys(values, 1.0), values)
    if never_below:
        ok = change is not None and not (change.excludes_zero and change.mean < 0)
    else:
        ok = change is not None and change.mean > 0 and change.excludes_zero
    return Check(f"{name}: {shown(change)} %", ok)


def rejection(results: Results) -> Row:
    """Judge R25 on the Reflexion agents."""
    axes: dict[str, object] = {"workload": "reflexion", REGIME: "packed"}
    wanted = target("R25").values
    found = {
        n: results.metric(arm(results, axes, pairs("literal")[m]), "rejection_rate_mean")
        for n, m in (("ngram", "ngram"), ("suffix", "suffix"), ("agentspec", "AgentSpec"))
    }
    pooled = {
        n: mean(
            {
                s: 1 - v
                for s, v in results.metric(arm(results, axes, pairs("literal")[m]), "acceptance_rate").items()
            }
        )
        for n, m in (("ngram", "ngram"), ("suffix", "suffix"), ("agentspec", "AgentSpec"))
    }
    checks = []
    for low, high in (("agentspec", "suffix"), ("suffix", "ngram"), ("agentspec", "ngram")):
        change = paired_difference(found[low], found[high])
        ok = change is not None and change.mean > 0 and change.excludes_zero
        checks.append(Check(f"{low} rejects less than {high}: {shown(change)}", ok))
    checks += [near(n, mean(v), wanted[n], VALUE_TOLERANCE) for n, v in found.items()]
    ours = "; ".join(f"{n} {over_seeds(v, 3)} (ratio of sums {pooled[n]:.3f})" for n, v in found.items())
    return judged(
        "R25", ours,
        "ReAct agents with reflection on HotpotQA, GPT outputs replayed; mean over requests of ratios; AgentSpec's "
        "budget literal; n-grams of 4 to 4", checks, "EAGLE-3: not attempted, its acceptance is an input here",
    )  # fmt: skip


def table(results: Results) -> list[Row]:
    """Judge R30's order on each workload under both regimes and modes, and show its throughput beside ours."""
    rows = []
    for regime in REGIMES:
        for mode in MODES:
            checks, told = [], []
            for workload in workloads_of(results):
                axes: dict[str, object] = {"workload": workload, REGIME: regime}
                got = {n: speedup(results, axes, p) for n, p in pairs(mode).items() if p != NORMAL}
                told.append(f"{workload}: " + ", ".join(f"{n} {over_seeds(v, 2)}" for n, v in got.items()))
                if workload == CONTROL:
                    continue
                checks.append(above_one(f"AgentSpec on {workload}", got["AgentSpec"]))
                for name in ("ngram", "suffix"):
                    change = paired_percent(got[name], got["AgentSpec"])
                    ok = change is not None and change.mean > 0 and change.excludes_zero
                    checks.append(Check(f"AgentSpec over {name} on {workload}: {shown(change)} %", ok))
            rows.append(
                judged(
                    "R30", "; ".join(told),
                    f"only as shape: other agents, outputs of other models; attention {regime}; budget {mode}", checks,
                )
            )  # fmt: skip
    rows.append(_throughput(results))
    return rows


def _throughput(results: Results) -> Row:
    """Show contradiction A19: which batch the published throughput without drafting belongs to."""
    from calibration import catalog

    profile = catalog.open(str(results.plan.config["profile"]))
    context = 2048
    rates = {b: b / (profile.step_ps(b, b, b * context) * 1e-12) for b in range(1, 257)}
    published = target("R30").values["normal_tokens_per_s"]
    batches = [min(rates, key=lambda b: abs(rates[b] - wanted)) for wanted in published]
    ours = "; ".join(
        f"{wanted:g} tokens/s is a batch of {b}" for wanted, b in zip(published, batches, strict=True)
    )
    return Row(
        "R30", f"{ours}; the profile's {max(rates)} sequences give {rates[max(rates)]:.0f} tokens/s",
        f"A19: published throughput without drafting against a largest batch of {max(rates)}; {profile.name}, "
        f"{context} tokens of context",
        INCONSISTENT, note="either the mean batch was small, or tool time is inside; losses of n-grams at such batches "
        "cannot come from the verification of dense layers",
    )  # fmt: skip


def breakdown(results: Results) -> Row:
    """Judge R34: where the time goes, drafting against verification."""
    axes: dict[str, object] = {"workload": "taubench", REGIME: "packed"}
    checks, told = [], []
    verify: dict[str, BySeed] = {}
    for name in ("ngram", "suffix", "AgentSpec"):
        found = arm(results, axes, pairs("literal")[name])
        if found is None:
            continue
        draft, rest = {}, {}
        for seed, run in results.runs(found).items():
            stats = results.store.manifest(run.name)["stats"]
            busy = float(results.logs(found)[seed].column("steps", "duration_ns").sum())
            draft[seed], rest[seed] = stats["draft_ns"] / 60e9, (busy - stats["draft_ns"]) / 60e9
        verify[name] = rest
        told.append(f"{name}: drafting {over_seeds(draft, 3)} min, the rest {over_seeds(rest, 3)} min")
        checks.append(Check(f"{name}: drafting is the smaller part", mean(draft) < mean(rest)))
    for name in ("ngram", "suffix"):
        change = paired_percent(verify.get(name, {}), verify.get("AgentSpec", {}))
        ok = change is not None and change.mean < 0 and change.excludes_zero
        checks.append(Check(f"AgentSpec verifies for less time than {name}: {shown(change)} %", ok))
    return judged(
        "R34", "; ".join(told), "taubench instead of code generation; drafting at assumed costs of the targets' code",
        checks,
    )  # fmt: skip


def latency(results: Results) -> Row:
    """Judge R35: latency of workflows at P90 and P99 against no drafting."""
    axes: dict[str, object] = {"workload": "taubench", REGIME: "packed"}
    wanted = target("R35").values
    base = arm(results, axes, NORMAL)
    other = arm(results, axes, pairs("literal")["AgentSpec"])
    checks, told = [], []
    for part in ("p90", "p99"):
        metric = f"workflow_latency_s_{part}"
        plain, drafted = results.metric(base, metric), results.metric(other, metric)
        change = paired_percent(plain, drafted)
        checks.append(
            Check(
                f"{part} falls: {shown(change)} %",
                change is not None and change.mean < 0 and change.excludes_zero,
            )
        )
        ratio = mean(plain) / mean(drafted) if drafted else math.nan
        checks.append(near(f"{part} ratio", ratio, wanted[f"{part}_ratio"], VALUE_TOLERANCE))
        told.append(f"{part}: {ratio:.2f} times shorter")
    return judged("R35", "; ".join(told), "taubench instead of code generation; budget literal", checks)


def steps_of(log: RunLog) -> tuple[np.ndarray, np.ndarray]:
    """Return decoding sequences and drafted tokens of each step that decodes and prefills nothing."""
    decode, prefill, drafted = log.columns("steps", "decode_seqs", "prefill_seqs", "drafted_tokens")
    keep = (decode > 0) & (prefill == 0)
    return decode[keep].astype(np.int64), drafted[keep].astype(np.int64)
