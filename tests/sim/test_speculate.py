"""Drafting changes only time: what is generated stays, and drafted = accepted + rejected."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import pytest

from policies.api import BatchView, Budget, Draft, Drafter, HostInfo, Proposals
from sim.config import AcceptConfig
from sim.worlds import random_world


@dataclass(frozen=True)
class FixedDrafter(Drafter[None]):
    length: int = 4

    def new_state(self, host: HostInfo) -> None:
        return None

    def propose(self, state: None, stage: int, limit: int) -> Draft:
        n = min(self.length, limit)
        return Draft(np.zeros(n, dtype=np.uint32), np.ones(n, dtype=np.float32))


@dataclass(frozen=True)
class Uniform(Budget[None]):
    tokens: int = 3

    def new_state(self, host: HostInfo) -> None:
        return None

    def limit(self, state: None, batch: BatchView) -> int:
        return self.tokens

    def allocate(self, state: None, proposals: Proposals, batch: BatchView) -> np.ndarray:
        return np.minimum(proposals.length, self.tokens).astype(np.int32)


def with_drafts(seed: int, rate: float):
    world = random_world(seed, faults=False)
    policies = replace(world.policies, drafter=FixedDrafter(), budget=Uniform())
    config = replace(world.config, accept=AcceptConfig(rate=rate))
    return world, replace(world, policies=policies, config=config)


@pytest.mark.parametrize("seed", range(40))
def test_drafts_leave_every_request_with_the_output_it_had(seed: int) -> None:
    plain, drafting = with_drafts(seed, 0.7)
    _, a = plain.run(check=True)
    _, b = drafting.run(check=True)
    outputs = [
        sorted(
            zip(t["requests"]["stage"].to_pylist(), t["requests"]["output_tokens"].to_pylist(), strict=True)
        )
        for t in (a, b)
    ]
    assert outputs[0] == outputs[1]


@pytest.mark.parametrize("seed", range(20))
def test_step_rows_and_request_rows_agree_on_drafted_and_accepted_tokens(seed: int) -> None:
    _, drafting = with_drafts(seed, 0.6)
    _, tables = drafting.run(check=True)
    for column in ("drafted_tokens", "accepted_tokens"):
        assert sum(tables["steps"][column].to_pylist()) == sum(tables["requests"][column].to_pylist())
    assert all(r["accepted_tokens"] <= r["drafted_tokens"] for r in tables["requests"].to_pylist())


def test_sure_acceptance_takes_fewer_steps_and_none_takes_as_many() -> None:
    fewer = 0
    for seed in range(12):
        plain, sure = with_drafts(seed, 1.0)
        _, never = with_drafts(seed, 0.0)
        steps, sure_steps, never_steps = (w.run()[0].steps for w in (plain, sure, never))
        assert sure_steps <= steps
        fewer += sure_steps < steps
        assert plain.run()[1]["requests"].num_rows == never.run()[1]["requests"].num_rows
        assert never_steps > 0
    assert fewer >= 6
