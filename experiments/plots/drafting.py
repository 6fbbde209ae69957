"""What drafting does at one point of the axes: tokens drafted a step, rejection, time spent, gain by batch."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from experiments.plots.labels import legend
from experiments.plots.source import ArmRuns, Float, n_seeds
from experiments.plots.style import MUTED, PAGE_INCHES, Axes, Look, seeds_note
from experiments.stats import mean_interval
from traces.metrics import run_metrics
from traces.runlog import RunLog

TITLE = "Drafting"
MOSAIC = (("tokens", "rejected"), ("gain", "time"))
SIZE = (PAGE_INCHES, 4.6)
CAPTION = (
    "Left: by sequences that decode together (steps without prefill): draft tokens verified a step against AgentSpec's "
    "M(b) = 256 - b, and tokens a second of the step over those of the first arm's steps of that batch. Right: "
    "rejected share, mean over requests, 95 % interval over seeds; time in steps that verify drafts, in other steps."
)
EDGES = (1, 2, 3, 5, 9, 17, 33, 65, 129, 257)
INTENSITY = 1 << 8  # AI of AgentSpec's section 3.2
STEPS_MIN = 20


@dataclass(frozen=True)
class Curve:
    """One arm by batch, NaN where there are too few steps: mean batch, drafted tokens, tokens a second of step."""

    look: Look
    batch: Float
    drafted: Float
    rate: Float


@dataclass(frozen=True)
class Data:
    """curves: every arm's. bars: look, (mean, low, high) of the rejected share or None, hours verifying and not."""

    curves: list[Curve]
    bars: list[tuple[Look, tuple[float, float, float] | None, float, float]]
    seeds: tuple[int, ...]


def data(arms: Sequence[ArmRuns]) -> Data:
    """Read steps and requests of the arms."""
    curves, bars = [], []
    for arm in arms:
        steps = [by_batch(run) for run in arm.runs]
        total = np.sum(steps, axis=0)
        enough = total[:, 0] >= STEPS_MIN
        with np.errstate(invalid="ignore", divide="ignore"):
            batch, drafted, rate = (
                np.where(enough, column, np.nan)
                for column in (
                    total[:, 1] / total[:, 0],
                    total[:, 2] / total[:, 0],
                    total[:, 3] / total[:, 4] * 1e9,
                )
            )
        curves.append(Curve(arm.look, batch, drafted, rate))
        rejected = mean_interval([run_metrics(run)["rejection_rate_mean"] for run in arm.runs])
        band = None
        if rejected is not None:
            low = rejected.mean if rejected.low is None else rejected.low
            high = rejected.mean if rejected.high is None else rejected.high
            band = (rejected.mean, low, high)
        bars.append((arm.look, band, *_hours(arm.runs)))
    return Data(curves, bars, n_seeds(arms))


def by_batch(run: RunLog) -> NDArray[np.float64]:
    """Return float64[bins, 5]: steps, sequences, drafted, emitted tokens and ns of steps without prefill."""
    decode, prefill, drafted, accepted, duration = run.columns(
        "steps", "decode_seqs", "prefill_seqs", "drafted_tokens", "accepted_tokens", "duration_ns"
    )
    keep = (decode > 0) & (prefill == 0)
    where = np.digitize(decode[keep], EDGES) - 1
    columns = (
        np.ones(len(where)),
        decode[keep],
        drafted[keep],
        decode[keep] + accepted[keep],
        duration[keep],
    )
    return np.stack([np.bincount(where, c, minlength=len(EDGES)) for c in columns], axis=1)


def _hours(runs: Sequence[RunLog]) -> tuple[float, float]:
    verifying = rest = 0.0
    for run in runs:
        drafted, duration = run.columns("steps", "drafted_tokens", "duration_ns")
        verifying += float(duration[drafted > 0].sum()) / 6e10 / len(runs)
        rest += float(duration[drafted == 0].sum()) / 6e10 / len(runs)
    return verifying, rest


def draw(data: Data, axes: Axes) -> None:
    """Draw the four panels. Mutates axes."""
    base = data.curves[0]
    reach = np.arange(1.0, INTENSITY + 1)
    axes["tokens"].plot(reach, INTENSITY - reach, color=MUTED, linewidth=0.9, linestyle=(0, (2, 2)))
    axes["tokens"].annotate("M(b)", (90, INTENSITY - 88), color=MUTED, fontsize=7.5)
    axes["gain"].axhline(1.0, color=MUTED, linewidth=0.8)
    for curve in data.curves[1:]:
        look = curve.look
        style: dict[str, Any] = {
            "color": look.color,
            "linestyle": look.dash,
            "marker": look.marker,
            "markersize": 3.5,
        }
        axes["tokens"].plot(curve.batch, curve.drafted, **style)
        axes["gain"].plot(curve.batch, curve.rate / base.rate, **style)
    for name, title in (
        ("tokens", "draft tokens a step"),
        ("gain", f"tokens a second against {base.look.label}"),
    ):
        axes[name].set_xscale("log", base=2)
        axes[name].set_xlim(1, INTENSITY)
        axes[name].set_xticks([1, 4, 16, 64, 256], ["1", "4", "16", "64", "256"])
        axes[name].minorticks_off()
        axes[name].set_xlabel("sequences decoding together")
        axes[name].set_title(title, fontweight="normal")
        axes[name].set_ylim(bottom=0)
    for row, (look, band, verifying, rest) in enumerate(data.bars):
        if band is not None:
            axes["rejected"].barh(row, band[0], color=look.color, height=0.6)
            axes["rejected"].plot(band[1:], [row, row], color=MUTED, linewidth=1.2)
        axes["time"].barh(row, verifying, color=look.color, height=0.6)
        axes["time"].barh(row, rest, left=verifying, color=look.color, height=0.6, alpha=0.35)
    for name, title in (
        ("rejected", f"rejected share of drafts ({seeds_note(data.seeds)})"),
        ("time", "minutes in steps with drafts (dark) and without"),
    ):
        axes[name].set_yticks([])
        axes[name].set_ylim(len(data.bars) - 0.5, -0.5)
        axes[name].grid(False, axis="y")
        axes[name].set_title(title, fontweight="normal")
    legend(axes["tokens"].figure, [c.look for c in data.curves], markers=True)
