"""The runs of `sensitivity`: one simulation a key, in worker processes."""

from __future__ import annotations

import functools
import multiprocessing
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import replace

import numpy as np

from calibration import catalog
from calibration.bias import biased
from calibration.memory import kv_blocks
from calibration.sensitivity import CASES, Case, Key
from policies import registry
from policies.costs import Profile
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
    # Read once, here: every run is judged under the same profile, whatever happens to its file meanwhile.
    opened = {c.profile: replace(catalog.open(c.profile), posterior={}, bands={}) for c in CASES.values()}
    profiles = [opened[CASES[key[0]].profile] for key in wanted]
    if jobs == 1:
        for i, (key, profile) in enumerate(zip(wanted, profiles, strict=True)):
            out[key] = run_one(key, profile)
            if progress:
                progress(i + 1, len(wanted))
        return out
    # Spawned: forking a process with threads (Arrow has some) can deadlock.
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(jobs, mp_context=context) as pool:
        for i, (key, value) in enumerate(
            zip(wanted, pool.map(run_one, wanted, profiles, chunksize=8), strict=True)
        ):
            out[key] = value
            if progress:
                progress(i + 1, len(wanted))
    return out


def run_one(key: Key, profile: Profile) -> float:
    """Return the mean latency, s, of the workflows of one run; the key's bias is put on `profile` here."""
    name, arm, term, factor, seed = key
    case = CASES[name]
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
