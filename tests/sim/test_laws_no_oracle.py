"""Law 4: what has not happened yet decides nothing, unless a policy declares that it needs the truth."""

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pytest

from policies.api import HostInfo
from policies.evictors.lru import Lru
from policies.registry import find, load, names
from sim.worlds import World, random_world
from traces.errors import InputError
from traces.runlog import RunLog, from_tables

HONEST = [n for n in names("evictors") if not find("evictors", n).needs]
SEEN: list[Any] = []


@dataclass(frozen=True)
class Curious(Lru):
    def new_state(self, host: HostInfo) -> Any:
        SEEN.append(host.oracle)
        return super().new_state(host)


@dataclass(frozen=True)
class Clairvoyant(Lru):
    needs = frozenset({"next week's weather"})


def test_a_policy_without_the_need_gets_no_oracle() -> None:
    SEEN.clear()
    world = random_world(2)
    replace(world, policies=replace(world.policies, evictor=Curious())).run()
    assert SEEN
    assert all(oracle is None for oracle in SEEN)


def test_a_need_that_a_simulator_cannot_meet_is_refused_and_listed() -> None:
    world = random_world(2)
    with pytest.raises(InputError, match="next week's weather"):
        replace(world, policies=replace(world.policies, evictor=Clairvoyant())).run()


def before(log: RunLog, time_ns: int) -> list[Any]:
    """Return all rows of what happened before `time_ns`."""
    out = []
    for table, when in (("steps", "start_ns"), ("blocks", "time_ns"), ("decisions", "time_ns")):
        rows = log.table(table).to_pylist()
        # What is in progress at that time is left out.
        out.append([r for r in rows if r[when] + r.get("duration_ns", 0) < time_ns])
    ended = [r for r in log.table("requests").to_pylist() if 0 <= r["finished_ns"] < time_ns]
    return [*out, ended]


def longer(world: World, stage: int) -> World:
    """The same world where one request will generate three more tokens than it did."""
    output = world.workload.output_tokens.copy()
    output[stage] += 3
    return replace(world, workload=replace(world.workload, output_tokens=output))


@pytest.mark.parametrize("evictor", HONEST)
@pytest.mark.parametrize("router", ["least_loaded", "prefix_aware"])
def test_a_request_s_length_changes_nothing_before_its_first_token(evictor: str, router: str) -> None:
    compared = 0
    for seed in range(6):
        base = random_world(seed, evictor, faults=False)
        world = replace(base, policies=replace(base.policies, router=load("routers", router)))
        log = from_tables(world.run()[1])
        first, stage, output = log.columns("requests", "first_token_ns", "stage", "output_tokens")
        able = np.flatnonzero(output >= 2)
        if not len(able):
            continue
        at = able[np.argsort(first[able], kind="stable")[len(able) * 3 // 4]]
        changed = from_tables(longer(world, int(stage[at])).run()[1])
        if changed.column("requests", "status").tolist().count(1) != log.column(
            "requests", "status"
        ).tolist().count(1):
            continue  # now too long for the pool, which an engine sees from the limit that the caller gave
        now, then = before(log, int(first[at])), before(changed, int(first[at]))
        assert now == then
        assert log.rows("steps") != changed.rows("steps") or not log.table("requests").equals(
            changed.table("requests")
        )
        compared += len(now[0])
    assert compared > 100
