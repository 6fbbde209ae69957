"""Worlds in which something prefetches: random ones, and dense ones whose forecasts come late."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, cast

import numpy as np

from policies.api import Evictor, Predictor, Prefetcher
from policies.costs import Profile
from policies.predictors.oracle import OracleForecast
from policies.registry import PolicySet, load
from sim.worlds import Dice, World, flat_profile, random_world
from traces.builder import WorkloadBuilder
from traces.schema import StageKind


def with_prefetch(seed: int) -> World:
    """Return the random world of a seed with a host tier, forecasts, and something that prefetches."""
    world, dice = random_world(seed), Dice(seed, "prefetch")
    prefetcher = dice.pick("conservative", "aggressive")
    options: dict[str, Any] = {"access": dice.pick("literal", "inherit")}
    if prefetcher == "aggressive":
        options |= {"rho": dice.pick(0.1, 0.5, 1.0), "limit": dice.pick("outstanding", "call")}
    evictor = dice.pick(
        "lookahead", "lookahead", "lifecycle", "lru", "kvflow", "continuum", "sieve", "s3_fifo"
    )
    policies = replace(
        world.policies,
        evictor=cast("Evictor[Any]", load("evictors", evictor)),
        prefetcher=cast("Prefetcher[Any]", load("prefetchers", prefetcher, options)),
        predictor=cast("Predictor[Any]", load("predictors", dice.pick("oracle", "markov", "uniform"))),
    )
    config = world.config
    cache = config.engine.prefix_cache if config.engine.prefix_cache != "none" else "radix"
    config = replace(
        config,
        engine=replace(config.engine, prefix_cache=cache),
        host_tier=replace(
            config.host_tier, ratio=dice.pick(0.5, 2.0, 8.0), load_back=dice.pick("predicted", "never")
        ),
    )
    profile = replace(world.profile, pcie_bytes_per_s=dice.pick(10**7, 10**8, 10**9))
    # Small beside what the world was drawn for, so that prefixes do go to the host.
    blocks = max(4, world.kv_blocks // dice.pick(1, 1, 2))
    return replace(world, policies=policies, config=config, profile=profile, kv_blocks=blocks)


@dataclass(frozen=True)
class Slow(OracleForecast):
    """The truth, late: forecasts arrive in the middle of stretches, when nothing else happens."""

    cost_ms: int = 7

    def cost_ps(self, profile: Profile, workflows: int) -> int:
        return self.cost_ms * 10**9


def dense_world(seed: int) -> World:
    """Return agents that take turns on growing prefixes with pauses between, in a pool that holds some of them.

    Retired space appears while nothing else happens (workflows end with a tool), forecasts come late, and a step's
    link volume is a fraction of a run, at times less than a block.
    """
    dice = Dice(seed, "dense")
    builder = WorkloadBuilder("dense", hash_block_tokens=16)
    for w in range(8 + dice.below(6)):
        builder.workflow(f"w{w}")
        units = [10_000 * (w + 1) + k for k in range(8 + dice.below(25))]
        previous: list[int] = []
        for _ in range(2 + dice.below(4)):
            prompt = np.array(units, dtype=np.uint64)
            output = dice.pick(1, 20, 200, 400)
            agent = f"agent-{dice.below(3)}"
            previous = [
                builder.llm(16 * len(units), output, parents=previous, agent=agent, prompt_units=prompt)
            ]
            pause_ns = dice.pick(10_000_000, 80_000_000, 400_000_000)
            previous = [builder.delay(StageKind.TOOL, pause_ns, parents=previous)]
            units += [10_000 * (w + 1) + 1000 + len(units) + k for k in range(dice.below(4))]
    profile = flat_profile(
        2_000_000_000,
        linear_tokens=(1, 64),
        linear_ps=(2 * 10**9, 2 * 10**9 + 63 * 10**7),
        kv_read_ps_per_token=dice.pick(0, 3_000_000),
        pcie_bytes_per_s=dice.pick(7 * 10**6, 4 * 10**7, 4 * 10**8),
    )
    world = random_world(seed)
    engine = replace(
        world.config.engine, block_tokens=16, max_num_seqs=8, max_num_batched_tokens=512, max_model_len=10_000,
        prefix_cache=dice.pick("radix", "block_hash"), queue="fcfs", watermark_blocks_ratio=0.0,
    )  # fmt: skip
    config = replace(
        world.config,
        engine=engine,
        replicas=dice.pick(1, 1, 2),
        load=replace(world.config.load, loop="closed", concurrency=4 + dice.below(5), horizon_s=None),
        host_tier=replace(world.config.host_tier, ratio=4.0, write="write_through", load_back="never"),
        fault=replace(world.config.fault, pause_for_s=0.0),
    )
    prefetcher = dice.pick("conservative", "conservative", "aggressive")
    options: dict[str, Any] = {"access": dice.pick("literal", "inherit")}
    if prefetcher == "aggressive":
        options["rho"] = dice.pick(0.05, 0.3)
    policies = PolicySet(
        evictor=cast(
            "Evictor[Any]", load("evictors", dice.pick("lookahead", "lookahead", "lifecycle", "lru"))
        ),
        router=world.policies.router,
        predictor=Slow(cost_ms=dice.pick(0, 7, 23)),
        prefetcher=cast("Prefetcher[Any]", load("prefetchers", prefetcher, options)),
    )
    return World(builder.build(), profile, config, policies, 100 + dice.below(150))


SEEDS = range(-60, 60)  # negative: dense worlds


def world_of(seed: int) -> World:
    return with_prefetch(seed) if seed >= 0 else dense_world(-seed)
