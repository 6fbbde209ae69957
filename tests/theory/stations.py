"""Queueing stations out of an engine: a step costs the same whatever it does, so service = steps x that cost.

A request of one prompt token and n >= 1 output tokens takes n steps: its prefill emits the first token.
Service times are therefore multiples of `STEP_S`; geometric output lengths stand for exponential service.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray
from scipy import stats

from policies.registry import PolicySet, load
from sim.config import EngineConfig, LoadConfig, SimConfig
from sim.log import MemorySink
from sim.run import simulate
from sim.worlds import flat_profile
from traces import draws
from traces.builder import WorkloadBuilder
from traces.runlog import RunLog, from_tables
from traces.schema import StageKind, Workload

STEP_PS = 1_000_000_000
STEP_S = STEP_PS / 1e12
CONFIDENCE = 0.999

PROFILE = flat_profile(STEP_PS, max_model_len=1 << 20)


def geometric(mean: float, n: int, seed: int, purpose: str = "service") -> NDArray[np.int64]:
    """Return n whole numbers of at least 1, P(k) = p (1 - p)^(k - 1) with p = 1 / mean."""
    u = draws.uniform_array(seed, purpose, np.arange(n))
    return np.asarray(1 + np.floor(np.log1p(-u) / np.log1p(-1 / mean)).astype(np.int64))


class _WithoutSteps(MemorySink):
    """Drops step rows, which queueing formulas do not need and which are many."""

    def write(self, table: str, rows: pa.Table) -> None:
        if table != "steps":
            super().write(table, rows)


def queue(steps: NDArray[np.int64], think_ns: NDArray[np.int64] | None = None) -> Workload:
    """Return a workload of one request a workflow, of `steps[i]` steps, after a wait of `think_ns[i]`."""
    builder = WorkloadBuilder("queue")
    for i, n in enumerate(steps.tolist()):
        builder.workflow(str(i))
        parents = [] if think_ns is None else [builder.delay(StageKind.WAIT, int(think_ns[i]))]
        builder.llm(1, n, parents=parents)
    return builder.build()


def serve(
    workload: Workload,
    *,
    servers: int = 1,
    replicas: int = 1,
    rate_per_s: float | None = None,
    concurrency: int = 1,
    seed: int = 0,
    router: str = "least_loaded",
    keep_steps: bool = False,
) -> RunLog:
    """Run the workload, open at `rate_per_s` or closed at `concurrency`, and return its log."""
    config = SimConfig(
        engine=EngineConfig(max_num_seqs=servers, max_num_batched_tokens=64, prefix_cache="none"),
        load=LoadConfig(loop="closed", concurrency=concurrency)
        if rate_per_s is None
        else LoadConfig(loop="open", rate_per_s=rate_per_s),
        replicas=replicas,
        seed=seed,
    )
    with MemorySink() if keep_steps else _WithoutSteps() as sink:
        simulate(
            workload, PROFILE, PolicySet(router=load("routers", router)), config, sink, kv_blocks=1 << 24
        )
    return from_tables(sink.tables())


@dataclass(frozen=True)
class Interval:
    """Mean of independent replications and half of its 99.9 % t-interval."""

    mean: float
    half: float

    def holds(self, value: float) -> bool:
        """Say whether `value` is inside."""
        return abs(value - self.mean) <= self.half

    def __str__(self) -> str:
        return f"{self.mean:.5g} +- {self.half:.2g}"


def interval(replications: list[float]) -> Interval:
    """Return the interval over replications, which must be independent."""
    x = np.asarray(replications)
    t = float(stats.t.ppf((1 + CONFIDENCE) / 2, len(x) - 1))
    return Interval(float(x.mean()), t * float(x.std(ddof=1)) / math.sqrt(len(x)))


def waits_s(log: RunLog, discard: int) -> NDArray[np.float64]:
    """Return waiting times, s, in order of release, without the first `discard` (the queue starts empty)."""
    released, admitted = log.columns("requests", "released_ns", "admitted_ns")
    order = np.argsort(released, kind="stable")[discard:]
    return np.asarray((admitted[order] - released[order]) / 1e9)
