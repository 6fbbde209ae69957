"""The fuzzer's worlds: those of `sim.worlds`, with any registered policy, drafting, and harder faults."""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from policies.api import OPTION, BatchView, Budget, Draft, Drafter, HostInfo, Policy, Proposals
from policies.registry import SIMPLEST, PolicySet, load, name_of, names
from sim.branch_worlds import Eager, Everything, Menu, branch_world
from sim.config import AcceptConfig, FaultConfig, SimConfig, VerifyConfig
from sim.run import SERVED
from sim.worlds import Dice, World, random_world, with_token_ids
from traces.errors import InputError

_FAMILIES = ("evictors", "routers", "bucketers", "predictors", "prefetchers", "reuse")
_BRANCH_FAMILIES = ("gates", "candidates")


@dataclass(frozen=True)
class Repeat(Drafter[None]):
    """Drafts `length` tokens of id 0 for every request, whatever it is."""

    length: int = 4

    def new_state(self, host: HostInfo) -> None:
        """There is nothing to remember."""

    def propose(self, state: None, request: int, limit: int) -> Draft:
        """Return the tokens, as sure as can be."""
        n = min(self.length, limit)
        return Draft(np.zeros(n, dtype=np.uint32), np.ones(n, dtype=np.float32))


@dataclass(frozen=True)
class Even(Budget[None]):
    """Lets every request verify at most `tokens`."""

    tokens: int = 3

    def new_state(self, host: HostInfo) -> None:
        """There is nothing to remember."""

    def limit(self, state: None, batch: BatchView) -> int:
        """Return the limit."""
        return self.tokens

    def allocate(self, state: None, proposals: Proposals, batch: BatchView) -> NDArray[np.int32]:
        """Return int32[B]."""
        return np.minimum(proposals.length, self.tokens).astype(np.int32)


def fuzz_world(seed: int) -> World:
    """Return the world of a seed. Equal seeds give equal worlds as long as the same policies are registered."""
    world = random_world(seed) if seed % 3 else branch_world(seed)
    dice = Dice(seed, "fuzz")
    chosen: dict[str, Any] = {
        OPTION[family]: _any_policy(family, dice) for family in _FAMILIES if dice.below(3)
    }
    if world.workload.branches is not None:
        chosen |= {OPTION[f]: _any_policy(f, dice) for f in _BRANCH_FAMILIES if dice.below(2)}
    policies = replace(world.policies, **chosen)
    config = world.config
    if dice.below(3) == 0:
        drafter, budget = _any_drafter(dice)
        policies = replace(policies, drafter=drafter, budget=budget)
        accept = AcceptConfig(rate=dice.pick(0.0, 0.6, 1.0), autocorrelation=dice.pick(0.0, 0.5))
        verify = VerifyConfig(dice.pick("profile", "packed", "prefill"))
        config = replace(config, accept=accept, verify=verify)
        if dice.below(2):
            world = replace(world, workload=with_token_ids(world.workload, seed))
    blocks = world.kv_blocks
    if dice.below(6) == 0:
        blocks = 1 + dice.below(8)  # hardly any prompt fits
    return replace(world, policies=policies, config=_harder(config, dice), kv_blocks=blocks)


def policy_names(world: World) -> str:
    """Return `evictor=lru router=...` of the policies that are not the simplest of their family."""
    out = []
    for field in fields(PolicySet):
        policy: Policy[Any] = getattr(world.policies, field.name)
        own = isinstance(policy, Repeat | Even | Eager | Menu | Everything)
        name = type(policy).__name__.lower() if own else name_of(policy)
        if name != SIMPLEST[policy.family] or field.name in ("evictor", "router", "bucketer"):
            out.append(f"{field.name}={name}")
    return " ".join(out)


def _harder(config: SimConfig, dice: Dice) -> SimConfig:
    if dice.below(4) == 0:
        fault = FaultConfig(
            replica=dice.below(config.replicas),
            pause_at_s=dice.below(300) / 1000,
            pause_for_s=(1 + dice.below(500)) / 1000,
        )
        config = replace(config, fault=fault)
    if dice.below(4) == 0:
        tier = replace(
            config.host_tier,
            ratio=dice.pick(0.05, 0.2, 1.0),  # full almost at once, or as large as HBM
            load_back=dice.pick("predicted", "always", "never"),
            min_load_tokens=dice.pick(0, 1, 64),
            prefetch_grain=dice.pick("run", "block"),
            evictor=dice.pick(
                "lru", "lru", "lifecycle", "lookahead", "kvflow", "continuum", "gdsf", "sieve", "s3_fifo"
            ),
        )
        config = replace(config, host_tier=tier)
    load_config = config.load
    if dice.below(4) == 0:
        load_config = replace(load_config, think_scale=dice.pick(0.0, 0.5, 3.0))
    if dice.below(4) == 0:
        load_config = replace(load_config, loop="open", rate_per_s=float(dice.pick(1, 50, 5000)))
    if dice.below(8) == 0:
        load_config = replace(load_config, concurrency=100)
    return replace(config, load=load_config)


def _any_policy(family: str, dice: Dice) -> Policy[Any]:
    """Return a registered policy with default options that the simulator can serve."""
    choices = names(family)
    first = dice.below(len(choices))
    for name in choices[first:] + choices[:first]:
        try:
            policy = load(family, name)
        except InputError:
            continue  # it has an option without a default, or lacks an optional dependency
        if policy.needs <= SERVED:
            return policy
    raise InputError(f"no policy of the family {family!r} can be loaded with its defaults")


def _any_drafter(dice: Dice) -> tuple[Any, Any]:
    drafter: Any = Repeat(dice.pick(1, 4, 9))
    budget: Any = Even(dice.pick(0, 1, 3, 7))
    if dice.below(3) == 0:
        drafter = _any_policy("drafters", dice)
    if dice.below(3) == 0:
        budget = _any_policy("budgets", dice)
    return drafter, budget
