"""The run store: what exists is complete, whatever died while writing it."""

from __future__ import annotations

import contextlib
import errno
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from experiments.plan import Arm, Plan, parse_plan
from experiments.store import Store
from traces.errors import InputError

ROOT = Path(__file__).parents[2]


def store_in(path: Path) -> Store:
    store = Store(path)
    store.create()
    return store


def make_run(store: Store, run_id: str) -> None:
    with store.begin(run_id) as draft:
        (draft.directory / "steps.parquet").write_bytes(b"rows")
        draft.commit({"seed": 1})


def make_plan(name: str = "main", run: str = "r1") -> Plan:
    arm = Arm("lru", {}, ("evictor=lru",), {"evictors": "lru"}, name="lru", needs=("oracle",))
    return Plan(
        name=name,
        command="python -m experiments run",
        arms=(arm,),
        seeds=(0,),
        runs={("lru", 0): run},
        workload={"name": "w"},
        profile={"name": "p"},
        kv={"blocks": 3, "source": "given"},
        config={"engine": {"max_model_len": None}},
        failures={("lru", 0): "why"},
    )


def test_a_run_is_there_only_after_its_commit(tmp_path: Path):
    store = store_in(tmp_path)
    with store.begin("abc") as draft:
        (draft.directory / "steps.parquet").write_bytes(b"rows")
        assert not store.has("abc")
        assert store.run_ids() == []
        draft.commit({"seed": 1})
        assert store.has("abc")
    assert store.manifest("abc") == {"schema": 1, "run_id": "abc", "seed": 1}
    assert sorted(p.name for p in store.run_dir("abc").iterdir()) == ["manifest.json", "steps.parquet"]
    assert list(store.tmp.iterdir()) == []


def test_a_failed_run_leaves_nothing(tmp_path: Path):
    store = store_in(tmp_path)
    with contextlib.suppress(ZeroDivisionError), store.begin("abc") as draft:
        (draft.directory / "steps.parquet").write_bytes(b"rows")
        raise ZeroDivisionError
    assert not store.has("abc")
    assert list(store.tmp.iterdir()) == []


def test_the_first_of_two_equal_runs_stands(tmp_path: Path):
    store = store_in(tmp_path)
    with store.begin("abc") as draft:
        target = store.run_dir("abc")
        target.mkdir()
        (target / "manifest.json").write_text('{"first": true}')
        draft.commit({"second": True})
    assert store.manifest("abc") == {"first": True}
    assert list(store.tmp.iterdir()) == []


def test_cleaning_removes_the_dead_and_spares_the_living(tmp_path: Path):
    store = store_in(tmp_path)
    code = (
        "import sys, time; from pathlib import Path; from experiments.store import Store\n"
        "d = Store(Path(sys.argv[1])).begin('dead'); (d.directory / 'x').write_text('x')\n"
        "print('ready', flush=True); time.sleep(60)"
    )
    with subprocess.Popen(
        [sys.executable, "-c", code, str(tmp_path)], cwd=ROOT, stdout=subprocess.PIPE
    ) as writer:
        assert writer.stdout is not None
        assert writer.stdout.readline() == b"ready\n"
        with store.begin("mine") as draft:
            assert store.clean() == 0
            writer.send_signal(signal.SIGKILL)
            writer.wait()
            assert store.clean() == 1
            assert draft.directory.is_dir()
    assert list(store.tmp.iterdir()) == []
    assert store.run_ids() == []


def test_one_process_writes_a_run_at_a_time(tmp_path: Path):
    store = store_in(tmp_path)
    with store.begin("abc"), pytest.raises(InputError, match="run abc is being written by another process"):
        store.begin("abc")


def test_references_find_one_thing_or_say_which(tmp_path: Path):
    store = store_in(tmp_path)
    for run in ("aa11", "aa22", "bb33"):
        make_run(store, run)
    assert store.find_run("bb") == store.run_dir("bb33")
    assert store.find_run("aa11") == store.run_dir("aa11")
    assert store.find_run(str(store.run_dir("aa22"))) == store.run_dir("aa22")
    with pytest.raises(InputError, match=r"run 'aa' is ambiguous in .*: aa11, aa22"):
        store.find_run("aa")
    with pytest.raises(InputError, match=r"unknown run 'bb34'; did you mean 'bb33'\?"):
        store.find_run("bb34")


def test_the_latest_experiment_is_found(tmp_path: Path):
    store = store_in(tmp_path)
    first = store.save_plan(make_plan(run="r1"))
    second = store.save_plan(make_plan(run="r2"))
    os.utime(first / "plan.json", ns=(0, time.time_ns() + 10**9))
    assert store.find_experiment("latest") == first
    assert store.find_experiment("main") == first
    assert store.find_experiment(second.name) == second
    assert store.plan("latest") == make_plan(run="r1")
    with pytest.raises(InputError, match="unknown experiment 'mian'"):
        store.find_experiment("mian")


def test_a_plan_survives_json():
    plan = make_plan()
    assert parse_plan(plan.to_json()) == plan
    assert plan.arms[0].offline_reference
    assert plan.directory_name == parse_plan(plan.to_json()).directory_name
    assert plan.digest != make_plan(run="r2").digest


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("{", "p.json:1: not JSON"),
        ("[]", "p.json: field 'schema': expected a plan of schema 1"),
        ('{"schema": 2}', "p.json: field 'schema'"),
        ('{"schema": 1, "name": "x"}', "p.json: field 'command': missing"),
        ('{"schema": 1, "name": "x", "command": "y", "arms": 3}', "p.json: not a plan"),
    ],
)
def test_damaged_plans_say_where(text: str, said: str):
    with pytest.raises(InputError) as error:
        parse_plan(text, "p.json")
    assert said in str(error.value)


@pytest.mark.parametrize(
    ("number", "said"),
    [(errno.ENOSPC, "the disk is full"), (errno.EDQUOT, "quota"), (errno.EROFS, "read-only")],
)
def test_a_full_disk_is_one_clear_line_and_leaves_nothing(
    number: int, said: str, tmp_path: Path, monkeypatch
):
    store = store_in(tmp_path)

    def full(*_: object) -> None:
        raise OSError(number, os.strerror(number))

    with store.begin("abc") as draft:
        monkeypatch.setattr(os, "fsync", full)
        with pytest.raises(InputError, match=said):
            draft.commit({})
    assert not store.has("abc")
    assert list(store.tmp.iterdir()) == []


def test_a_store_that_is_a_file_is_one_clear_line(tmp_path: Path):
    (tmp_path / "runs").write_text("")
    with pytest.raises(InputError, match=r"runs/runs: Not a directory"):
        Store(tmp_path / "runs").create()
