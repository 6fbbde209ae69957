"""Metrics of early execution and reuse: pure functions over the tables `branches`, `fills` and `decisions`."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from traces.runlog import RunLog
from traces.windows import Window

# Fates of a fill's stage that say its branch took something else.
UNSELECTED = "unselected"


def residence_ns(log: RunLog) -> NDArray[np.int64]:
    """Return int64[fill rows]: time each fill's stage spent in an engine, from admission to its end; 0 for tools."""
    admitted, ended = log.columns("fills", "admitted_ns", "ended_ns")
    return np.where((admitted >= 0) & (ended >= 0), ended - admitted, 0).astype(np.int64)


def branch_metrics(log: RunLog, span: Window, workflows: float) -> dict[str, float]:
    """Return the metrics; workflows: those that arrived in the window."""
    opened, gate, setup = log.columns("branches", "opened_ns", "gate_open", "setup_ns")
    here = span.holds(opened)
    started, fill = log.columns("fills", "started_ns", "fill")
    during = span.holds(started)
    residence = residence_ns(log)[during].astype(np.float64)
    promoted = log.select("fills", "fate", "promoted")[during]
    unselected = log.select("fills", "fate", UNSELECTED)[during]
    served = log.select("decisions", "family", "reuse") & log.select("decisions", "action", "served")
    served &= span.holds(log.column("decisions", "time_ns"))

    def each(total: float) -> float:
        return total / workflows if workflows > 0 else math.nan

    engine = float(residence.sum())
    return {
        "branches_opened": each(float(gate[here].sum())),
        "drafting_s": each(float(setup[here].sum()) / 1e9),
        "fills": each(float(len(np.unique(fill[during])))),
        "promoted_stages": each(float(promoted.sum())),
        "reused_stages": each(float(served.sum())),
        "fill_gpu_s": each(engine / 1e9),
        "fill_step_s": each(float(log.column("fills", "share_ns")[during].sum()) / 1e9),
        "fill_discarded_s": each(float(residence[~promoted].sum()) / 1e9),
        "fill_discarded_share": float(residence[~promoted].sum()) / engine if engine > 0 else math.nan,
        "fill_unselected_share": float(residence[unselected].sum()) / engine if engine > 0 else math.nan,
    }


DEFINITIONS: dict[str, tuple[str, str]] = {
    "branches_opened": ("", "branch entries for which candidates were drafted / workflows"),
    "drafting_s": ("s", "time spent drafting candidates of branches / workflows"),
    "fills": ("", "fills (candidates executed early) / workflows"),
    "promoted_stages": ("", "stages whose result came from a fill / workflows"),
    "reused_stages": ("", "stages served by finished work of others / workflows"),
    "fill_gpu_s": ("s", "time fills spent in engines, from admission to end / workflows"),
    "fill_step_s": ("s", "part of the steps that was the fills', by tokens / workflows"),
    "fill_discarded_s": ("s", "time in engines of stages of fills that were not promoted / workflows"),
    "fill_discarded_share": ("", "the same as a share of the time of all fills"),
    "fill_unselected_share": (
        "",
        "time in engines of fills whose candidate was not chosen, as a share of the time of all fills",
    ),
}
