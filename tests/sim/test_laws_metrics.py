"""Law 7: metrics read the log only, and the log never depends on which metrics are asked for."""

import subprocess
import sys
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from sim.log import ParquetSink
from sim.run import simulate
from sim.worlds import random_world
from traces.draws import bits_array
from traces.metrics import SERIES, run_metrics, series, warnings
from traces.perfetto import events
from traces.runlog import RunLog, from_tables, read_run

ROOT = Path(__file__).parents[2]


def everything(log: RunLog) -> dict[str, float]:
    """Ask for all there is."""
    out = {f"{w}/{k}": v for w in ("full", "steady") for k, v in run_metrics(log, w).items()}
    for name in SERIES:
        out |= {f"{name}/{i}": float(v) for i, v in enumerate(series(log, name, 9).value)}
    out |= dict.fromkeys(warnings(log), 1.0)
    return out


def same(a: dict[str, float], b: dict[str, float], tolerance: float) -> None:
    assert a.keys() == b.keys()
    for name, value in a.items():
        assert value == pytest.approx(b[name], rel=tolerance, abs=tolerance, nan_ok=True), name


def test_metrics_import_no_host() -> None:
    code = (
        "import sys; import traces.metrics, traces.perfetto; "
        "hosts = ('sim', 'live', 'policies', 'calibration', 'experiments', 'simpy'); "
        "print([m for m in hosts if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


@pytest.mark.parametrize("seed", range(8))
def test_asking_for_metrics_changes_no_log(seed: int) -> None:
    tables = random_world(seed).run()[1]
    copy = {name: pa.ipc.open_stream(_bytes(t)).read_all() for name, t in tables.items()}
    log = from_tables(tables)
    first = everything(log)
    assert sum(1 for _ in events(log)) > 0
    assert all(tables[name].equals(copy[name]) for name in tables)
    # Nor the next answer.
    same(first, everything(log), 0.0)
    same(first, everything(from_tables(copy)), 0.0)


@pytest.mark.parametrize("seed", range(4))
def test_metrics_of_files_equal_metrics_of_memory(seed: int, tmp_path: Path) -> None:
    world = random_world(seed)
    with ParquetSink(tmp_path) as sink:
        simulate(world.workload, world.profile, world.policies, world.config, sink, kv_blocks=world.kv_blocks)
    same(everything(from_tables(world.run()[1])), everything(read_run(tmp_path)), 0.0)


@pytest.mark.parametrize("seed", range(8))
def test_metrics_do_not_depend_on_the_order_of_rows(seed: int) -> None:
    tables = random_world(seed).run()[1]
    shuffled = {}
    for name, table in tables.items():
        order = np.argsort(bits_array(seed, name, np.arange(table.num_rows)))
        shuffled[name] = table.take(pa.array(order)).combine_chunks()
    a, b = run_metrics(from_tables(tables)), run_metrics(from_tables(shuffled))
    same(a, b, 1e-9)


def _bytes(table: pa.Table) -> pa.Buffer:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    return sink.getvalue()
