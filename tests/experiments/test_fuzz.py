"""The fuzzer finds what is broken, says how to replay it, and is silent about what is not."""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import replace
from typing import Any

import pyarrow as pa
import pytest

from experiments import fuzz
from experiments.__main__ import main
from experiments.fuzz_laws import check_log
from experiments.fuzz_worlds import fuzz_world, policy_names
from policies.registry import names
from sim.engine import Engine
from sim.kv.radix import RadixCache
from sim.stretch import Stretch
from traces.tables import REQUEST_STATUS


def test_a_clean_stretch_of_worlds_counts_what_it_met(capsys: pytest.CaptureFixture[str]) -> None:
    assert fuzz.fuzz(100, count=25) == 0
    out = capsys.readouterr().out
    assert re.match(r"25 worlds \(seeds 100 to 124\) in .* worlds/s, 0 failed\n", out)
    counted = {line.split(None, 1)[1]: int(line.split(None, 1)[0]) for line in out.splitlines()[1:]}
    assert counted["loop=open"] + counted["loop=closed"] == 25


def test_equal_seeds_make_equal_worlds() -> None:
    for seed in range(20):
        a, b = fuzz_world(seed), fuzz_world(seed)
        assert a.workload.digest() == b.workload.digest()
        assert (a.config, a.profile, a.policies, a.kv_blocks) == (
            b.config,
            b.profile,
            b.policies,
            b.kv_blocks,
        )


def test_every_registered_policy_and_every_fault_is_met() -> None:
    worlds = [fuzz_world(seed) for seed in range(200)]
    seen = Counter(word for world in worlds for word in policy_names(world).split())
    assert all(seen[f"evictor={name}"] for name in names("evictors"))
    assert all(seen[f"router={name}"] for name in names("routers"))
    assert all(seen[f"bucketer={name}"] for name in names("bucketers"))
    assert sum(world.policies.drafter.active() for world in worlds) > 20
    assert sum(world.config.fault.pause_for_s > 0 for world in worlds) > 20
    assert sum(world.config.load.horizon_s is not None for world in worlds) > 20
    assert sum(world.kv_blocks <= 8 for world in worlds) > 20
    assert sum(0 < int(world.config.host_tier.ratio * world.kv_blocks) <= 4 for world in worlds) > 10
    assert all((world.workload.output_tokens >= 0).all() for world in worlds)


def first_failure(count: int = 60) -> tuple[int, str]:
    for seed in range(count):
        line = fuzz.check_seed(seed)
        if line is not None:
            return seed, line
    raise AssertionError("the fuzzer missed it")


def test_a_broken_engine_is_found_and_its_line_replays_it(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    sound = Engine._prefilled

    def forgetful(self: Engine, request: Any, tokens: int) -> None:
        sound(self, request, tokens)
        request.prefilled_tokens -= request.prompt_tokens == 17

    monkeypatch.setattr(Engine, "_prefilled", forgetful)
    seed, line = first_failure(400)
    assert "\n" not in line
    assert line.startswith(f"FAILED: python -m experiments fuzz --seed {seed} [evictor=")
    assert "prefilled + hit is not prompt + recomputed" in line
    assert main(["fuzz", "--seed", str(seed)]) == 1
    assert line in capsys.readouterr().out


def test_a_leak_in_the_cache_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    sound = RadixCache._remove

    def leaky(self: RadixCache, node: Any, now_ns: int) -> None:
        sound(self, node, now_ns)
        self.resident_blocks += node.id % 5 == 0

    monkeypatch.setattr(RadixCache, "_remove", leaky)
    assert "AssertionError" in first_failure()[1]


def test_a_shortcut_of_fast_forward_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    sound = Stretch.ended_by
    monkeypatch.setattr(Stretch, "ended_by", lambda self, now: max(sound(self, now) - 1, 0))
    first_failure()


def test_a_world_that_hangs_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    def hang(self: Engine) -> None:
        while True:
            pass

    monkeypatch.setattr(fuzz, "WORLD_LIMIT_S", 0.2)
    monkeypatch.setattr(Engine, "_plan", hang)
    line = fuzz.check_seed(1)
    assert line is not None
    assert "Hang: still running" in line


def edited(tables: dict[str, pa.Table], table: str, column: str, row: int, value: int) -> dict[str, pa.Table]:
    """Return the tables with one number changed."""
    values = tables[table][column].to_pylist()
    values[row] = value
    index = tables[table].schema.get_field_index(column)
    field = tables[table].schema.field(index)
    return {**tables, table: tables[table].set_column(index, field, pa.array(values, field.type))}


@pytest.mark.parametrize(
    ("table", "column", "value", "says"),
    [
        ("requests", "stage", None, "ended twice"),
        ("requests", "output_tokens", 1_000_000, "lacks output"),
        ("requests", "prefilled_tokens", 1_000_000, "prefilled"),
        ("requests", "gpu_hit_tokens", 1_000_000, "prefilled"),
        ("requests", "finished_ns", 0, "before"),
        ("requests", "accepted_tokens", 1, "accepted"),
        ("requests", "recomputed_tokens", 5, "prefilled"),
        ("steps", "duration_ns", 10**9, "overlap"),
        ("steps", "kv_blocks_active", 10**6, "KV blocks"),
        ("steps", "prefill_tokens", 10**6, "tokens"),
        ("steps", "decode_seqs", 10**6, "sequences"),
        ("workflows", "finished_ns", -1, "statistics"),
        ("workflows", "rejected", 1, "rejected"),
        ("workflows", "stages", 0, "stages"),
    ],
)
def test_every_law_notices_a_wrong_number(table: str, column: str, value: int | None, says: str) -> None:
    world = plain_world()
    stats, tables = world.run()
    check_log(world, stats, tables)
    if value is None:  # the number of the row before
        value = tables[table][column].to_pylist()[0]
    tables = edited(tables, table, column, 1, value)
    with pytest.raises(AssertionError, match=says):
        check_log(world, stats, tables)


def plain_world() -> Any:
    """A world without faults in which every request finishes."""
    for seed in range(100):
        world = fuzz_world(seed)
        config = replace(world.config, load=replace(world.config.load, horizon_s=None))
        world = replace(world, config=config)
        stats, tables = world.run()
        finished = tables["requests"]["status"].to_pylist().count(REQUEST_STATUS.index("finished"))
        if stats.completed == world.workload.n_workflows and finished > 5 and tables["steps"].num_rows > 20:
            return world
    raise AssertionError("no such world")


def test_wrong_options_are_one_line_with_status_2(capsys: pytest.CaptureFixture[str]) -> None:
    for words in (["--seconds", "0"], ["--seconds", "x"], ["--seed", "1", "--seconds", "2"], ["--sed", "1"]):
        assert main(["fuzz", *words]) == 2
        captured = capsys.readouterr()
        assert captured.out == ""
        assert captured.err.startswith("error: ")
        assert captured.err.count("\n") == 1
