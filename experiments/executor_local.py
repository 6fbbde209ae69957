"""Worker processes of this machine. A worker that dies takes its own job with it and nothing else."""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import signal
import time
from collections.abc import Sequence
from dataclasses import dataclass
from multiprocessing import connection
from typing import Any

from experiments.executor import attempt
from experiments.job import Job, Task
from experiments.progress import Progress

REPORT_EVERY_S = 0.2


@dataclass
class _Worker:
    process: Any
    pipe: Any
    job: Job | None = None


class LocalExecutor:
    """Spawned processes, one a CPU unless told otherwise; one job at a time runs in this process.

    Workers are spawned rather than forked: forking a process with threads (Arrow has some) can deadlock.
    """

    def __init__(self, jobs: int | None = None) -> None:
        self._jobs = jobs if jobs is not None else _cpus()

    def run(self, jobs: Sequence[Job], task: Task, progress: Progress) -> dict[str, str]:
        """Run every job; return run_id -> one-line reason for those that failed."""
        count = min(self._jobs, len(jobs))
        if count <= 1:
            return _inline(jobs, task, progress)
        context = multiprocessing.get_context("spawn")
        waiting = list(reversed(jobs))
        failures: dict[str, str] = {}
        workers = [_start(context, task) for _ in range(count)]
        try:
            for worker in workers:
                _next(worker, waiting)
            while any(w.job is not None for w in workers):
                for ready in connection.wait([w.pipe for w in workers if w.job is not None]):
                    worker = next(w for w in workers if w.pipe is ready)
                    if not _hear(worker, progress, failures):
                        worker.process.join()
                        workers.remove(worker)
                        if not waiting:
                            continue
                        worker = _start(context, task)
                        workers.append(worker)
                    if worker.job is None:
                        _next(worker, waiting)
        finally:
            _stop(workers)
        return failures


def _inline(jobs: Sequence[Job], task: Task, progress: Progress) -> dict[str, str]:
    failures = {}
    for job in jobs:
        reason = attempt(job, task, lambda done, total, run=job.run_id: progress.part(run, done, total))
        if reason is not None:
            failures[job.run_id] = reason
        progress.finished(job.run_id, failed=reason is not None)
    return failures


def _start(context: Any, task: Task) -> _Worker:
    ours, theirs = context.Pipe()
    process = context.Process(target=_work, args=(theirs, task), daemon=True)
    process.start()
    theirs.close()
    return _Worker(process, ours)


def _next(worker: _Worker, waiting: list[Job]) -> None:
    if waiting:
        worker.job = waiting.pop()
        # A worker that died before its first job is heard of as end of file on its pipe.
        with contextlib.suppress(BrokenPipeError):
            worker.pipe.send(worker.job)


def _hear(worker: _Worker, progress: Progress, failures: dict[str, str]) -> bool:
    """Take one message; return whether the worker lives."""
    assert worker.job is not None
    run_id = worker.job.run_id
    try:
        message = worker.pipe.recv()
    except (EOFError, ConnectionResetError):
        worker.process.join()
        failures[run_id] = _death(worker.process.exitcode)
        progress.finished(run_id, failed=True)
        return False
    if message[0] == "part":
        progress.part(run_id, message[1], message[2])
        return True
    if message[1] is not None:
        failures[run_id] = message[1]
    worker.job = None
    progress.finished(run_id, failed=message[1] is not None)
    return True


def _death(code: int | None) -> str:
    if code is not None and code < 0:
        name = signal.Signals(-code).name
        hint = "; out of memory? try executor.jobs=1" if name == "SIGKILL" else ""
        return f"the worker process was killed by {name}{hint}"
    return f"the worker process ended with status {code}"


def _stop(workers: list[_Worker]) -> None:
    for worker in workers:
        worker.pipe.close()  # an idle worker ends here by itself
        if worker.job is not None:
            worker.process.terminate()
    for worker in workers:
        worker.process.join(5)
        if worker.process.is_alive():
            worker.process.kill()
            worker.process.join()


def _work(pipe: Any, task: Task) -> None:
    """Body of a worker. Ends when the parent is gone: its pipe is closed."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent hears Ctrl-C and stops the workers
    last = 0.0

    def report(done: int, total: int) -> None:
        nonlocal last
        now = time.monotonic()
        if now - last >= REPORT_EVERY_S:
            last = now
            try:
                pipe.send(("part", done, total))
            except OSError:
                os._exit(1)  # nobody waits for the result any more; what is in flight is lost, by design

    while True:
        try:
            job = pipe.recv()
        except (EOFError, OSError):
            return
        reason = attempt(job, task, report)
        try:
            pipe.send(("done", reason))
        except OSError:
            return


def _cpus() -> int:
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0)) or 1
    return os.cpu_count() or 1
