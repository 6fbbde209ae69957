"""One run as a value that any process can execute: simulate, write aside, put in place."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from experiments.inputs import WorkloadRef, open_workload, prepared
from experiments.policyspec import Choice
from experiments.store import Store, explained
from policies.api import OPTION
from policies.costs import Profile
from policies.registry import PolicySet
from sim.config import SimConfig
from traces.errors import InputError

Report = Callable[[int, int], None]  # (done, total) of the run's own work
Task = Callable[["Job", Report], None]


@dataclass(frozen=True)
class Job:
    """Everything a run needs. Picklable; workloads travel by name and are checked by digest.

    choices   family -> policy, every family
    manifest  what the run's manifest says besides the result
    """

    run_id: str
    label: str
    config: SimConfig
    choices: tuple[Choice, ...]
    policy_path: Path | None
    workload: WorkloadRef
    workload_digest: str
    profile: Profile
    kv_blocks: int
    store: Path
    manifest: dict[str, Any] = field(default_factory=dict)


def policy_set(choices: tuple[Choice, ...], policy_path: Path | None) -> PolicySet:
    """Return the policies, loaded; raises InputError for what does not exist."""
    return PolicySet(**{OPTION[c.family]: c.load(policy_path) for c in choices})  # type: ignore[arg-type]


def execute(job: Job, report: Report) -> None:
    """Run the job and put its folder into the store; does nothing when it is there already."""
    from sim.log import ParquetSink
    from sim.run import simulate

    store = Store(job.store)
    if store.has(job.run_id):
        return
    if open_workload(job.workload).digest() != job.workload_digest:
        raise InputError(f"workload={job.workload.name}: the file changed while the sweep ran")
    workload = prepared(job.workload, job.config.load, job.config.seed)
    began = time.perf_counter()
    with store.begin(job.run_id) as draft:
        with explained(job.store), ParquetSink(draft.directory) as sink:
            stats = simulate(
                workload,
                job.profile,
                policy_set(job.choices, job.policy_path),
                job.config,
                sink,
                kv_blocks=job.kv_blocks,
                progress=report,
            )
        # wall_s is for people; a summary that read it would differ from run to run.
        wall_s = round(time.perf_counter() - began, 3)
        draft.commit({**job.manifest, "stats": dataclasses.asdict(stats), "wall_s": wall_s})
