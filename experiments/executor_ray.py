"""Runs on a Ray cluster. The store must be a folder that every node sees."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from experiments.executor import attempt
from experiments.job import Job, Task
from experiments.progress import Progress
from experiments.settings import ExecutorConfig
from traces.errors import InputError


class RayExecutor:
    """One Ray task a run; Ray places them."""

    def __init__(self, config: ExecutorConfig) -> None:
        try:
            import ray
        except ImportError:
            raise InputError(
                "executor=ray needs its extra: pip install 'foreserve[ray]', or use executor=local"
            ) from None
        self._ray: Any = ray
        self._config = config

    def run(self, jobs: Sequence[Job], task: Task, progress: Progress) -> dict[str, str]:
        """Run every job; return run_id -> one-line reason for those that failed."""
        ray = self._ray
        if not ray.is_initialized():
            ray.init(address=self._config.address, log_to_driver=False, include_dashboard=False)
        remote = ray.remote(num_cpus=1, max_retries=0)(attempt)
        waiting = list(reversed(jobs))
        limit = self._config.jobs or len(jobs)
        failures: dict[str, str] = {}
        running: dict[Any, Job] = {}
        try:
            while waiting or running:
                while waiting and len(running) < limit:
                    job = waiting.pop()
                    running[remote.remote(job, task)] = job
                done, _ = ray.wait(list(running), num_returns=1)
                for reference in done:
                    job = running.pop(reference)
                    reason = self._outcome(reference)
                    if reason is not None:
                        failures[job.run_id] = reason
                    progress.finished(job.run_id, failed=reason is not None)
        finally:
            for reference in running:
                ray.cancel(reference, force=True)
        return failures

    def _outcome(self, reference: Any) -> str | None:
        try:
            reason: str | None = self._ray.get(reference)
        except self._ray.exceptions.RayError as e:
            return f"ray: {type(e).__name__}: {' '.join(str(e).split())[:200]}"
        return reason
