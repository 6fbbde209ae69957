"""How often predictors are right about held-out workflows, by training size, with intervals over splits."""

from __future__ import annotations

import importlib.util
import json
import sys
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import numpy as np
from numpy.typing import NDArray

from experiments import ceilings
from experiments.policyspec import parse
from experiments.stats import mean_interval, paired_difference
from policies import registry
from policies.api import Predictor, WorkflowView
from policies.laws import toy_host
from policies.training import fitting, sequences
from policies.training.ngrams import NgramCounts
from policies.training.sequences import Sequences
from traces.errors import InputError
from traces.schema import Workload
from traces.store import write_whole

if TYPE_CHECKING:
    from experiments.train import TrainOptions

BASELINE = "markov(order=3)"
STEPS = 3
_BATCH = 512
Forecaster = Callable[[Sequence[WorkflowView]], list[NDArray[np.float32]]]


@dataclass(frozen=True)
class Cell:
    """Accuracy of one predictor at one training size: per step, {seed: share of held-out positions it got right}."""

    predictor: str
    size: int
    steps: tuple[dict[int, float], ...]


def table(options: TrainOptions, workload: Workload, out: Path | None) -> int:
    """Fit every predictor at every size and seed, print the table, write the JSON; return the exit status."""
    names, notes = _names(options.predictor)
    recorded = sequences.of_workload(workload)
    seeds = range(options.seed, options.seed + options.seeds)
    parts = {s: sequences.split(recorded.names, options.held_out, s) for s in seeds}
    most = min(len(learn) for learn, _ in parts.values())
    sizes = sorted({min(n, most) for n in options.sizes})
    if max(options.sizes) > most:
        notes.append(f"at most {most} workflows can be learned from when {options.held_out:g} are held out")
    tests = {s: recorded.take(test) for s, (_, test) in parts.items()}
    cells = []
    for size in sizes:
        for name in names:
            steps: list[dict[int, float]] = [{} for _ in range(STEPS)]
            print(f"{name}, learning from {size} workflows, {len(parts)} splits", file=sys.stderr, flush=True)
            for seed, (learn, _) in parts.items():
                fit = replace(options.fit, seed=seed, horizon=max(STEPS, options.fit.horizon))
                got = _fitted_accuracy(name, recorded.take(learn[:size]), fit, tests[seed])
                for k in range(STEPS):
                    steps[k][seed] = got[k]
            cells.append(Cell(name, size, tuple(steps)))
    ceiling = ceilings.of_workload(workload, STEPS)
    if ceiling is None:
        notes.append("no ceiling: these are recorded workflows, or a generator that states no probabilities")
    else:
        bayes: list[dict[int, float]] = [{} for _ in range(STEPS)]
        for seed, test in tests.items():
            for k, v in enumerate(accuracy(ceiling.forecaster(), test)):
                bayes[k][seed] = v
        cells.append(Cell("Bayes ceiling", max(sizes), tuple(bayes)))
        notes.append(
            "Bayes ceiling: the generator's own probabilities given the agents so far, on the same held-out "
            "workflows; in expectation "
            + ", ".join(f"step {k} {v:.4f}" for k, v in enumerate(ceiling.expected(), 1))
        )
    notes.append("text stream: prompt length and hashed n-grams; what needs hidden states is not attempted")
    print(_text(cells, sizes, options, recorded, tests, notes))
    if out is not None:
        body = _json(cells, options, workload, recorded, tests, notes)
        write_whole(out, (json.dumps(body, indent=1, sort_keys=True) + "\n").encode())
        print(f"table: {out}")
    return 0


def accuracy(forecast: Forecaster, test: Sequences) -> list[float]:
    """Return for each step the share of positions whose likeliest outcome came true, END being an outcome.

    Every invocation is a position, as long as the workflow gets that far; of equally likely outcomes the first counts.
    """
    truth = sequences.windows(test, 1, STEPS).target
    views = [
        WorkflowView(w, run[: t + 1], 0, text[t])
        for w, (run, text) in enumerate(zip(test.runs, test.text, strict=True))
        for t in range(len(run))
    ]
    right, seen = np.zeros(STEPS), np.zeros(STEPS)
    for start in range(0, len(views), _BATCH):
        p = np.stack(forecast(views[start : start + _BATCH]))
        want = truth[start : start + _BATCH]
        there = want >= 0
        right += ((p[:, :STEPS].argmax(axis=2) == want) & there).sum(axis=0)
        seen += there.sum(axis=0)
    return [float(r / n) if n else 0.0 for r, n in zip(right, seen, strict=True)]


def served(spec: str, model: Path, agents: tuple[str, ...]) -> Forecaster:
    """Return what `predictor` does, each prefix forecast once where the text is not read."""
    forecast = predictor(spec, model, agents)
    if registry.find("predictors", parse("predictors", spec).name).reads_text:  # type: ignore[attr-defined]
        return forecast
    known: dict[tuple[int, ...], NDArray[np.float32]] = {}

    def looked_up(views: Sequence[WorkflowView]) -> list[NDArray[np.float32]]:
        for view in views:
            if view.agents not in known:
                known[view.agents] = forecast([view])[0]
        return [known[view.agents] for view in views]

    return looked_up


def predictor(spec: str, model: Path, agents: tuple[str, ...], *, cold: bool = False) -> Forecaster:
    """Return a function from views to forecasts of a trained predictor that learns nothing more.

    cold: each call computes every forecast anew, also those it has made before.
    """
    choice = parse("predictors", spec)
    given: dict[str, Any] = {**dict(choice.options), "model": str(model)}
    if "online" in registry.options("predictors", choice.name):
        given["online"] = False
    policy = cast("Predictor[Any]", registry.load("predictors", choice.name, given))
    state = policy.new_state(replace(toy_host(), agents=agents))

    def forecast(views: Sequence[WorkflowView]) -> list[NDArray[np.float32]]:
        if cold and isinstance(state, NgramCounts):
            state.memo.clear()
        return policy.forecasts(state, views)

    return forecast


def _names(asked: str) -> tuple[list[str], list[str]]:
    """Return the predictors of a table as specs, and what a reader must know."""
    everything = [
        *(f"markov(order={n})" for n in (1, 2, 3)),
        *(n for n in fitting.trainable() if n != "markov"),
    ]
    names = everything if asked == "all" else [n.strip() for n in asked.split(",")]
    for name in names:
        fitting.needs_torch(name.partition("(")[0])
    if importlib.util.find_spec("torch") is not None:
        return names, []
    left = [n for n in names if not fitting.needs_torch(n.partition("(")[0])]
    gone = [n for n in names if n not in left]
    if not left:
        raise InputError(f"predictor={asked}: training needs torch (pip install 'foreserve[train]')")
    return left, [f"left out, torch is missing: {', '.join(gone)}"] if gone else []


def _fitted_accuracy(spec: str, learn: Sequences, fit: fitting.FitConfig, test: Sequences) -> list[float]:
    with tempfile.TemporaryDirectory() as folder:
        model = Path(folder) / "model.safetensors"
        fitting.train(spec.partition("(")[0], learn, fit, model)
        return accuracy(served(spec, model, learn.agents), test)


def _text(
    cells: Sequence[Cell],
    sizes: Sequence[int],
    options: TrainOptions,
    recorded: Sequences,
    tests: dict[int, Sequences],
    notes: Sequence[str],
) -> str:
    held = [len(t) for t in tests.values()]
    lines = [
        f"{options.workload}: {len(recorded)} workflows, {min(held)} to {max(held)} held out; top-1 on them, mean "
        f"and half width of the 95 % interval over {len(tests)} splits",
    ]
    by_place = {(c.predictor, c.size): c for c in cells}
    for k in range(STEPS):
        lines += ["", f"step {k + 1:<22}" + "".join(f"{n:>16}" for n in sizes)]
        for name in dict.fromkeys(c.predictor for c in cells):
            row = [_shown(by_place.get((name, n)), k) for n in sizes]
            lines.append(f"  {name:<25}" + "".join(f"{cell:>16}" for cell in row))
    return "\n".join([*lines, "", *(f"note: {n}" for n in notes)])


def _shown(cell: Cell | None, step: int) -> str:
    if cell is None:
        return ""
    interval = mean_interval(list(cell.steps[step].values()))
    assert interval is not None
    if interval.high is None:
        return f"{interval.mean:.4f}"
    return f"{interval.mean:.4f} ±{interval.high - interval.mean:.4f}"


def _json(
    cells: Sequence[Cell],
    options: TrainOptions,
    workload: Workload,
    recorded: Sequences,
    tests: dict[int, Sequences],
    notes: Sequence[str],
) -> dict[str, Any]:
    base = {c.size: c for c in cells if c.predictor == BASELINE}
    rows = []
    for cell in cells:
        for k, by_seed in enumerate(cell.steps):
            mean = mean_interval(list(by_seed.values()))
            assert mean is not None
            row: dict[str, Any] = {
                "predictor": cell.predictor, "learned_from": cell.size, "step": k + 1,
                "top1": mean.mean, "low": mean.low, "high": mean.high,
                "by_seed": {str(s): v for s, v in by_seed.items()},
            }  # fmt: skip
            if cell.size in base:
                gain = paired_difference(base[cell.size].steps[k], by_seed)
                if gain is not None:
                    row["minus_baseline"] = {"mean": gain.mean, "low": gain.low, "high": gain.high}
            rows.append(row)
    return {
        "workload": workload.name,
        "workload_digest": workload.digest(),
        "workflows": len(recorded),
        "held_out": {str(s): len(t) for s, t in tests.items()},
        "baseline": BASELINE,
        "fit": {k: v for k, v in vars(options.fit).items() if k != "seed"},
        "rows": rows,
        "notes": list(notes),
    }
