"""Predictions beside measurements that were not fitted: errors, ranking of configurations, two simpler models.

Every case carries the same four figures measured and predicted: TTFT, TPOT, E2E in ms and generated tokens a
second. `fitted` marks cases that a constant was fitted on; headline numbers are over the others.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import nnls
from scipy.stats import kendalltau

from calibration.stats import absolute_error

Floats = NDArray[np.float64]
METRICS = ("ttft_ms", "tpot_ms", "e2e_ms", "throughput_tok_s")
MODELS = ("foreserve", "catalogue", "roofline", "linear")


@dataclass(frozen=True)
class Case:
    """One measured configuration.

    group       what it is reported under
    contest     configurations that do the same work and can be ranked against each other; "" for none
    gpus        GPUs it used: rankings are by throughput a GPU
    part        the split of the linear fit: a case is predicted by a fit to the other parts of its group
    measured    METRICS, float64[4]; nan where not known
    predicted   by model of MODELS, float64[4]
    features    physical quantities that the linear fit may use, float64[F]
    tokens      output tokens, and concurrency requests in flight (nan in an open loop)
    fitted      whether a constant of ours was fitted on it
    """

    group: str
    contest: str
    gpus: int
    part: str
    measured: Floats
    predicted: dict[str, Floats]
    features: Floats
    tokens: int
    concurrency: float
    fitted: bool = False


def steady(ttft_ms: float, tpot_ms: float, osl: int, concurrency: float) -> Floats:
    """Return METRICS of a closed loop from its mean TTFT and TPOT (throughput by Little's law)."""
    e2e = ttft_ms + tpot_ms * (osl - 1)
    return np.array([ttft_ms, tpot_ms, e2e, concurrency * osl / e2e * 1e3])


def with_linear(cases: Sequence[Case]) -> list[Case]:
    """Return the cases with the linear model's predictions: TTFT and TPOT as non-negative sums of the features.

    Fitted by relative least squares on the group's other parts; end to end and throughput follow from the two.
    """
    out = []
    for case in cases:
        others = [c for c in cases if c.group == case.group and c.part != case.part]
        if len(others) <= case.features.size:
            out.append(case)
            continue
        x = np.stack([c.features for c in others])
        ttft, tpot = (
            float(case.features @ nnls(x / y[:, None], np.ones(len(others)))[0])
            for y in (np.array([c.measured[j] for c in others]) for j in (0, 1))
        )
        guess = steady(ttft, tpot, case.tokens, case.concurrency)
        out.append(replace(case, predicted={**case.predicted, "linear": guess}))
    return out


def errors(cases: Sequence[Case]) -> dict[str, dict[str, dict[str, float | int]]]:
    """Return {model: {metric: MAPE, p95, bias in percent, rows}}."""
    out: dict[str, dict[str, dict[str, float | int]]] = {}
    for model in MODELS:
        for j, metric in enumerate(METRICS):
            relative = np.array(
                [c.predicted[model][j] / c.measured[j] - 1 for c in cases if model in c.predicted]
            )
            relative = relative[np.isfinite(relative)]
            if relative.size:
                out.setdefault(model, {})[metric] = absolute_error(relative)
    return out


def ranking(cases: Sequence[Case], model: str) -> dict[str, float | int] | None:
    """Return how well a model ranks configurations by tokens a second a GPU, over contests of three or more.

    kendall_tau: mean over contests. top1_regret_percent: what the configuration it would choose falls short of the
    measured best, mean over contests.
    """
    taus, regrets = [], []
    chosen = sorted((c for c in cases if c.contest and model in c.predicted), key=lambda c: c.contest)
    for _, members in groupby(chosen, key=lambda c: c.contest):
        rows = list(members)
        measured = np.array([c.measured[3] / c.gpus for c in rows])
        predicted = np.array([c.predicted[model][3] / c.gpus for c in rows])
        if len(rows) < 3 or not (np.isfinite(measured).all() and np.isfinite(predicted).all()):
            continue
        taus.append(float(kendalltau(measured, predicted).statistic))
        regrets.append(100 * (1 - float(measured[int(predicted.argmax())] / measured.max())))
    if not taus:
        return None
    return {
        "kendall_tau": round(float(np.mean(taus)), 3),
        "top1_regret_percent": round(float(np.mean(regrets)), 1),
        "contests": len(taus),
    }


def report(cases: Sequence[Case]) -> dict[str, Any]:
    """Return errors and rankings by group, fitted and held-out cases apart."""
    out: dict[str, Any] = {}
    for group in sorted({c.group for c in cases}):
        for label, fitted in (("held out", False), ("fitted", True)):
            part = [c for c in cases if c.group == group and c.fitted is fitted]
            if part:
                ranks = {m: r for m in MODELS if (r := ranking(part, m)) is not None}
                out.setdefault(group, {})[label] = {
                    "cases": len(part),
                    "errors": errors(part),
                    "ranking": ranks,
                }
    return out


def text(body: dict[str, Any]) -> str:
    """Return a report as a table of lines."""
    lines = []
    for group, halves in body.items():
        for label, part in halves.items():
            lines.append(f"{group} ({label}, {part['cases']} cases), MAPE / p95 / bias in %")
            for model, metrics in part["errors"].items():
                cells = "  ".join(
                    f"{m.split('_')[0]} {e['mape_percent']:.1f}/{e['p95_percent']:.1f}/{e['bias_percent']:+.1f}"
                    for m, e in metrics.items()
                )
                rank = part["ranking"].get(model)
                tail = (
                    f"  tau {rank['kendall_tau']:.2f} regret {rank['top1_regret_percent']:.1f} %"
                    if rank
                    else ""
                )
                lines.append(f"  {model:10}{cells}{tail}")
    return "\n".join(lines)
