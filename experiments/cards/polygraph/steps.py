"""What the judges read of decode steps: latency quantiles, padding and misses, by seed."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from experiments.cards.results import Results
from experiments.plan import Arm
from traces.runlog import RunLog


@dataclass(frozen=True)
class Steps:
    """Pure decode steps of one run.

    ms        float64[n]: durations
    useful    int64[n]: new tokens of the sequences
    executed  int64[n]: tokens that the step's kernels worked on
    misses    graphs captured while serving
    """

    ms: NDArray[np.float64]
    useful: NDArray[np.int64]
    executed: NDArray[np.int64]
    misses: int

    def quantile_ms(self, q: float) -> float:
        """Return a quantile of the durations."""
        return float(np.quantile(self.ms, q))

    def waste(self) -> dict[str, float]:
        """Return padding in percent under four readings: of executed or over useful, by tokens or mean over steps."""
        extra = self.executed - self.useful
        return {
            "of executed tokens": 100 * float(extra.sum() / self.executed.sum()),
            "over useful tokens": 100 * float(extra.sum() / self.useful.sum()),
            "of executed, by step": 100 * float(np.mean(extra / self.executed)),
            "over useful, by step": 100 * float(np.mean(extra / self.useful)),
        }


def steps(log: RunLog) -> Steps:
    """Return the pure decode steps of a run."""
    duration, decode, drafted, prefill, graph = log.columns(
        "steps", "duration_ns", "decode_seqs", "drafted_tokens", "prefill_seqs", "graph_tokens"
    )
    keep = (prefill == 0) & (decode > 0)
    useful = (decode + drafted)[keep].astype(np.int64)
    executed = np.where(graph[keep] > 0, graph[keep], useful)
    misses = int(log.select("decisions", "action", "build").sum())
    return Steps(duration[keep] / 1e6, useful, executed, misses)


def by_seed(results: Results, arm: Arm | None) -> dict[int, Steps]:
    """Return an arm's decode steps by seed; empty for None."""
    return {} if arm is None else {seed: steps(log) for seed, log in results.logs(arm).items()}
