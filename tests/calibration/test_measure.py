"""Laws of the measurement: everything is measured once, in an order nobody chose, and nothing finished is lost."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from calibration import catalog, plan
from calibration.__main__ import main
from calibration.measure import Budget, Unmeasurable, measure
from calibration.measure_fake import FakeBackend
from calibration.measure_run import kernel_ps
from calibration.measure_store import MeasurementStore, latest
from calibration.plan import Point
from calibration.rows import read_rows
from traces.errors import InputError

PROFILE = "H200x1--Qwen3-8B--bf16--vllm"
ROOT = Path(__file__).parents[2]


def _fake(**options: float) -> FakeBackend:
    return FakeBackend(catalog.open(PROFILE), **options)  # type: ignore[arg-type]


def _quiet(text: str) -> None:
    del text


def test_every_point_of_the_plan_is_measured_once_and_rows_state_it(tmp_path: Path) -> None:
    backend = _fake(noise=0.0)
    outcome = measure(backend, tmp_path, plan="full", pieces="ABCDEF", repetitions=5, say=_quiet)
    points = plan.points("full", "ABCDEF")
    assert len({p.key for p in points}) == len(points) == outcome.measured
    rows = read_rows(tmp_path / "rows.parquet")
    steps = [p for p in points if p.kind not in ("copy", "graph") and p.mode != "async"]
    assert len(rows) == len(steps)
    by_source = dict(zip(rows.source, range(len(rows)), strict=True))
    bare = replace(backend.profile, overhead_ps=0, overhead_per_seq_ps=0)
    for point in steps:
        if point.kind == "idle":
            continue
        i = by_source[f"fake {point.key}"]
        if rows.scope[i] == "kernel" and point.kind != "verify":
            # What the row says of the step prices to the time that was measured.
            price = bare.step_ps(
                int(rows.tokens[i]), int(rows.seqs[i]), int(rows.context[i]), int(rows.pairs[i])
            )
            assert rows.time_ns[i] == pytest.approx(price / 1000, rel=1e-6)
    other = json.loads((tmp_path / "other.json").read_text())
    assert sum("mode=async" in key for key in other) == 5
    assert len(other) == len(points) - len(steps) + 1  # the HTTP round trip is in both
    idle = int(np.flatnonzero(rows.kind == "idle")[0])
    engine_ps = backend.profile.overhead_ps + backend.profile.overhead_per_seq_ps
    http_ns = max(backend.profile.http_overhead_ps // 1000, 1000)
    assert rows.time_ns[idle] == pytest.approx(http_ns + engine_ps / 1000, rel=1e-4)
    machine = json.loads((tmp_path / "machine.json").read_text())
    assert machine["backend"].startswith("fake")


def test_the_full_plan_is_the_documented_one() -> None:
    steps = plan.points("full", "A")
    decodes = {(p.batch, p.context_tokens) for p in steps if p.kind == "decode"}
    assert {(b, 256) for b in (1, 8, 32, 64, 128, 192, 256)} <= decodes
    assert {(b, c) for b in (1, 8, 64, 256) for c in (4096, 16384)} <= decodes
    chunks = {(p.new_tokens, p.prefix_tokens) for p in steps if p.kind == "prefill"}
    assert {(n, p) for n in (128, 512, 2048) for p in (4096, 16384)} <= chunks
    assert {(p.new_tokens, p.batch) for p in plan.points("full", "C") if p.context_tokens == 8192} == {
        (q, b) for q in (1, 2, 4, 8, 16) for b in (1, 8, 32, 128)
    }
    kept_out = {(r.concurrency, r.prompt_tokens) for r in plan.runs("full")}
    assert not kept_out & {(p.batch, p.context_tokens) for p in plan.points("full")}


def test_skewed_batches_hold_the_context_their_row_states() -> None:
    skewed = [p for p in plan.points("full", "B") if p.long_seqs]
    assert len(skewed) == 2
    for p in skewed:
        assert sum(p.contexts()) == p.batch * p.context_tokens
        assert len(p.contexts()) == p.batch


def test_the_order_is_random_keyed_and_the_same_everywhere() -> None:
    points = plan.points("full")
    one, again, other = plan.ordered(points), plan.ordered(list(reversed(points))), plan.ordered(points, 1)
    assert one == again != other
    assert sorted(p.key for p in one) == sorted(p.key for p in other)
    pieces = [p.piece for p in one[:30]]
    assert len(set(pieces)) > 3


def test_anchors_come_every_ten_points(tmp_path: Path) -> None:
    measure(_fake(), tmp_path, plan="quick", pieces="ABC", say=_quiet)
    found = [r.point.piece == "anchor" for r in MeasurementStore(tmp_path).readings()]
    at = np.flatnonzero(found)
    assert found[0]
    assert found[-1]
    assert max(np.diff(at)) == plan.ANCHOR_EVERY + 1


def test_drift_over_two_percent_is_measured_again_and_less_is_not(tmp_path: Path) -> None:
    steady, drifting = tmp_path / "steady", tmp_path / "drifting"
    measure(_fake(noise=0.001, drift=0.05), steady, plan="quick", pieces="ABC", say=_quiet)
    assert all(r.attempt == 1 for r in MeasurementStore(steady).readings())
    measure(_fake(noise=0.001, drift=0.6), drifting, plan="quick", pieces="ABC", say=_quiet)
    readings = MeasurementStore(drifting).readings()
    assert {r.attempt for r in readings} == {1, 2}
    newest = latest(readings)
    assert len(newest) == len(plan.points("quick", "ABC"))
    assert all(r.attempt == 2 for r in newest.values())


def test_what_is_there_is_not_measured_again(tmp_path: Path) -> None:
    first = measure(_fake(), tmp_path, plan="quick", pieces="AB", say=_quiet)
    before = {p.name: p.stat().st_mtime_ns for p in (tmp_path / "parts").iterdir()}
    second = measure(_fake(), tmp_path, plan="quick", pieces="ABC", say=_quiet)
    assert second.there == first.measured
    assert second.measured == len(plan.points("quick", "C"))
    after = {p.name: p.stat().st_mtime_ns for p in (tmp_path / "parts").iterdir()}
    assert before.items() <= after.items()


def test_the_budget_ends_the_measuring_and_keeps_what_there_is(tmp_path: Path) -> None:
    now = [0.0]

    class Slow(FakeBackend):
        def measure(self, point: Point, repetitions: int) -> dict[str, list[int]]:
            now[0] += 1.0
            return super().measure(point, repetitions)

    slow = Slow(catalog.open(PROFILE))
    outcome = measure(
        slow, tmp_path, plan="quick", pieces="ABC", budget=Budget(10.0, clock=lambda: now[0]), say=_quiet
    )
    assert outcome.left > 0
    assert now[0] <= 11.0
    assert len(read_rows(tmp_path / "rows.parquet")) == outcome.measured > 5


def test_a_killed_measurement_keeps_its_rows_and_goes_on(tmp_path: Path) -> None:
    code = (
        "import sys, time; from pathlib import Path; from calibration import catalog\n"
        "from calibration.measure import measure; from calibration.measure_fake import FakeBackend\n"
        "class Slow(FakeBackend):\n"
        "    def measure(self, point, repetitions):\n"
        "        time.sleep(0.02); return super().measure(point, repetitions)\n"
        f"measure(Slow(catalog.open({PROFILE!r})), Path(sys.argv[1]), plan='quick', pieces='ABCEF')\n"
    )
    with subprocess.Popen(
        [sys.executable, "-c", code, str(tmp_path)], cwd=ROOT, stderr=subprocess.PIPE, text=True,
        start_new_session=True,
    ) as process:  # fmt: skip
        assert process.stderr is not None
        for line in process.stderr:
            if line.startswith("5/"):
                break
        os.kill(process.pid, signal.SIGKILL)
    kept = MeasurementStore(tmp_path).readings()
    assert len(kept) >= 5
    outcome = measure(_fake(), tmp_path, plan="quick", pieces="ABCEF", say=_quiet)
    assert outcome.there >= 5
    assert outcome.there + outcome.measured == len(plan.points("quick", "ABCEF"))


def test_a_point_that_fails_leaves_the_others(tmp_path: Path) -> None:
    class Small(FakeBackend):
        def measure(self, point: Point, repetitions: int) -> dict[str, list[int]]:
            if point.new_tokens == 4096:
                raise Unmeasurable("out of device memory")
            return super().measure(point, repetitions)

    outcome = measure(Small(catalog.open(PROFILE)), tmp_path, plan="quick", pieces="A", say=_quiet)
    assert list(outcome.refused.values()) == ["out of device memory"]
    assert outcome.measured == len(plan.points("quick", "A")) - 1


def test_medians_survive_outliers(tmp_path: Path) -> None:
    measure(_fake(noise=0.01), tmp_path, plan="full", pieces="A", say=_quiet)
    rows, truth = read_rows(tmp_path / "rows.parquet"), _fake().profile
    points = {f"fake {p.key}": p for p in plan.points("full", "A")}
    errors = [
        t * 1000 / kernel_ps(truth, points[s]) - 1 for s, t in zip(rows.source, rows.time_ns, strict=True)
    ]
    assert np.abs(errors).max() < 0.02
    assert (rows.spread_ns > 0).all()


def test_a_damaged_reading_is_named(tmp_path: Path) -> None:
    measure(_fake(), tmp_path, plan="quick", pieces="F", say=_quiet)
    (tmp_path / "parts" / "000001.parquet").write_bytes(b"PAR1")
    with pytest.raises(InputError, match=r"000001\.parquet: not a reading"):
        MeasurementStore(tmp_path).readings()


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--plan", "ful"], "unknown plan 'ful'; did you mean 'full'"),
        (["--pieces", "A,X"], "unknown piece 'X'"),
        (["--backend", "tourch"], "did you mean 'torch'"),
        (["--backend", "fake"], "needs --profile"),
        (["--repetitions", "1"], "--repetitions 1: expected at least 3"),
        (["--backend", "vllm"], "--backend vllm"),
    ],
)
def test_bad_input_is_one_line(words: list[str], said: str, tmp_path: Path, capsys) -> None:  # type: ignore[no-untyped-def]
    assert main(["measure", "--out", str(tmp_path / "new"), *words]) == 2
    err = capsys.readouterr().err
    assert said in err
    assert len(err.splitlines()) == 1
    assert not (tmp_path / "new").exists()
