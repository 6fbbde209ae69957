"""Where priced gates pay: their latency against other gates', over load and predictability, as a map."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from matplotlib.colors import LinearSegmentedColormap
from matplotlib.patches import Rectangle

from experiments.cards.results import Results, option
from experiments.plan import Arm, Plan
from experiments.plots.style import INK, MUTED, PAGE_INCHES, PALETTE, Axes, seeds_note
from experiments.stats import Interval, paired_percent
from experiments.store import Store
from traces.runlog import RunLog

TITLE = "Where priced gates pay"
RIVALS = ("fixed", "idle", "never")
MOSAIC = (("fixed", "fixed"), ("idle", "never"))
SIZE = (PAGE_INCHES, 4.6)
CAPTION = (
    "Change of mean latency of the later half of the workflows, paired by seed, mean and 95 % interval; blue: priced "
    "gates are faster. Outlined: faster than the best fixed threshold and than filling only when idle by more than 2 %,"
    " both intervals included."
)
LEARNING = 0.5  # of the workflows, by arrival: the same ones in every arm
WORTH = -2.0  # percent
_ENDS = (PALETTE[1], "#ffffff", PALETTE[2])
_NAMES = {"fixed": "the best fixed threshold", "idle": "filling only when idle", "never": "filling nothing"}


@dataclass(frozen=True)
class Data:
    """Cells by (row, column).

    loads, candidates   what columns and rows stand for
    change   rival -> interval in percent of the priced gate's change against it; None without runs
    threshold   p* of the fixed gate of least latency, chosen for each cell: the strongest rival; 1 fills nothing
    """

    loads: tuple[float, ...]
    candidates: tuple[str, ...]
    change: Mapping[str, Mapping[tuple[int, int], Interval | None]]
    threshold: Mapping[tuple[int, int], float]
    seeds: tuple[int, ...]

    def pays(self, cell: tuple[int, int]) -> bool:
        """Say whether the gate beats fixed thresholds and idle-only by more than 2 %, intervals included."""
        found = [self.change[rival][cell] for rival in ("fixed", "idle")]
        return all(c is not None and c.high is not None and c.high < WORTH for c in found)


def data(plan: Plan, store: Store, priced: str = "priced", learning: float = LEARNING) -> Data:
    """Read the latency of every run of a sweep like `region`.

    priced: the gate as the plan writes it. learning: share of the workflows, first ones first, that is left out.
    Raises ValueError where that gate, fixed thresholds or a swept `load.utilisation` are not in the plan.
    """
    results = Results(plan, store)
    written = {arm.policies.get("gates", "") for arm in plan.arms}
    points = [p for p in plan.axis_points() if set(p) == {"load.utilisation"}]
    if priced not in written or not any(map(_fixed, plan.arms)) or not points:
        raise ValueError(f"it has no {priced} gate, no fixed threshold, or no load.utilisation that is swept")
    loads = tuple(sorted({float(p["load.utilisation"]) for p in points}))
    candidates = tuple(dict.fromkeys(arm.policies["candidates"] for arm in plan.arms))
    candidates = tuple(c for c in candidates if c != "none")
    change: dict[str, dict[tuple[int, int], Interval | None]] = {rival: {} for rival in RIVALS}
    threshold: dict[tuple[int, int], float] = {}
    counts: list[int] = []
    for row, candidate in enumerate(candidates):
        for column, load in enumerate(loads):
            here = [a for a in plan.arms if a.axes == {"load.utilisation": load}]
            by = {a.policies["gates"]: a for a in here if a.policies["candidates"] in (candidate, "none")}
            seen = {
                gate: {seed: latency_s(log, learning) for seed, log in results.logs(arm).items()}
                for gate, arm in by.items()
            }
            fixed = {g: _p_star(arm) for g, arm in by.items() if _fixed(arm) and seen[g]}
            if seen.get("never"):
                fixed["never"] = 1.0
            best = min(fixed, key=lambda g: float(np.mean(list(seen[g].values()))), default="")
            if best:
                threshold[row, column] = fixed[best]
            for rival, gate in (("fixed", best), ("idle", "idle_only"), ("never", "never")):
                found = paired_percent(seen.get(gate, {}), seen.get(priced, {}))
                change[rival][row, column] = found
                counts += [found.n] if found else []
    return Data(loads, candidates, change, threshold, tuple(counts))


def latency_s(log: RunLog, learning: float) -> float:
    """Return the mean latency in s of the workflows that finish, without the first `learning` of all by arrival."""
    arrival, finished = log.columns("workflows", "arrival_ns", "finished_ns")
    order = arrival.argsort(kind="stable")
    late = order[int(learning * len(order)) :]
    late = late[finished[late] >= 0]
    return float((finished[late] - arrival[late]).mean()) / 1e9 if len(late) else math.nan


def _fixed(arm: Arm) -> bool:
    gate = arm.policies.get("gates", "")
    return gate.startswith("priced") and option(arm, "gates", "action1") == "fixed"


def _p_star(arm: Arm) -> float:
    return float(option(arm, "gates", "p_star"))


def draw(data: Data, axes: Axes) -> None:
    """Draw a map a rival. Mutates axes."""
    means = [c.mean for cells in data.change.values() for c in cells.values() if c]
    reach = max((abs(m) for m in means), default=1.0) or 1.0
    colours = LinearSegmentedColormap.from_list("faster", _ENDS)
    for rival in RIVALS:
        ax = axes[rival]
        grid = np.full((len(data.candidates), len(data.loads)), math.nan)
        for cell, found in data.change[rival].items():
            if found:
                grid[cell] = found.mean
        ax.imshow(grid, cmap=colours, vmin=-reach, vmax=reach, aspect="auto", alpha=0.85)
        for (row, column), found in data.change[rival].items():
            if not found:
                continue
            text = f"{found.mean:+.1f}"
            if found.low is not None and found.high is not None:
                text += f"\n[{found.low:+.1f}, {found.high:+.1f}]"
            if rival == "fixed" and (row, column) in data.threshold:
                text += f"\np* = {data.threshold[row, column]:g}"
            ax.text(column, row, text, ha="center", va="center", fontsize=5.0, color=INK)
            if data.pays((row, column)):
                box = Rectangle(
                    (column - 0.47, row - 0.47), 0.94, 0.94, fill=False, edgecolor=INK, linewidth=1.3
                )
                ax.add_patch(box)
        ax.set_xticks(range(len(data.loads)), [f"{x:g}" for x in data.loads])
        first = rival != "never"
        ax.set_yticks(range(len(data.candidates)), [_short(c) if first else "" for c in data.candidates])
        ax.tick_params(length=0)
        ax.grid(False)
        ax.set_title(f"against {_NAMES[rival]}", fontweight="normal")
        ax.set_xlabel("load, share of what the floor serves")
    axes[RIVALS[0]].set_ylabel(f"candidates ({seeds_note(data.seeds)})", color=MUTED)


def _short(candidate: str) -> str:
    """Return `oracle(accuracy=0.2)` as two lines."""
    return candidate.replace("(", "\n").rstrip(")")
