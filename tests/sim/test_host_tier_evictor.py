"""What leaves the host tier is a policy's decision, too: the same evictors, told the same."""

from __future__ import annotations

from dataclasses import replace

import pytest

from sim.config import HostTierConfig
from sim.worlds import World, random_world
from traces.errors import InputError

EVICTORS = ("lru", "lifecycle", "lookahead", "kvflow", "continuum", "gdsf", "sieve", "lfu")


def tiered(seed: int, ratio: float, evictor: str) -> World:
    world = random_world(seed)
    tier = HostTierConfig(
        ratio=ratio, write="write_through", load_back="always", min_load_tokens=1, evictor=evictor
    )
    return replace(world, config=replace(world.config, host_tier=tier, replicas=1))


@pytest.mark.parametrize("seed", range(0, 24, 3))
def test_with_host_memory_for_everything_no_evictor_matters(seed: int) -> None:
    first, *others = (tiered(seed, 500.0, e).run(check=True)[1] for e in EVICTORS)
    for tables in others:
        for name, table in tables.items():
            assert table.equals(first[name]), name


def test_in_a_small_host_tier_the_evictor_decides_what_comes_back() -> None:
    hits: dict[str, list[int]] = {e: [] for e in EVICTORS}
    for seed in range(60):
        for evictor in EVICTORS:
            _, tables = tiered(seed, 0.3, evictor).run(check=True)
            hits[evictor].append(sum(tables["requests"]["host_hit_tokens"].to_pylist()))
    assert sum(hits["lru"]) > 0
    assert len({tuple(h) for h in hits.values()}) > 3


@pytest.mark.parametrize(
    ("evictor", "said"),
    [
        ("lookahed", "did you mean 'lookahead'"),
        ("lookahead(horizn=2)", "did you mean 'horizon'"),
        ("belady_leaf", "needs oracle"),
        ("lru(", "expected a policy's name"),
    ],
)
def test_an_evictor_that_cannot_be_had_is_refused_by_the_configuration(evictor: str, said: str) -> None:
    with pytest.raises(InputError, match=r"host_tier\.evictor=") as error:
        HostTierConfig(evictor=evictor)
    assert said in str(error.value)
