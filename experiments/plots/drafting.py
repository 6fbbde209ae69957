"""What drafting does at one point of the axes: tokens drafted a step, rejection, time spent, gain by batch."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from experiments.draft_gain import Price, by_batch
from experiments.plots.labels import legend
from experiments.plots.source import ArmRuns, Float, n_seeds
from experiments.plots.style import MUTED, PAGE_INCHES, Axes, Look, seeds_note
from experiments.stats import mean_interval
from traces.metrics import run_metrics
from traces.runlog import RunLog

TITLE = "Drafting"
MOSAIC = (("tokens", "rejected"), ("gain", "saved"), ("time", "time"))
RATIOS = {"height_ratios": (1.0, 1.0, 0.75)}
SIZE = (PAGE_INCHES, 6.2)
CAPTION = (
    "By sequences that decode together (steps without prefill): draft tokens verified a step against AgentSpec's M(b) "
    "= 256 - b; how many times faster the tokens came than by plain decoding at that batch and context; minutes saved. "
    "Rejected share: mean over requests, 95 % interval over seeds. Time: drafting, other time of steps that verify "
    "drafts, steps without drafts (dark to light); mean over seeds."
)
INTENSITY = 1 << 8  # AI of AgentSpec's section 3.2
STEPS_MIN = 20


@dataclass(frozen=True)
class Curve:
    """One arm by batch, NaN where there are too few steps: mean batch, drafted tokens, speedup, minutes saved."""

    look: Look
    batch: Float
    drafted: Float
    speedup: Float
    saved: Float


@dataclass(frozen=True)
class Data:
    """curves: every arm's. bars: look, (mean, low, high) of the rejected share or None, minutes by kind."""

    curves: list[Curve]
    bars: list[tuple[Look, tuple[float, float, float] | None, tuple[float, float, float]]]
    seeds: tuple[int, ...]


def data(arms: Sequence[ArmRuns], price: Price, draft_ns: Sequence[Sequence[int]]) -> Data:
    """Read steps and requests of the arms.

    price: of a plain step (`experiments.draft_gain`). draft_ns: time spent drafting, of each run of each arm.
    """
    curves, bars = [], []
    for arm, drafting in zip(arms, draft_ns, strict=True):
        total = np.sum([by_batch(run, price) for run in arm.runs], axis=0)
        steps, seqs, drafted, spent, plain = np.where(total[:, :1] >= STEPS_MIN, total, np.nan).T
        saved = (plain - spent) / 6e10 / len(arm.runs)
        curves.append(Curve(arm.look, seqs / steps, drafted / steps, plain / spent, saved))
        rejected = mean_interval([run_metrics(run)["rejection_rate_mean"] for run in arm.runs])
        band = None
        if rejected is not None:
            low = rejected.mean if rejected.low is None else rejected.low
            high = rejected.mean if rejected.high is None else rejected.high
            band = (rejected.mean, low, high)
        bars.append((arm.look, band, _minutes(arm.runs, drafting)))
    return Data(curves, bars, n_seeds(arms))


def _minutes(runs: Sequence[RunLog], drafting: Sequence[int]) -> tuple[float, float, float]:
    verifying = rest = 0.0
    for run in runs:
        drafted, duration = run.columns("steps", "drafted_tokens", "duration_ns")
        verifying += float(duration[drafted > 0].sum())
        rest += float(duration[drafted == 0].sum())
    spent = float(sum(drafting))
    minute = 6e10 * len(runs)
    return spent / minute, max(verifying - spent, 0.0) / minute, rest / minute


def draw(data: Data, axes: Axes) -> None:
    """Draw the panels. Mutates axes."""
    reach = np.arange(1.0, INTENSITY + 1)
    axes["tokens"].plot(reach, INTENSITY - reach, color=MUTED, linewidth=0.9, linestyle=(0, (2, 2)))
    axes["tokens"].annotate("M(b)", (90, INTENSITY - 88), color=MUTED, fontsize=7.5)
    axes["gain"].axhline(1.0, color=MUTED, linewidth=0.8)
    axes["saved"].axhline(0.0, color=MUTED, linewidth=0.8)
    for curve in data.curves[1:]:
        look = curve.look
        style: dict[str, Any] = {
            "color": look.color,
            "linestyle": look.dash,
            "marker": look.marker,
            "markersize": 3.5,
        }
        for name, values in (("tokens", curve.drafted), ("gain", curve.speedup), ("saved", curve.saved)):
            axes[name].plot(curve.batch, values, **style)
    for name, title in (
        ("tokens", "draft tokens a step"), ("gain", "speedup over plain steps"), ("saved", "minutes saved"),
    ):  # fmt: skip
        axes[name].set_xscale("log", base=2)
        axes[name].set_xlim(1, INTENSITY)
        axes[name].set_xticks([1, 4, 16, 64, 256], ["1", "4", "16", "64", "256"])
        axes[name].minorticks_off()
        axes[name].set_title(title, fontweight="normal")
    axes["gain"].set_ylim(bottom=0)
    axes["tokens"].set_ylim(bottom=0)
    axes["gain"].set_xlabel("sequences decoding together")
    axes["saved"].set_xlabel("sequences decoding together")
    for row, (look, band, minutes) in enumerate(data.bars):
        if band is not None:
            axes["rejected"].barh(row, band[0], color=look.color, height=0.6)
            axes["rejected"].plot(band[1:], [row, row], color=MUTED, linewidth=1.2)
        left = 0.0
        for part, alpha in zip(minutes, (1.0, 0.65, 0.3), strict=True):
            axes["time"].barh(row, part, left=left, color=look.color, height=0.6, alpha=alpha)
            left += part
    for name, title in (
        ("rejected", f"rejected share of drafts ({seeds_note(data.seeds)})"),
        ("time", "minutes drafting, verifying, in steps without drafts (dark to light)"),
    ):
        axes[name].set_yticks([])
        axes[name].set_ylim(len(data.bars) - 0.5, -0.5)
        axes[name].grid(False, axis="y")
        axes[name].set_title(title, fontweight="normal")
    legend(axes["tokens"].figure, [c.look for c in data.curves], markers=True)
