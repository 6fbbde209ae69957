"""What can be made again from the store: reports, figures, traces for a viewer."""

from __future__ import annotations

from pathlib import Path

from experiments.plan import load_plan
from experiments.store import PLAN, Store, explained


def report(root: Path, reference: str) -> int:
    """Summarise an experiment again and write its report; return the exit status."""
    from experiments.run import show_failures, write

    store = Store(root)
    directory = store.find_experiment(reference)
    store = owner(store, directory)
    plan = load_plan(directory / PLAN)
    path = write(plan, store, directory)
    show_failures(plan)
    print(f"report: {path}", flush=True)
    return 1 if plan.failures else 0


def plot(root: Path, reference: str, figure: str, out: Path) -> int:
    """Draw one figure of an experiment into a file; return the exit status."""
    from experiments import plots

    directory = Store(root).find_experiment(reference)
    with explained(out):
        path = plots.render(directory, figure, out)
    print(path)
    return 0


def trace(root: Path, reference: str, out: Path | None) -> int:
    """Export a run for a trace viewer; return the exit status."""
    from traces import perfetto

    directory = Store(root).find_run(reference)
    target = out if out is not None else Path(f"{directory.name}.json.gz")
    with explained(target):
        perfetto.export(directory, target)
    print(target)
    return 0


def owner(store: Store, experiment: Path) -> Store:
    """Return the store that holds an experiment's folder: a path may lead into another store."""
    root = experiment.resolve().parent.parent
    return Store(root) if (root / "runs").is_dir() else store
