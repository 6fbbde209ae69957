"""R27, R36, R37, R39: budgets against M(b), variants, batches, GPUs; each on both readings of the budget."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from experiments.cards.agentspec.methods import (
    REGIME,
    above_one,
    option,
    pairs,
    speedup,
    steps_of,
    workloads_of,
)
from experiments.cards.agentspec.studies import CAPPED, MODES, NORMAL, REGIMES, SUFFIX
from experiments.cards.results import Results
from experiments.cards.rows import BySeed, Check, Row, judged, mean, over_seeds, shown
from experiments.stats import mean_interval, paired_percent

INTENSITY = 1 << 8  # the paper's AI; the profile's own knee is shown beside it
_ROUNDING = 1e-6  # of means: every step of a capped budget may be at M(b) exactly
BATCH = "engine.max_num_seqs"
BINS = ((1, 1), (2, 4), (5, 16), (17, 64), (65, 128), (129, 255))


def budgets(results: Results) -> list[Row]:
    """Judge R27 for both readings, and show our cap beside them."""
    curves = {n: _drafted(results, p) for n, p in (*pairs("literal").items(), *_modes()) if p != NORMAL}
    curves.pop("AgentSpec")
    used = {
        n: {b: {s: at.tokens[s] / at.room(s) for s in at.tokens} for b, at in c.items()}
        for n, c in curves.items()
    }
    rows = []
    for name in (*MODES, "capped"):
        curve, share = curves[name], used[name]
        checks = []
        for b, at in curve.items():
            ok = all(at.tokens[s] <= at.room(s) + _ROUNDING for s in at.tokens)
            said = f"at {b:.0f} sequences {mean(at.tokens):.0f} drafted, M(b) {INTENSITY - b:.0f}"
            checks.append(Check(f"{said}, in every seed", ok))
        places = sorted(share)
        if len(places) > 1:
            first, last = share[places[0]], share[places[-1]]
            change = mean_interval([last[s] - first[s] for s in sorted(first.keys() & last.keys())])
            ok = change is not None and change.mean > 0
            checks.append(
                Check(
                    f"share of M(b) used rises from {places[0]:.0f} to {places[-1]:.0f}: {shown(change)}", ok
                )
            )
        for other in ("ngram", "suffix", "suffix + AdaSpec"):
            gaps = [
                (abs(mean(share[b]) - 1), abs(mean(used[other][b]) - 1)) for b in places if b in used[other]
            ]
            ok = bool(gaps) and float(np.mean([g[0] for g in gaps])) < float(np.mean([g[1] for g in gaps]))
            checks.append(Check(f"nearer to M(b) than {other}, on the mean over batches", ok))
        told = "; ".join(
            f"{n}: " + ", ".join(f"{b:.0f}: {mean(at.tokens):.1f}" for b, at in c.items())
            for n, c in curves.items() if n in (name, "ngram", "suffix", "suffix + AdaSpec")
        )  # fmt: skip
        note = ""
        if name == "capped":
            note = "our extension (A3): total at most M(b); it never drafts once the batch reaches AI"
        elif name == "literal":
            note = "A2: equation 2 divides by b and equation 3 shares the result, so that beyond a few requests only "
            note += "the consensus |CT*| is drafted; equation 3's maximum has no bound (A3)"
        rows.append(
            judged(
                "R27",
                told,
                f"budget {name}; taubench; AI as in the paper; steps without prefill",
                checks,
                note,
            )
        )
    return rows


def _modes() -> list[tuple[str, tuple[str, str]]]:
    return [(m, ("structured", w)) for m, w in (*MODES.items(), ("capped", CAPPED))]


@dataclass(frozen=True)
class Drafted:
    """A bin of batch sizes, by seed: mean sequences and mean tokens drafted in its steps."""

    seqs: BySeed
    tokens: BySeed

    def room(self, seed: int) -> float:
        """Return M(b) at the seed's own mean batch: the mean of M over its steps, since M is a line."""
        return INTENSITY - self.seqs[seed]


def _drafted(results: Results, pair: tuple[str, str]) -> dict[float, Drafted]:
    """Return what was drafted a step, by mean sequences of the bin over seeds."""
    by_bin: dict[int, dict[int, list[tuple[float, float]]]] = {}
    for found in results.plan.arms:
        if (found.policies["drafters"], found.policies["budgets"]) != pair or option(
            results, found, REGIME
        ) != "packed":
            continue
        for seed, log in results.logs(found).items():
            decode, drafted = steps_of(log)
            for i, (low, high) in enumerate(BINS):
                inside = (decode >= low) & (decode <= high)
                if np.count_nonzero(inside) >= 20:
                    by_bin.setdefault(i, {}).setdefault(seed, []).append(
                        (float(decode[inside].mean()), float(drafted[inside].mean()))
                    )
    out: dict[float, Drafted] = {}
    for _, seeds in sorted(by_bin.items()):
        seqs = {s: float(np.mean([b for b, _ in points])) for s, points in seeds.items()}
        tokens = {s: float(np.mean([d for _, d in points])) for s, points in seeds.items()}
        out[mean(seqs)] = Drafted(seqs, tokens)
    return out


def ablation(results: Results) -> list[Row]:
    """Judge R36's order: the full method at least S, S above R."""
    rows = []
    for regime in REGIMES:
        for mode, budget in MODES.items():
            variants = {
                "S": ("structured", "fixed_k(k=32)"), "R": ("suffix", budget),
                "N": ("structured(by_block=false)", budget), "all": ("structured", budget),
                "SuffixDecoding": SUFFIX,
            }  # fmt: skip
            checks, told = [], []
            for workload in workloads_of(results):
                axes: dict[str, object] = {"workload": workload, REGIME: regime}
                got = {n: speedup(results, axes, p) for n, p in variants.items()}
                told.append(f"{workload}: " + ", ".join(f"{n} {over_seeds(v, 2)}" for n, v in got.items()))
                for low, high in (("R", "S"), ("S", "all"), ("R", "all"), ("SuffixDecoding", "all")):
                    change = paired_percent(got[low], got[high])
                    ok = change is not None and change.mean > 0 and change.excludes_zero
                    checks.append(Check(f"{high} over {low} on {workload}: {shown(change)} %", ok))
            rows.append(
                judged(
                    "R36",
                    "; ".join(told),
                    f"order; attention {regime}; budget {mode}; S drafts up to 32",
                    checks,
                )
            )
    return rows


def batches(results: Results) -> list[Row]:
    """Judge R37: AgentSpec never below no drafting at any largest batch, n-grams and suffix trees somewhere."""
    sizes = sorted({int(str(option(results, a, BATCH))) for a in results.plan.arms})
    rows = []
    for regime in REGIMES:
        base: dict[str, object] = {"workload": "taubench", REGIME: regime}
        curves = {
            n: {b: speedup(results, {**base, BATCH: b}, p) for b in sizes}
            for n, p in (*pairs("literal").items(), *_modes()) if p != NORMAL
        }  # fmt: skip
        for mode in MODES:
            checks = [
                above_one(f"{mode} not below 1 at {b}", curves[mode][b], never_below=True) for b in sizes
            ]
            for other in ("ngram", "suffix"):
                below = [b for b in sizes if curves[other][b] and mean(curves[other][b]) < 1]
                checks.append(
                    Check(f"{other} falls below 1 somewhere: at {below or 'no batch'}", bool(below))
                )
            told = "; ".join(
                f"{n}: " + ", ".join(f"{b}: {over_seeds(c[b], 2)}" for b in sizes)
                for n, c in curves.items() if n in (mode, "ngram", "suffix", "suffix + AdaSpec")
            )  # fmt: skip
            rows.append(judged("R37", told, f"taubench; attention {regime}; budget {mode}", checks))
    return rows


def gpus(results: Results) -> list[Row]:
    """Judge R39: the speedup on a mixture of experts is larger on H100 than on A100."""
    rows = []
    for regime in REGIMES:
        for mode, budget in MODES.items():
            checks, told = [], []
            for workload in workloads_of(results):
                got = {
                    gpu: speedup(
                        results, {"workload": workload, "gpu": gpu, REGIME: regime}, ("structured", budget)
                    )
                    for gpu in ("A100", "H100")
                }
                change = paired_percent(got["A100"], got["H100"])
                ok = change is not None and change.mean > 0 and change.excludes_zero
                checks.append(Check(f"H100 over A100 on {workload}: {shown(change)} %", ok))
                checks += [above_one(f"{gpu} on {workload}", v) for gpu, v in got.items()]
                told.append(f"{workload}: " + ", ".join(f"{g} {over_seeds(v, 2)}" for g, v in got.items()))
            rows.append(
                judged(
                    "R39",
                    "; ".join(told),
                    f"gpt-oss-20b, mixture of experts; attention {regime}; budget {mode}",
                    checks,
                )
            )
    return rows
