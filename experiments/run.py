"""The main job: build the plan, run what is missing, show the table, write the report."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from experiments import executor as executors
from experiments.build import build, check_host
from experiments.job import Job, Task, execute
from experiments.plan import Plan
from experiments.progress import Progress
from experiments.settings import Settings
from experiments.store import Store


def run(words: Sequence[str], *, dry_run: bool = False, task: Task = execute) -> int:
    """Run the comparison that the words name; return the exit status.

    0: every run is there. 1: some failed (the table shows the others). Raises InputError for what cannot run.
    """
    plan, jobs, chosen = build(words)
    check_host(plan)
    store = Store(Path(chosen.store))
    if dry_run:
        _show_plan(plan, store)
        return 0
    store.create()
    store.clean()
    failures = run_missing(plan, jobs, chosen, store, task)
    plan = replace(plan, failures=failed(plan, failures))
    return finish(plan, store, failures)


def run_missing(
    plan: Plan, jobs: Sequence[Job], chosen: Settings, store: Store, task: Task
) -> dict[str, str]:
    """Run the jobs that the store lacks; return run_id -> reason for those that failed. Says what it does."""
    missing = [j for j in jobs if not store.has(j.run_id)]
    there = len(jobs) - len(missing)
    kept = f", {there} of them in the store already" if there else ""
    each = f"{len(plan.seeds)} seeds"
    if plan.draws:
        each = f"({each} + {plan.draw_count} draws of the profile)"
    say(f"{plan.name}: {len(plan.arms)} arms x {each} = {len(jobs)} runs{kept}")
    say(f"profile {plan.profile['name']}; KV: {plan.kv['blocks']} blocks, {plan.kv['source']}")
    for note in plan.notes:
        say(f"note: {note}")
    store.save_plan(plan)
    if not missing:
        return {}
    place = executors.make(chosen.executor, store.root.resolve())
    progress = Progress(len(missing))
    try:
        return place.run(missing, task, progress)
    except KeyboardInterrupt:
        progress.close()
        store.clean()
        done = sum(store.has(j.run_id) for j in jobs)
        say(f"interrupted: {done} of {len(jobs)} runs are in the store; the same command runs the rest")
        raise
    finally:
        progress.close()


def failed(plan: Plan, failures: dict[str, str]) -> dict[tuple[str, int], str]:
    """Return (arm label, seed) -> reason for the plan's pairs whose run failed, or one under a drawn profile."""
    found = {
        (label, plan.draw_seed(draw)): f"profile draw {draw}: {failures[run_id]}"
        for (label, draw), run_id in plan.draws.items()
        if run_id in failures
    }
    return found | {pair: failures[run_id] for pair, run_id in plan.runs.items() if run_id in failures}


def finish(plan: Plan, store: Store, failures: dict[str, str] | None = None) -> int:
    """Summarise, print the table, write summary and report; return the exit status.

    The last line of stdout is the report's path.
    """
    directory = store.save_plan(plan)
    if failures and not any(store.has(run_id) for run_id in plan.runs.values()):
        show_failures(plan)
        say("no run finished: there is nothing to report")
        return 1
    path = write(plan, store, directory)
    show_failures(plan)
    print(f"report: {path}", flush=True)
    return 1 if plan.failures else 0


def write(plan: Plan, store: Store, directory: Path) -> Path:
    """Write summary.json and the report into `directory`, print the table; return the report's path."""
    from experiments.report import write_report
    from experiments.summary import summarise, write_summary
    from experiments.table import print_table

    summary: dict[str, Any] = summarise(plan, store)
    write_summary(summary, directory)
    path = write_report(plan, summary, store, directory)
    print_table(summary)
    return path


def show_failures(plan: Plan) -> None:
    """Print the failures, one line each, on stderr."""
    if not plan.failures:
        return
    say(f"{len(plan.failures)} of {len(plan.runs)} runs failed:")
    width = max(len(label) for label, _ in plan.failures)
    for (label, seed), reason in plan.failures.items():
        say(f"  {label:<{width}}  seed {seed:<4}  {reason}")


def say(text: str) -> None:
    """Tell the user something that is no result."""
    print(text, file=sys.stderr, flush=True)


def _show_plan(plan: Plan, store: Store) -> None:
    for (label, seed), run_id in plan.runs.items():
        print(f"{run_id}  {'complete' if store.has(run_id) else 'missing '}  seed {seed:<4}  {label}")
    for (label, draw), run_id in plan.draws.items():
        there = "complete" if store.has(run_id) else "missing "
        print(f"{run_id}  {there}  seed {plan.draw_seed(draw):<4}  {label}, profile draw {draw}")
    print(f"experiment: {store.experiment_dir(plan)}")
