"""Load as a share of what the floor serves: `load.utilisation` times the workflows a second that replicas without
speculation and reuse complete when they are never short of work.

"Low" and "at load" then mean the same for every workload, model and number of replicas, no arm chose them, and below 1
the floor is stationary (protocol P-7). Time in steps would not do: with continuous batching a replica that holds two
sequences is busy nearly always, and serves a twentieth of what it could.
"""

from __future__ import annotations

import functools
from dataclasses import replace

import numpy as np

from experiments.inputs import WorkloadRef, prepared
from experiments.settings import Settings
from policies.costs import Profile
from policies.registry import PolicySet, load
from sim.config import LoadConfig, SimConfig
from sim.log import MemorySink
from sim.run import simulate
from traces.errors import InputError

IN_PROGRESS = 2  # workflows in progress for each seat of a replica: tools and waits leave no seat empty
ROUNDS = 3  # workflows run for each of those in progress


def with_rate(chosen: Settings, ref: WorkloadRef, profile: Profile, kv_blocks: int) -> Settings:
    """Return the options with `load.rate_per_s` in the place of `load.utilisation`; unchanged without it."""
    target = chosen.load.utilisation
    if target is None:
        return chosen
    config = replace(chosen.sim(0), load=replace(chosen.load, utilisation=None), fault=type(chosen.fault)())
    rate = rate_per_s(ref, profile, config, kv_blocks, target)
    return replace(chosen, load=replace(chosen.load, utilisation=None, rate_per_s=rate))


def rate_per_s(ref: WorkloadRef, profile: Profile, config: SimConfig, kv_blocks: int, target: float) -> float:
    """Return the rate, three significant digits, that is `target` times the floor's capacity."""
    return float(f"{target * capacity_per_s(ref, profile, config, kv_blocks):.3g}")


def capacity_per_s(ref: WorkloadRef, profile: Profile, config: SimConfig, kv_blocks: int) -> float:
    """Return the workflows a second that the floor completes, from a quarter to three quarters of a saturated run.

    One replica is run, in a closed loop of `IN_PROGRESS` workflows a seat; saturated replicas are alike, so that more
    of them multiply it. Of the load only what shapes workflows counts, never how they arrive.
    """
    seats = config.engine.max_num_seqs
    asked = config.load
    full = LoadConfig(
        loop="closed", concurrency=IN_PROGRESS * seats, workflows=ROUNDS * IN_PROGRESS * seats,
        replay=asked.replay, think_scale=asked.think_scale, request_tokens_max=asked.request_tokens_max,
    )  # fmt: skip
    one = replace(config, load=full, replicas=1)
    key = repr((replace(profile, provenance={}), one, kv_blocks))
    _GIVEN.setdefault(key, (profile, one, kv_blocks))
    return config.replicas * _capacity(ref, key)


_GIVEN: dict[str, tuple[Profile, SimConfig, int]] = {}


@functools.lru_cache(maxsize=256)
def _capacity(ref: WorkloadRef, key: str) -> float:
    profile, config, kv_blocks = _GIVEN[key]
    policies = PolicySet(router=load("routers", "least_loaded"))  # type: ignore[arg-type]
    with MemorySink() as sink:
        simulate(prepared(ref, config.load, 0), profile, policies, config, sink, kv_blocks=kv_blocks)
    finished = np.sort(sink.tables()["workflows"]["finished_ns"].to_numpy())
    finished = finished[finished >= 0]
    quarter = len(finished) // 4
    if quarter == 0:
        raise InputError(
            f"load.utilisation: at workload={ref.name} the engine completes {len(finished)} of "
            f"{config.load.workflows} workflows, so that there is nothing to take a share of"
        )
    return 2e9 * quarter / float(finished[3 * quarter] - finished[quarter])
