"""Jobs fail alone, whatever they do to their process."""

from __future__ import annotations

import dataclasses
import io
import os
import signal
from pathlib import Path

import pytest

from experiments import executor
from experiments.build import build
from experiments.executor_local import LocalExecutor
from experiments.job import Job, Report
from experiments.progress import Progress
from experiments.settings import ExecutorConfig
from traces.errors import InputError


def fake(job: Job, report: Report) -> None:
    """A job's behaviour is its label."""
    report(1, 2)
    if job.label == "input":
        raise InputError("one clear line")
    if job.label == "bug":
        raise RuntimeError("two\nlines")
    if job.label == "kill":
        os.kill(os.getpid(), signal.SIGKILL)
    if job.label == "exit":
        os._exit(7)
    job.store.mkdir(parents=True, exist_ok=True)
    (job.store / f"{job.run_id}.{os.getpid()}").touch()


@pytest.fixture(scope="module")
def template() -> Job:
    return build(["workload=weka", "evictor=lru", "seeds=1"])[1][0]


def jobs(template: Job, store: Path, *labels: str) -> list[Job]:
    return [
        dataclasses.replace(template, run_id=f"{i:02}", label=label, store=store)
        for i, label in enumerate(labels)
    ]


def run(jobs: list[Job], workers: int) -> tuple[dict[str, str], str]:
    stream = io.StringIO()
    progress = Progress(len(jobs), stream)
    failures = LocalExecutor(workers).run(jobs, fake, progress)
    progress.close()
    return failures, stream.getvalue()


def test_failures_stop_nothing_else(template: Job, tmp_path: Path):
    todo = jobs(template, tmp_path, "ok", "kill", "input", "ok", "bug", "exit", "ok")
    failures, text = run(todo, 2)
    assert failures.pop("04").startswith("RuntimeError: two lines (at test_executor.py:")
    assert failures == {
        "01": "the worker process was killed by SIGKILL; out of memory? try executor.jobs=1",
        "02": "one clear line",
        "05": "the worker process ended with status 7",
    }
    assert sorted(p.name.split(".")[0] for p in tmp_path.glob("[0-9]*")) == ["00", "03", "06"]
    assert "Traceback" in (tmp_path / "logs" / "04.log").read_text()
    assert text.endswith("7/7 runs, 4 failed, 100 %, " + text.rsplit(", ", 1)[1])


def test_one_worker_is_this_process(template: Job, tmp_path: Path):
    failures, _ = run(jobs(template, tmp_path, "ok", "input", "ok"), 1)
    assert failures == {"01": "one clear line"}
    assert {p.name.split(".")[1] for p in tmp_path.iterdir()} == {str(os.getpid())}


def test_lines_come_at_a_bounded_rate():
    stream = io.StringIO()
    progress = Progress(100, stream)
    for i in range(100):
        for part in range(10):
            progress.part(str(i), part, 10)
        progress.finished(str(i))
    assert stream.getvalue().count("\n") == 1
    assert stream.getvalue().startswith("100/100 runs, 100 %")


def test_a_terminal_gets_a_bar():
    class Terminal(io.StringIO):
        def isatty(self) -> bool:
            return True

    stream = Terminal()
    progress = Progress(2, stream)
    progress.finished("a", failed=True)
    progress.finished("b")
    progress.close()
    progress.close()
    assert "simulating (1 failed)" in stream.getvalue()


@pytest.mark.parametrize(("name", "module"), [("ray", "ray"), ("slurm", "submitit")])
def test_an_absent_extra_is_one_clear_line(name: str, module: str, tmp_path: Path, monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, module, None)
    with pytest.raises(
        InputError, match=rf"executor={name} needs its extra: pip install 'foreserve\[{name}\]'"
    ):
        executor.make(ExecutorConfig(name=name), tmp_path)
