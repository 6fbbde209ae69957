"""kill -9 in the middle of a sweep, then the same command: only what is missing runs, and nothing differs."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from experiments.__main__ import main
from experiments.store import Store

ROOT = Path(__file__).parents[2]
SEEDS = 3


@pytest.fixture
def words(tmp_path: Path, monkeypatch) -> list[str]:
    """A sweep of a second or two: two arms, two points, three seeds, 400 requests that share memory."""
    rows = "".join(f"{i}.25,{500 + 37 * (i % 11)},{20 + i % 60}\n" for i in range(400))
    (tmp_path / "w.csv").write_text(f"arrival_s,prompt_tokens,output_tokens\n{rows}")
    monkeypatch.chdir(tmp_path)
    return [
        "run", "workload=w.csv", "evictor=lru,sieve", "load.concurrency=8,16", f"seeds={SEEDS}",
        "engine.num_gpu_blocks=600", "executor.jobs=2", "load.workflows=null",
    ]  # fmt: skip


def start(words: list[str], store: str) -> subprocess.Popen[bytes]:
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    command = [sys.executable, "-m", "experiments", *words, f"store={store}"]
    return subprocess.Popen(
        command,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        start_new_session=True,
        # A shell's background jobs ignore interrupts, and so would what they start: this one listens.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    )


def wait_for_runs(process: subprocess.Popen[bytes], store: Store, count: int) -> None:
    deadline = time.monotonic() + 60
    while len(store.run_ids()) < count:
        assert process.poll() is None, process.communicate()
        assert time.monotonic() < deadline, "no run appeared"
        time.sleep(0.005)


def tables(store: Store) -> dict[str, bytes]:
    paths = store.runs.glob("*/*.parquet")
    return {f"{p.parent.name}/{p.name}": p.read_bytes() for p in paths}


def test_a_killed_sweep_resumes_and_equals_an_undisturbed_one(words: list[str], capsys):
    disturbed, undisturbed = Store(Path("disturbed")), Store(Path("undisturbed"))
    total = 2 * 2 * SEEDS
    with start(words, "disturbed") as process:
        wait_for_runs(process, disturbed, 2)
        os.killpg(process.pid, signal.SIGKILL)
    kept = {run: disturbed.run_dir(run).stat().st_mtime_ns for run in disturbed.run_ids()}
    assert 2 <= len(kept) < total

    assert main([*words, "store=disturbed"]) == 0
    out, err = capsys.readouterr()
    assert f"{total} runs, {len(kept)} of them in the store already" in err
    assert len(disturbed.run_ids()) == total
    assert {run: disturbed.run_dir(run).stat().st_mtime_ns for run in kept} == kept
    assert list(disturbed.tmp.iterdir()) == []

    assert main([*words, "store=undisturbed"]) == 0
    assert tables(disturbed) == tables(undisturbed)
    (name,) = disturbed.experiment_names()
    assert undisturbed.experiment_names() == [name]
    for file in ("summary.json", "report.html", "plan.json"):
        ours, theirs = (s.experiments / name / file for s in (disturbed, undisturbed))
        assert ours.read_bytes() == theirs.read_bytes(), file
    assert out.splitlines()[-1] == f"report: {disturbed.experiments / name / 'report.html'}"


def test_workers_do_not_outlive_a_killed_parent(words: list[str]):
    store = Store(Path("orphaned"))
    with start(words, "orphaned") as process:
        wait_for_runs(process, store, 1)
        process.kill()
        process.wait()
        deadline = time.monotonic() + 20
        while group_lives(process.pid):
            assert time.monotonic() < deadline, "a worker lives on"
            time.sleep(0.02)
    assert 1 <= len(store.run_ids()) < 4 * SEEDS


def group_lives(group: int) -> bool:
    try:
        os.killpg(group, 0)
    except ProcessLookupError:
        return False
    return True


def test_ctrl_c_keeps_what_is_finished(words: list[str]):
    store = Store(Path("stopped"))
    with start(words, "stopped") as process:
        wait_for_runs(process, store, 1)
        os.killpg(process.pid, signal.SIGINT)
        out, err = process.communicate(timeout=60)
    assert process.returncode == 130
    assert out == b""
    last = err.decode().splitlines()[-1]
    assert last.startswith("interrupted: ")
    assert last.endswith(f" of {4 * SEEDS} runs are in the store; the same command runs the rest")
    assert list(store.tmp.iterdir()) == []
