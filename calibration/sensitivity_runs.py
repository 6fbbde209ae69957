"""The runs of `sensitivity`: one simulation a key, in worker processes."""

from __future__ import annotations

import functools
import multiprocessing
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor

import numpy as np

from calibration import catalog
from calibration.bias import biased
from calibration.memory import kv_blocks
from calibration.sensitivity import CASES, Case, Key
from policies import registry
from policies.registry import PolicySet
from sim.config import EngineConfig, LoadConfig, SimConfig
from sim.log import MemorySink
from sim.run import simulate
from traces import resample, workloads
from traces.metrics import workflow_latency_s
from traces.runlog import from_tables
from traces.schema import Workload


def run_all(
    wanted: Sequence[Key], jobs: int, progress: Callable[[int, int], None] | None = None
) -> dict[Key, float]:
    """Return key -> mean workflow latency, s. The same numbers whatever `jobs` is."""
    out: dict[Key, float] = {}
    if jobs == 1:
        for i, key in enumerate(wanted):
            out[key] = run_one(key)
            if progress:
                progress(i + 1, len(wanted))
        return out
    # Spawned: forking a process with threads (Arrow has some) can deadlock.
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(jobs, mp_context=context) as pool:
        for i, (key, value) in enumerate(zip(wanted, pool.map(run_one, wanted, chunksize=8), strict=True)):
            out[key] = value
            if progress:
                progress(i + 1, len(wanted))
    return out


def run_one(key: Key) -> float:
    """Return the mean latency, s, of the workflows of one run."""
    name, arm, term, factor, seed = key
    case = CASES[name]
    profile = catalog.open(case.profile)
    engine = EngineConfig(max_model_len=case.tokens_max)
    # Memory is what it is: the wrong profile is wrong about time.
    blocks = case.blocks or kv_blocks(profile, engine).blocks
    if term:
        profile = biased(profile, term, factor)
    policy = registry.load(case.family, arm)
    policies = PolicySet(evictor=policy) if case.family == "evictors" else PolicySet(router=policy)  # type: ignore[arg-type]
    config = SimConfig(
        engine=engine,
        load=LoadConfig(concurrency=case.concurrency, workflows=case.workflows),
        replicas=case.replicas,
        seed=seed,
    )
    sink = MemorySink()
    simulate(_load(name, seed), profile, policies, config, sink, kv_blocks=blocks)
    return float(np.mean(workflow_latency_s(from_tables(sink.tables()))))


@functools.lru_cache(maxsize=2)
def _load(name: str, seed: int) -> Workload:
    case: Case = CASES[name]
    return resample.resample(_fitting(case.workload, case.tokens_max), case.workflows, seed)


@functools.lru_cache(maxsize=2)
def _fitting(name: str, tokens_max: int | None) -> Workload:
    workload = workloads.open(name)
    if tokens_max is None:
        return workload
    longest = np.zeros(workload.n_workflows, dtype=np.int64)
    tokens = workload.prompt_tokens.astype(np.int64) + workload.output_tokens
    np.maximum.at(longest, workload.stage_workflow, tokens)
    return resample.subset(workload, np.flatnonzero(longest <= tokens_max).tolist())
