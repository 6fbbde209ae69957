"""Results that outlive a run: they serve the next one, and never one that they are not for."""

from __future__ import annotations

import os
import signal
import sqlite3
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from fake_openai import FakeServer, served
from numpy.typing import NDArray

from live.agents.session import run, workload_of
from live.agents.settings import AgentSettings
from live.agents.store import ResultStore, value_of
from policies.reuse_index import Provenance, Record
from policies.views import ReuseName
from traces.errors import InputError
from traces.runlog import read_run

ROOT = Path(__file__).parents[2]
NAME = ReuseName("stage", 7)
RECORD = Record((value_of("a"),), (), Provenance(1, 2))


@pytest.fixture
def fake() -> Iterator[FakeServer]:
    with served(FakeServer()) as server:
        yield server


def given(server: FakeServer, store: Path | None, **changes: object) -> AgentSettings:
    base: dict[str, object] = {"workflows": 6, "time_scale": 0.001, "reuse": "subgraph", "store": store}
    return AgentSettings("dynbranch_react", server.url, **{**base, **changes})  # type: ignore[arg-type]


def served_of(run_dir: Path) -> NDArray[np.int32]:
    log = read_run(run_dir)
    return log.column("decisions", "stage")[log.select("decisions", "action", "served")]


def test_a_second_run_is_served_by_the_first_and_returns_the_same(fake: FakeServer, tmp_path: Path) -> None:
    store = tmp_path / "store.sqlite"
    first = run(given(fake, store), tmp_path / "first")
    asked = len(fake.bodies)
    second = run(given(fake, store), tmp_path / "second")
    assert second.values == first.values
    assert len(served_of(tmp_path / "second")) > len(served_of(tmp_path / "first"))
    assert len(fake.bodies) - asked < asked
    served = served_of(tmp_path / "second")
    branches = workload_of(given(fake, store)).branches
    assert branches is not None
    reading = np.flatnonzero(branches.read_ptr[1:] > branches.read_ptr[:-1])
    # Nobody saw what was written between the runs: what read a resource is executed once more, then serves again.
    again = np.intersect1d(reading, served)
    assert len(again) == len(np.intersect1d(reading, served_of(tmp_path / "first")))


def test_results_of_another_model_or_scale_are_refused(fake: FakeServer, tmp_path: Path) -> None:
    store = tmp_path / "store.sqlite"
    run(given(fake, store), tmp_path / "first")
    with pytest.raises(InputError, match="holds results of model fake, greedy, scale 16, output scale 16"):
        run(given(fake, store, scale=8.0), tmp_path / "second")
    assert not (tmp_path / "second").exists()


def test_a_file_that_is_no_store_is_refused_in_one_line(fake: FakeServer, tmp_path: Path) -> None:
    store = tmp_path / "store.sqlite"
    store.write_bytes(b"no database" * 1000)
    with pytest.raises(InputError, match="no store of results"):
        run(given(fake, store), tmp_path / "run")
    assert store.read_bytes() == b"no database" * 1000


def test_records_come_back_without_those_that_read_a_resource(tmp_path: Path) -> None:
    stale = Record((5,), ((9, 1),), Provenance(1, 3, 4))
    with ResultStore(tmp_path / "s", "m") as store:
        assert store.add("a") == RECORD.values[0]
        store.kept(NAME, RECORD)
        store.kept(ReuseName("stage", 8), stale)
        store.kept(ReuseName("stage", 9), RECORD)
        store.dropped(ReuseName("stage", 9))
    with ResultStore(tmp_path / "s", "m") as store:
        assert store.records() == [(NAME, RECORD)]
        assert store.text(RECORD.values[0]) == "a"
        assert store.text(1) is None
        assert store.text((1 << 64) - 1) is None


def test_a_store_of_a_killed_process_opens_with_what_was_saved(tmp_path: Path) -> None:
    code = (
        "import os\nfrom pathlib import Path\nfrom live.agents.store import ResultStore\n"
        f"store = ResultStore(Path({str(tmp_path / 's')!r}), 'm')\n"
        "store.add('saved')\nstore.save()\nstore.add('lost')\nos.kill(os.getpid(), 9)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, check=False)
    assert done.returncode == -signal.SIGKILL
    with ResultStore(tmp_path / "s", "m") as store:
        assert store.text(value_of("saved")) == "saved"
        assert store.text(value_of("lost")) is None
    with sqlite3.connect(tmp_path / "s") as db:
        assert db.execute("PRAGMA integrity_check").fetchone() == ("ok",)
    db.close()


def test_draws_of_one_workload_share_a_store_and_workloads_do_not(fake: FakeServer, tmp_path: Path) -> None:
    """Lengths are the workload's: what one answered would be cut where another's answer is not."""
    store = tmp_path / "store.sqlite"
    run(given(fake, store), tmp_path / "first")
    other = {"seed": 1, "workflows": 9}
    plain = run(given(fake, None, reuse="none", **other), tmp_path / "plain")
    assert run(given(fake, store, **other), tmp_path / "second").values == plain.values
    with pytest.raises(InputError, match="give another file"):
        run(replace(given(fake, store), workload="dynbranch_routing"), tmp_path / "third")


def test_two_runs_may_share_a_store_at_once(tmp_path: Path) -> None:
    with ResultStore(tmp_path / "s", "m") as one, ResultStore(tmp_path / "s", "m") as other:
        for store, text in ((one, "a"), (other, "b"), (one, "c")):
            store.add(text)
            store.save()
            assert store.trouble == ""
        assert other.text(value_of("c")) == "c"


def test_a_store_that_cannot_be_written_costs_no_result(tmp_path: Path) -> None:
    with ResultStore(tmp_path / "s", "m") as store, sqlite3.connect(tmp_path / "s") as other:
        other.execute("BEGIN IMMEDIATE")
        value = store.add("a")
        store.save()
        assert "locked" in store.trouble
        assert store.text(value) == "a"
        other.execute("ROLLBACK")
        store.save()
        assert store.trouble == ""
    other.close()


@pytest.mark.parametrize("values", ["[1", '["x"]', "[1, 2]", "[1.5]"])
def test_a_damaged_record_is_one_line(values: str, tmp_path: Path) -> None:
    with ResultStore(tmp_path / "s", "m") as store:
        store.kept(NAME, RECORD)
    with sqlite3.connect(tmp_path / "s") as db:
        db.execute("UPDATE records SET vals = ?", (values,))
    db.close()
    with ResultStore(tmp_path / "s", "m") as store, pytest.raises(InputError, match="no store of results"):
        store.records()


def test_a_small_capacity_forgets_nothing_that_is_on_disk(fake: FakeServer, tmp_path: Path) -> None:
    store = tmp_path / "store.sqlite"
    run(given(fake, store), tmp_path / "first")
    with sqlite3.connect(store) as db:
        before = db.execute("SELECT COUNT(*) FROM records WHERE reads = '[]'").fetchone()[0]
    db.close()
    small = given(fake, store, reuse_options={"capacity": before // 2}, workflows=1)
    run(small, tmp_path / "second")
    with sqlite3.connect(store) as db:
        after = db.execute("SELECT COUNT(*) FROM records WHERE reads = '[]'").fetchone()[0]
    db.close()
    assert after > before // 2 + 2


# What a shell started in the background ignores SIGINT, and so do its children.
INTERRUPTIBLE = (
    "import signal, sys\nfrom live.__main__ import main\n"
    "signal.signal(signal.SIGINT, signal.default_int_handler)\nsys.exit(main(sys.argv[1:]))\n"
)


def test_ctrl_c_writes_what_had_finished(tmp_path: Path) -> None:
    with served(FakeServer(silent=30)) as slow:
        process = subprocess.Popen(
            [sys.executable, "-c", INTERRUPTIBLE, "agents", "dynbranch_react", "--server", slow.url, "--out",
             str(tmp_path / "run"), "--workflows", "40", "--concurrency", "2", "--time-scale", "0.001",
             "--scale", "32", "--reuse", "subgraph", "--store", str(tmp_path / "store")],
            cwd=ROOT, env={**os.environ, "PYTHONPATH": str(ROOT)}, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
            text=True,
        )  # fmt: skip
        limit = time.monotonic() + 60
        while len(slow.bodies) <= 31 and time.monotonic() < limit:
            time.sleep(0.02)
        process.send_signal(signal.SIGINT)
        try:
            out, err = process.communicate(timeout=60)
        finally:
            process.kill()
    assert process.returncode == 130, err
    assert "stopped" in out
    assert "Traceback" not in err
    log = read_run(tmp_path / "run")
    assert 0 < log.rows("requests") < 200
    assert log.column("workflows", "finished_ns").max() > 0
    assert (log.column("workflows", "finished_ns") == -1).any()
    with sqlite3.connect(tmp_path / "store") as db:
        assert db.execute("SELECT COUNT(*) FROM texts").fetchone()[0] >= 3
    db.close()
