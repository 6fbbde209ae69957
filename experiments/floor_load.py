"""Load as a share of what the floor keeps busy: the arrival rate at which replicas without speculation and reuse
spend `load.utilisation` of the time in steps.

"Low" and "at load" then mean the same for every workload, model and number of replicas, and no arm chose them. The
rate is found by bisection over runs of the floor; it depends on workload, profile and engine, never on the arms.
"""

from __future__ import annotations

import functools
from dataclasses import replace

import numpy as np

from experiments.inputs import WorkloadRef, prepared
from experiments.settings import Settings
from policies.costs import Profile
from policies.registry import PolicySet, load
from sim.config import SimConfig
from sim.log import MemorySink
from sim.run import simulate
from traces.schema import Workload

WORKFLOWS_MAX = 200
_ROUNDS = 8


def with_rate(chosen: Settings, ref: WorkloadRef, profile: Profile, kv_blocks: int) -> Settings:
    """Return the options with `load.rate_per_s` in the place of `load.utilisation`; unchanged without it."""
    target = chosen.load.utilisation
    if target is None:
        return chosen
    few = replace(chosen.load, utilisation=None, rate_per_s=1.0)
    few = replace(few, workflows=min(few.workflows or WORKFLOWS_MAX, WORKFLOWS_MAX))
    config = replace(chosen.sim(0), load=few, fault=type(chosen.fault)())
    rate = rate_per_s(ref, profile, config, kv_blocks, target)
    return replace(chosen, load=replace(chosen.load, utilisation=None, rate_per_s=rate))


def rate_per_s(ref: WorkloadRef, profile: Profile, config: SimConfig, kv_blocks: int, target: float) -> float:
    """Return the rate, three significant digits, at which the floor's utilisation is `target`."""
    key = repr((replace(profile, provenance={}), config, kv_blocks))
    _GIVEN.setdefault(key, (profile, config, kv_blocks))
    return _rate(ref, key, target)


_GIVEN: dict[str, tuple[Profile, SimConfig, int]] = {}


@functools.lru_cache(maxsize=256)
def _rate(ref: WorkloadRef, key: str, target: float) -> float:
    profile, config, kv_blocks = _GIVEN[key]
    workload = prepared(ref, config.load, 0)
    low, high = None, None
    rate = 0.2 * config.replicas
    for _ in range(_ROUNDS):
        if utilisation(workload, profile, config, kv_blocks, rate) < target:
            low = rate
        else:
            high = rate
        if low is None:
            assert high is not None
            rate = high / 4
        elif high is None:
            rate = low * 4
        else:
            rate = float(np.sqrt(low * high))
    return float(f"{rate:.3g}")


def utilisation(
    workload: Workload, profile: Profile, config: SimConfig, kv_blocks: int, rate: float
) -> float:
    """Return the share of time the floor's replicas spend in steps until the last workflow arrives."""
    config = replace(config, load=replace(config.load, rate_per_s=rate))
    router = load("routers", "least_loaded")
    with MemorySink() as sink:
        simulate(workload, profile, replace(PolicySet(), router=router), config, sink, kv_blocks=kv_blocks)  # type: ignore[arg-type]
    tables = sink.tables()
    end = int(np.max(tables["workflows"]["arrival_ns"].to_numpy()))
    start, took = (tables["steps"][c].to_numpy() for c in ("start_ns", "duration_ns"))
    busy = np.maximum(np.minimum(start + took, end) - start, 0).sum()
    return float(busy) / max(end * config.replicas, 1)
