"""Negative controls: what must not matter does not."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, cast

import pytest
from prefetch_cases import world_of

from policies import registry
from policies.api import Evictor, Predictor
from policies.registry import load

EVICTORS = tuple(registry.names("evictors"))


@pytest.mark.parametrize("seed", [0, 3, 8, -4])
def test_with_memory_for_all_no_evictor_changes_the_log(seed: int) -> None:
    world = world_of(seed)
    predictor = cast("Predictor[Any]", load("predictors", "markov"))
    ample = replace(world, kv_blocks=200_000, policies=replace(world.policies, predictor=predictor))
    logs = {}
    for name in EVICTORS:
        evictor = cast("Evictor[Any]", load("evictors", name))
        logs[name] = replace(ample, policies=replace(ample.policies, evictor=evictor)).run()[1]
    base = logs.pop("lru")
    assert base["requests"].num_rows > 0
    for name, tables in logs.items():
        for table in base:
            assert tables[table].equals(base[table]), (name, table)


def test_with_little_memory_evictors_do_differ() -> None:
    world = world_of(-4)
    logs = []
    for name in ("lru", "lookahead"):
        evictor = cast("Evictor[Any]", load("evictors", name))
        policies = replace(world.policies, evictor=evictor)
        logs.append(replace(world, policies=policies).run()[1]["blocks"])
    assert not logs[0].equals(logs[1])
