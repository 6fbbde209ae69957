"""How jobs run: one protocol, three places. A failure never stops the others; it comes back as one line."""

from __future__ import annotations

import traceback
from collections.abc import Sequence
from pathlib import Path
from typing import Protocol

from experiments.job import Job, Task
from experiments.progress import Progress
from experiments.settings import ExecutorConfig
from traces.errors import InputError


class Executor(Protocol):
    """Runs jobs, in any order, in other processes or other machines."""

    def run(self, jobs: Sequence[Job], task: Task, progress: Progress) -> dict[str, str]:
        """Run every job; return run_id -> one-line reason for those that failed.

        KeyboardInterrupt passes through, after everything that was started has been stopped.
        """
        ...


def make(config: ExecutorConfig, store: Path) -> Executor:
    """Return the executor that the options name; raises InputError when its extra is not installed."""
    if config.name == "ray":
        from experiments.executor_ray import RayExecutor

        return RayExecutor(config)
    if config.name == "slurm":
        from experiments.executor_slurm import SlurmExecutor

        return SlurmExecutor(config, store)
    from experiments.executor_local import LocalExecutor

    return LocalExecutor(config.jobs)


def attempt(job: Job, task: Task, report: object = None) -> str | None:
    """Run one job here; return None, or the one-line reason. The traceback goes to the store's logs."""
    try:
        task(job, report if callable(report) else _silent)
    except InputError as e:
        return str(e)
    except Exception as e:
        return f"{_reason(e)}{_logged(job)}"
    return None


def _silent(done: int, total: int) -> None:
    del done, total


def _reason(e: Exception) -> str:
    text = " ".join(str(e).split())
    frames = traceback.extract_tb(e.__traceback__)
    place = f" (at {Path(frames[-1].filename).name}:{frames[-1].lineno})" if frames else ""
    return f"{type(e).__name__}: {text}{place}"


def _logged(job: Job) -> str:
    log = job.store / "logs" / f"{job.run_id}.log"
    try:
        log.parent.mkdir(parents=True, exist_ok=True)
        log.write_text(traceback.format_exc(), encoding="utf-8")
    except OSError:
        return ""
    return f"; traceback in {log}"
