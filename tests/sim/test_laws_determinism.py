"""Law 1: the same inputs give the same bytes in any process. Law 2: draws do not depend on each other."""

import hashlib
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from policies.registry import load
from sim.config import LoadConfig
from sim.log import ParquetSink
from sim.run import simulate
from sim.worlds import random_world
from traces import draws
from traces.builder import WorkloadBuilder
from traces.runlog import from_tables, read_run

ROOT = Path(__file__).parents[2]

SCRIPT = """
import hashlib, sys, tempfile
from pathlib import Path
sys.path[:0] = [sys.argv[1]]
from sim.worlds import random_world
from sim.log import ParquetSink
from sim.run import simulate
digest = hashlib.blake2b(digest_size=16)
for seed in range(12):
    world = random_world(seed)
    with tempfile.TemporaryDirectory() as folder:
        with ParquetSink(Path(folder)) as sink:
            simulate(
                world.workload, world.profile, world.policies, world.config, sink, kv_blocks=world.kv_blocks
            )
        for path in sorted(Path(folder).iterdir()):
            digest.update(path.name.encode() + path.read_bytes())
print(digest.hexdigest())
"""


def _digest(folder: Path, **environment: str) -> str:
    command = [sys.executable, "-c", SCRIPT, str(ROOT)]
    done = subprocess.run(
        command, env={**os.environ, **environment}, cwd=folder, capture_output=True, text=True, check=True
    )
    return done.stdout.strip()


def test_the_same_run_gives_the_same_bytes_in_any_process(tmp_path: Path) -> None:
    one = _digest(tmp_path, PYTHONHASHSEED="0")
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    # NPY_DISABLE_CPU_FEATURES makes numpy take its plain code paths, as on another CPU.
    other = _digest(
        elsewhere,
        PYTHONHASHSEED="4242",
        OMP_NUM_THREADS="1",
        TZ="Asia/Tokyo",
        NPY_DISABLE_CPU_FEATURES="AVX2 FMA3",
    )
    assert one == other
    assert len(one) == 32


def test_running_twice_in_one_process_changes_nothing() -> None:
    for seed in range(6):
        world = random_world(seed)
        first, again = world.run()[1], world.run()[1]
        assert all(first[name].equals(again[name]) for name in first)


def test_another_seed_is_another_run() -> None:
    world = random_world(1)
    other = replace(world, config=replace(world.config, load=LoadConfig(loop="open", rate_per_s=50.0)))
    reseeded = replace(other, config=replace(other.config, seed=other.config.seed + 1))
    assert not other.run()[1]["workflows"].equals(reseeded.run()[1]["workflows"])


def test_a_log_read_back_from_files_is_the_log(tmp_path: Path) -> None:
    world = random_world(3)
    with ParquetSink(tmp_path) as sink:
        simulate(world.workload, world.profile, world.policies, world.config, sink, kv_blocks=world.kv_blocks)
    memory, files = world.run()[1], read_run(tmp_path)
    for name, table in memory.items():
        assert files.table(name).to_pylist() == table.to_pylist(), name


@pytest.mark.parametrize("change", ["evictor", "router", "replicas", "pool"])
def test_arrivals_do_not_depend_on_the_arm(change: str) -> None:
    world = random_world(5, faults=False)
    load_config = LoadConfig(loop="open", rate_per_s=40.0)
    base = replace(world, config=replace(world.config, load=load_config), kv_blocks=400)
    arm = {
        "evictor": lambda: replace(base, policies=replace(base.policies, evictor=load("evictors", "lfu"))),
        "router": lambda: replace(
            base, policies=replace(base.policies, router=load("routers", "prefix_aware"))
        ),
        "replicas": lambda: replace(base, config=replace(base.config, replicas=base.config.replicas + 1)),
        "pool": lambda: replace(base, kv_blocks=200),
    }[change]()
    arrivals = []
    for w in (base, arm):
        workflow, started = from_tables(w.run()[1]).columns("workflows", "workflow", "started_ns")
        arrivals.append(dict(zip(workflow.tolist(), started.tolist(), strict=True)))
    assert arrivals[0] == arrivals[1]
    assert len(set(arrivals[0].values())) > 1


def test_more_workflows_do_not_shift_the_arrivals_before_them() -> None:
    starts = []
    for n in (20, 30):
        builder = WorkloadBuilder("w")
        for i in range(n):
            builder.workflow(str(i))
            builder.llm(10, 2)
        world = replace(random_world(0, faults=False), workload=builder.build(), kv_blocks=400)
        config = replace(world.config, load=LoadConfig(loop="open", rate_per_s=5.0), seed=9)
        starts.append(
            np.sort(from_tables(replace(world, config=config).run()[1]).column("workflows", "started_ns"))
        )
    assert np.array_equal(starts[0], starts[1][:20])


def test_a_draw_depends_on_its_name_alone() -> None:
    ids = np.arange(1000)
    block = draws.bits_array(7, "purpose", ids, 3)
    assert [int(b) for b in block] == [draws.bits(7, "purpose", int(i), 3) for i in ids]
    assert np.array_equal(block[::-1], draws.bits_array(7, "purpose", ids[::-1], 3))
    for other in (draws.bits_array(8, "purpose", ids, 3), draws.bits_array(7, "porpuse", ids, 3)):
        assert not np.any(block == other)
    assert len(np.unique(block)) == len(ids)
    digest = hashlib.blake2b(block.astype("<u8").tobytes(), digest_size=8).hexdigest()
    again = hashlib.blake2b(draws.bits_array(7, "purpose", ids, 3).astype("<u8").tobytes(), digest_size=8)
    assert digest == again.hexdigest()
