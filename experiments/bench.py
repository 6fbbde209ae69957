"""How fast does the simulator simulate? One workload, one core, the run log on."""

from __future__ import annotations

import json
import resource
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from experiments.build import build
from experiments.inputs import WorkloadRef, open_workload, prepared
from experiments.job import policy_set
from experiments.overrides import read
from traces.errors import InputError


def bench(workload: str, words: Sequence[str], *, as_json: bool) -> int:
    """Simulate a workload once and print how long it took; return the exit status."""
    measured = measure(workload, words)
    if as_json:
        print(json.dumps(measured, indent=1))
    else:
        width = max(len(k) for k in measured)
        for key, value in measured.items():
            print(f"{key:<{width}}  {value}")
    return 0


def measure(workload: str, words: Sequence[str]) -> dict[str, Any]:
    """Return what `bench` prints.

    Recorded arrivals are replayed open loop where the workload has them, unless load.loop or load.concurrency
    is given. simulation_s is the wall time of the simulation, log written and closed, and cpu_s its CPU time; reading
    the workload is load_s. requests_per_s and steps_per_s are per second of simulation_s; peak_rss_mb is the most
    memory the whole process held.
    """
    from sim.log import ParquetSink
    from sim.run import simulate

    began = time.perf_counter()
    given = read(words)
    if "workload" in given.values or "workload" in given.axes:
        raise InputError("bench: name the workload with --workload")
    held = open_workload(WorkloadRef(workload, given.values.get("workload_format")))
    load_s = time.perf_counter() - began
    closed = {"load.loop", "load.concurrency"} & set(given.values)
    if held.workflow_arrival_ns is not None and not closed:
        words = [*words, "load.loop=open"]
    plan, jobs, _ = build([*words, f"workload={workload}"], experiment="bench")
    if len(jobs) != 1:
        raise InputError(f"bench: the words name {len(jobs)} runs ({len(plan.arms)} arms); name one")
    job = jobs[0]
    ready = prepared(job.workload, job.config.load, job.config.seed)
    policies = policy_set(job.choices, job.policy_path)
    with tempfile.TemporaryDirectory(prefix="foreserve-bench-") as directory:
        began, cpu = time.perf_counter(), time.process_time()
        with ParquetSink(Path(directory)) as sink:
            stats = simulate(ready, job.profile, policies, job.config, sink, kv_blocks=job.kv_blocks)
        simulation_s, cpu_s = time.perf_counter() - began, time.process_time() - cpu
        log_mb = sum(p.stat().st_size for p in Path(directory).iterdir()) / 1e6
    return {
        "requests": stats.requests,
        "steps": stats.steps,
        "simulation_s": round(simulation_s, 4),
        "cpu_s": round(cpu_s, 4),
        "requests_per_s": round(stats.requests / simulation_s, 1),
        "steps_per_s": round(stats.steps / simulation_s, 1),
        "peak_rss_mb": round(_peak_rss_bytes() / 1e6, 1),
        "fast_forward_ratio": round(stats.fast_forward_ratio, 4),
        "completed": stats.completed,
        "rejected": stats.rejected,
        "incomplete": stats.incomplete,
        "events": stats.events,
        "drafting_steps": stats.drafting_steps,
        "simulated_s": round(stats.simulated_ns / 1e9, 3),
        "load_s": round(load_s, 4),
        "log_mb": round(log_mb, 3),
        "workload": Path(workload).name,
        "loop": job.config.load.loop,
        "profile": job.profile.name,
        "kv_blocks": job.kv_blocks,
        "policies": plan.arms[0].policies,
    }


def _peak_rss_bytes() -> int:
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else peak * 1024
