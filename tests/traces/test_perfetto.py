import gzip
import json
from collections import defaultdict
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from fake_log import two_requests, write_run

from traces.errors import InputError
from traces.perfetto import REPLICA_PID, WORKFLOW_PID, export


@pytest.fixture
def run(tmp_path: Path) -> Path:
    return write_run(tmp_path / "run", two_requests())


def events(run: Path, out: Path) -> list[dict[str, Any]]:
    body = json.loads(export(run, out).read_text())
    assert set(body) == {"displayTimeUnit", "traceEvents"}
    return list(body["traceEvents"])


def test_every_event_is_a_valid_trace_event(run: Path, tmp_path: Path) -> None:
    for e in events(run, tmp_path / "t.json"):
        assert e["ph"] in {"X", "C", "M", "b", "e"}
        assert isinstance(e["pid"], int)
        assert isinstance(e["name"], str)
        if e["ph"] != "M":
            assert e["ts"] >= 0
        if e["ph"] == "X":
            assert e["dur"] > 0
        if e["ph"] == "C":
            assert e["args"]
            assert all(isinstance(v, int) for v in e["args"].values())
        if e["ph"] in "be":
            assert e["cat"] == "request"
            int(e["id"], 16)


def test_a_replica_has_one_track_of_steps_that_do_not_overlap(run: Path, tmp_path: Path) -> None:
    steps = [e for e in events(run, tmp_path / "t.json") if e["ph"] == "X"]
    assert [e["ts"] for e in steps] == [0, 10e3, 15e3, 20e3, 50e3]
    assert [e["dur"] for e in steps] == [10e3, 5e3, 5e3, 5e3, 10e3]
    assert {(e["pid"], e["tid"]) for e in steps} == {(REPLICA_PID, 0)}
    assert [e["name"] for e in steps] == ["prefill", "decode", "mixed", "decode", "prefill"]
    for a, b in pairwise(steps):
        assert a["ts"] + a["dur"] <= b["ts"]


def test_phases_nest_in_their_request_and_cover_it(run: Path, tmp_path: Path) -> None:
    spans: dict[str, dict[str, list[float]]] = defaultdict(dict)
    for e in events(run, tmp_path / "t.json"):
        if e["ph"] == "b":
            spans[e["id"]][e["name"]] = [e["ts"]]
        elif e["ph"] == "e":
            spans[e["id"]][e["name"]].append(e["ts"])
    assert spans["0x0"] == {"stage 0": [0, 25e3], "prefill": [0, 10e3], "decode": [10e3, 25e3]}
    assert spans["0x1"] == {
        "stage 1": [5e3, 60e3], "queued": [5e3, 10e3], "prefill": [10e3, 20e3], "decode": [20e3, 60e3],
    }  # fmt: skip
    assert spans["0x2"] == {"stage 2": [7e3, 7e3]}


def test_requests_are_on_their_workflow(run: Path, tmp_path: Path) -> None:
    got = events(run, tmp_path / "t.json")
    workflow = {e["name"]: e["pid"] - WORKFLOW_PID for e in got if e["ph"] == "b" and "args" in e}
    assert workflow == {"stage 0": 0, "stage 1": 1, "stage 2": 1}
    names = {e["pid"]: e["args"]["name"] for e in got if e["name"] == "process_name"}
    assert names == {REPLICA_PID: "replica 0", WORKFLOW_PID: "workflow 0", WORKFLOW_PID + 1: "workflow 1"}
    status = {e["name"]: e["args"]["status"] for e in got if e["ph"] == "b" and "args" in e}
    assert status["stage 2"] == "rejected"


def test_counters_change_with_the_steps_and_fall_when_idle(run: Path, tmp_path: Path) -> None:
    counters: dict[str, list[tuple[float, dict[str, int]]]] = defaultdict(list)
    for e in events(run, tmp_path / "t.json"):
        if e["ph"] == "C":
            counters[e["name"]].append((e["ts"], e["args"]))
    assert counters["waiting"] == [(0, {"requests": 0}), (10e3, {"requests": 1}), (15e3, {"requests": 0})]
    running = [(t, a["decode"] + a["prefill"]) for t, a in counters["running"]]
    assert running == [(0, 1), (10e3, 1), (15e3, 2), (20e3, 2), (25e3, 0), (50e3, 1), (60e3, 0)]
    assert [t for t, _ in counters["kv_blocks"]] == [0, 15e3, 50e3]


def test_the_same_run_gives_the_same_bytes(run: Path, tmp_path: Path) -> None:
    plain = export(run, tmp_path / "a.json").read_bytes()
    assert export(run, tmp_path / "b.json").read_bytes() == plain
    packed = export(run, tmp_path / "a.json.gz").read_bytes()
    assert export(run, tmp_path / "other.json.gz").read_bytes() == packed
    assert gzip.decompress(packed) == plain


def test_a_failed_export_leaves_nothing(run: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    out.mkdir()
    (run / "requests.parquet").write_bytes(b"")
    with pytest.raises(InputError, match=r"requests\.parquet"):
        export(run, out / "t.json")
    assert list(out.iterdir()) == []


def test_a_place_that_cannot_be_written_is_named(run: Path, tmp_path: Path) -> None:
    with pytest.raises(InputError, match="is a folder"):
        export(run, tmp_path)
    with pytest.raises(InputError, match=r"nowhere.*No such file"):
        export(run, tmp_path / "nowhere" / "t.json")


def test_an_empty_run_is_still_a_trace(tmp_path: Path) -> None:
    got = events(write_run(tmp_path / "run", {}), tmp_path / "t.json")
    assert {e["ph"] for e in got} == {"M"}
