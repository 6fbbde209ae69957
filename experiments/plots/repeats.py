"""What the outputs of a plan's workloads repeat, and what redundancy says about acceptance; no runs are read."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from experiments.plots.style import MUTED, PAGE_INCHES, PALETTE, Axes
from experiments.token_repeats import BINS, SOURCES, by_redundancy, drafts, repeated
from policies.views import HostInfo
from traces.schema import Workload

TITLE = "Repetition in the outputs"
MOSAIC = (("repeated", "accepted"),)
SIZE = (PAGE_INCHES, 2.9)
CAPTION = (
    "Left: share of generated tokens in spans of at least k tokens that were generated before, over workloads. Right: "
    "accepted share of the drafter's consensus by redundancy c/n (bins of a quarter), by the number of matches n."
)
SPANS = (2, 4, 8, 16, 32)
GROUPS = ((2, 3), (4, 7), (8, 1 << 30))
WORKFLOWS = 24  # a workload, for drafts at every position


@dataclass(frozen=True)
class Data:
    """repeated: source -> % by span. accepted: matches -> share by bin of redundancy, NaN where nothing was drafted."""

    repeated: dict[str, list[float]]
    accepted: dict[str, list[float]]
    workloads: tuple[str, ...]


def data(workloads: Sequence[Workload], host: HostInfo) -> Data:
    """Measure the workloads that know their blocks. Raises ValueError where none does."""
    known = [w for w in workloads if w.transcript is not None and w.output_ids is not None]
    if not known:
        raise ValueError("no workload knows its output tokens and blocks")
    shares: dict[str, list[float]] = {s: [] for s in SOURCES}
    for k in SPANS:
        found = [repeated(w, k) for w in known]
        for source in SOURCES:
            part = sum(c for f in found for c, _ in f[source])
            shares[source].append(100 * part / max(sum(n for f in found for _, n in f[source]), 1))
    drafted = [drafts(w, host, WORKFLOWS) for w in known]
    accepted: dict[str, list[float]] = {}
    for low, high in GROUPS:
        rows = np.array([by_redundancy(d, (d.matches >= low) & (d.matches <= high)) for d in drafted])
        some = np.isfinite(rows)
        mean = np.where(some, rows, 0).sum(axis=0) / np.maximum(some.sum(axis=0), 1)
        name = f"{low} to {high} matches" if high < 1 << 20 else f"{low} or more"
        accepted[name] = [float(m) if n else math.nan for m, n in zip(mean, some.sum(axis=0), strict=True)]
    return Data(shares, accepted, tuple(w.name for w in known))


def draw(data: Data, axes: Axes) -> None:
    """Draw both panels. Mutates axes."""
    ax = axes["repeated"]
    for i, (source, shares) in enumerate(data.repeated.items()):
        dash = (0, (3, 2)) if source.startswith("all") else "-"
        ax.plot(SPANS, shares, color=PALETTE[i + 1], marker="o", markersize=3, label=source, linestyle=dash)
    ax.set_xscale("log", base=2)
    ax.set_xticks(SPANS, [str(k) for k in SPANS])
    ax.minorticks_off()
    ax.set_ylim(0, 100)
    ax.set_xlabel("span, tokens")
    ax.set_title(f"% of tokens repeated ({', '.join(data.workloads)})", fontweight="normal")
    ax.legend(fontsize=6.5)
    ax = axes["accepted"]
    middle = [(a + b) / 2 for a, b in pairwise(BINS)]
    ax.plot([0, 1], [0, 1], color=MUTED, linewidth=0.8, linestyle=(0, (2, 2)))
    for i, (name, shares) in enumerate(data.accepted.items()):
        ax.plot(middle, shares, color=PALETTE[i + 1], marker="s", markersize=3, label=name)
    ax.set_xlim(0, 1)
    ax.set_ylim(0, 1)
    ax.set_xlabel("redundancy c/n")
    ax.set_title("accepted share of the consensus", fontweight="normal")
    ax.legend(fontsize=6.5)
