"""The run log: stretches expand to their steps, rows leave in order, whatever the sink."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import sim.log
from sim.log import MemorySink, ParquetSink, RunLog
from sim.run import simulate
from sim.worlds import random_world
from traces.tables import SCHEMAS


def stretch(log: RunLog, *, replica: int = 0, n: int, start: int, free: int = 1 << 40) -> None:
    """Three sequences of context 10, 20 and 30 in blocks of four, growing by 3000 ps a step."""
    log.stretch(
        (replica, n, start, 1_000_000, 3_000, 3, 2, 0, 0, 60, 1, 20, 7, free, 0, 0, 0, 5, 0), [1, 0, 2, 0], n
    )


def steps(log_rows: list[tuple[int, int]], settled: int = 1 << 62) -> list[dict[str, int]]:
    sink = MemorySink()
    log = RunLog(sink, 4, lambda: settled)
    for n, start in log_rows:
        stretch(log, n=n, start=start)
    log.close()
    return sink.tables()["steps"].to_pylist()


def test_a_stretch_expands_to_the_steps_that_single_steps_would_write() -> None:
    rows = steps([(6, 500)])
    assert len(rows) == 6
    ends_ps = [500 + k * 1_000_000 + 3_000 * (k * (k - 1) // 2) for k in range(7)]
    assert [r["start_ns"] for r in rows] == [t // 1000 for t in ends_ps[:-1]]
    assert [r["start_ns"] + r["duration_ns"] for r in rows] == [t // 1000 for t in ends_ps[1:]]
    assert [r["context_tokens"] for r in rows] == [60, 63, 66, 69, 72, 75]
    assert [r["continuing_seqs"] for r in rows] == [2, 3, 3, 3, 3, 3]
    # Phases: one sequence needs a block in the first step, two in the third, one again in the fifth.
    assert [r["kv_blocks_active"] for r in rows] == [21, 21, 23, 23, 24, 24]
    assert {r["kv_blocks_cached"] for r in rows} == {7}


def test_blocks_beyond_what_is_free_are_taken_from_the_cached_ones() -> None:
    sink = MemorySink()
    log = RunLog(sink, 4, lambda: 0)
    stretch(log, n=6, start=0, free=2)
    log.close()
    assert [r["kv_blocks_cached"] for r in sink.tables()["steps"].to_pylist()] == [7, 7, 6, 6, 5, 5]


def test_steps_of_all_replicas_leave_in_order_of_time() -> None:
    sink = MemorySink()
    settled = 0
    log = RunLog(sink, 4, lambda: settled)
    for turn in range(4):
        for replica in (1, 0):
            stretch(log, replica=replica, n=3, start=turn * 10_000_000 + replica * 500_000)
        settled = turn * 10_000
        log._flush_steps(settled)
    log.close()
    rows = [(r["start_ns"], r["replica"]) for r in sink.tables()["steps"].to_pylist()]
    assert len(rows) == 24
    assert rows == sorted(rows)


@pytest.mark.parametrize("seed", [3, 4, 5])
def test_the_log_does_not_tell_when_it_was_flushed(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    world = random_world(seed)
    _, whole = world.run()
    monkeypatch.setattr(sim.log, "_FLUSH_ROWS", 3)
    monkeypatch.setattr(sim.log, "_FLUSH_STEPS", 5)
    _, pieces = world.run()
    for name, table in whole.items():
        assert table.equals(pieces[name]), name


def test_parquet_holds_what_memory_holds_and_every_table_exists(tmp_path: Path) -> None:
    world = random_world(4)
    _, tables = world.run()
    with ParquetSink(tmp_path) as sink:
        simulate(world.workload, world.profile, world.policies, world.config, sink, kv_blocks=world.kv_blocks)
    assert {p.stem for p in tmp_path.glob("*.parquet")} == set(SCHEMAS)
    for name, table in tables.items():
        read = pq.read_table(tmp_path / f"{name}.parquet")
        assert read.schema.metadata == SCHEMAS[name].metadata
        assert read.to_pylist() == table.to_pylist(), name


def test_bytes_do_not_depend_on_when_rows_were_flushed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = random_world(4)
    for part, rows in (("a", 20_000), ("b", 7)):
        monkeypatch.setattr(sim.log, "_FLUSH_ROWS", rows)
        (tmp_path / part).mkdir()
        with ParquetSink(tmp_path / part) as sink:
            simulate(
                world.workload, world.profile, world.policies, world.config, sink, kv_blocks=world.kv_blocks
            )
    for name in SCHEMAS:
        a, b = ((tmp_path / part / f"{name}.parquet").read_bytes() for part in "ab")
        assert a == b, name


def test_a_run_that_fails_leaves_closed_files(tmp_path: Path) -> None:
    def fail() -> None:
        with ParquetSink(tmp_path) as sink:
            sink.write("workflows", SCHEMAS["workflows"].empty_table())
            raise RuntimeError("cut")

    with pytest.raises(RuntimeError, match="cut"):
        fail()
    assert isinstance(pq.read_table(tmp_path / "workflows.parquet"), pa.Table)
