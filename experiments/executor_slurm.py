"""Runs as Slurm jobs through submitit. The store must be on a file system that every node sees."""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from experiments.executor import attempt
from experiments.job import Job, Task
from experiments.progress import Progress
from experiments.settings import ExecutorConfig
from traces.errors import InputError

POLL_S = 2.0


class SlurmExecutor:
    """One array of Slurm jobs; `executor.jobs` of them at a time."""

    def __init__(self, config: ExecutorConfig, store: Path, cluster: str = "slurm") -> None:
        try:
            import submitit
        except ImportError:
            raise InputError(
                "executor=slurm needs its extra: pip install 'foreserve[slurm]', or use executor=local"
            ) from None
        try:
            self._cluster: Any = submitit.AutoExecutor(folder=store / "slurm" / "%j", cluster=cluster)
        except RuntimeError as e:
            raise InputError(f"executor=slurm: {' '.join(str(e).split())}") from None
        self._cluster.update_parameters(
            timeout_min=config.minutes, mem_gb=config.memory_gb, cpus_per_task=1, name="foreserve"
        )
        if cluster == "slurm":
            if config.jobs is not None:
                self._cluster.update_parameters(slurm_array_parallelism=config.jobs)
            if config.partition is not None:
                self._cluster.update_parameters(slurm_partition=config.partition)

    def run(self, jobs: Sequence[Job], task: Task, progress: Progress) -> dict[str, str]:
        """Run every job; return run_id -> one-line reason for those that failed."""
        if not jobs:
            return {}
        submitted = self._cluster.map_array(attempt, list(jobs), [task] * len(jobs))
        waiting = dict(enumerate(submitted))
        failures: dict[str, str] = {}
        try:
            while waiting:
                for i in [i for i, handle in waiting.items() if handle.done()]:
                    reason = _outcome(waiting.pop(i))
                    if reason is not None:
                        failures[jobs[i].run_id] = reason
                    progress.finished(jobs[i].run_id, failed=reason is not None)
                if waiting:
                    time.sleep(POLL_S)
        finally:
            for handle in waiting.values():
                handle.cancel(check=False)
        return failures


def _outcome(handle: Any) -> str | None:
    error = handle.exception()
    if error is not None:
        lines = str(error).strip().splitlines() or [type(error).__name__]
        return f"slurm job {handle.job_id}: {lines[-1]}"
    reason: str | None = handle.result()
    return reason
