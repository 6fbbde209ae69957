"""P13: how good predictors are on recorded orders of roles, tools and phases, on tasks that none learned from."""

from __future__ import annotations

import importlib.util
import tempfile
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np

from experiments import ceilings
from experiments.cards.rows import NOT_ATTEMPTED, BySeed, Check, Row, judged, rises, shown
from experiments.inputs import WorkloadRef, open_workload
from experiments.stats import mean_interval, paired_difference
from experiments.train_table import STEPS, accuracy, served
from policies.training import fitting, sequences
from policies.training.text import DIMS
from traces.sequences import load, names

COUNTED = ("markov(order=1)", "markov(order=2)", "markov(order=3)", "knn")
LEARNED = ("mlp", "tcn", "transformer", "r_gcn", "graphsage")
USUAL = "the usual one"
BASE = "markov(order=1)"
HELD_OUT = 0.3
FIT = fitting.FitConfig(
    epochs=80, patience=12, batch=32
)  # a few hundred invocations: small batches, many passes
LEAST = 8  # runs that a network is fitted to, at least
Table = dict[str, dict[str, list[dict[int, float]]]]


def of_source(source: str) -> sequences.Sequences:
    """Return a source's runs as predictors learn from them; there is no text."""
    found = load(source)
    text = tuple(np.zeros((len(run), DIMS), dtype=np.float32) for run in found.runs)
    return sequences.Sequences(found.names, found.symbols, found.runs, text)


def table(splits: int, predictors: Sequence[str], least: int = 1) -> Table:
    """Return source -> predictor -> for each step, top-1 accuracy by split; tasks are split, not runs.

    Sources that leave fewer than `least` runs to learn from in some split are left out.
    """
    out: Table = {}
    with tempfile.TemporaryDirectory(prefix="foreserve-recorded-") as folder:
        model = Path(folder) / "model.safetensors"
        for source in names():
            recorded = of_source(source)
            parts = [sequences.split(recorded.names, HELD_OUT, seed) for seed in range(splits)]
            if min(len(learn) for learn, _ in parts) < least:
                continue
            cells = out[source] = {name: [{} for _ in range(STEPS)] for name in (USUAL, *predictors)}
            for seed, part in enumerate(parts):
                learn, test = (recorded.take(rows) for rows in part)
                _note(cells[USUAL], seed, _usual(learn, test))
                for spec in predictors:
                    fit = replace(FIT, seed=seed)
                    fitting.train(spec.partition("(")[0], learn, fit, model)
                    _note(cells[spec], seed, accuracy(served(spec, model, learn.agents), test))
    return out


def _usual(learn: sequences.Sequences, test: sequences.Sequences) -> list[float]:
    """Return the accuracy of always naming what follows most often, END included, whatever came before."""
    ahead = sequences.windows(learn, 1, STEPS).target
    truth = sequences.windows(test, 1, STEPS).target
    out = []
    for k in range(STEPS):
        seen = Counter(ahead[ahead[:, k] >= 0, k].tolist())
        best = min(seen, key=lambda s: (-seen[s], s))
        there = truth[:, k] >= 0
        out.append(float((truth[there, k] == best).mean()) if there.any() else 0.0)
    return out


def _note(cell: list[dict[int, float]], seed: int, values: Sequence[float]) -> None:
    for k, value in enumerate(values):
        cell[k][seed] = 100 * value


def row(id: str, found: Table, reading: str) -> Row:
    """Judge a table: the order of what came before must tell more than the most frequent symbol does."""
    checks, told = [], []
    for source, cells in found.items():
        parts = [f"{name} {'/'.join(map(_percent, steps))}" for name, steps in cells.items()]
        told.append(f"{source}: " + ", ".join(parts))
        judged_against = BASE if BASE in cells else next(n for n in cells if n != USUAL)
        checks.append(
            rises(f"{source}: {judged_against} over {USUAL}", cells[USUAL][0], cells[judged_against][0])
        )
        checks += [
            Check(f"{source}: {name} minus {BASE}, step 1: {_gain(cells, name)} pt", True, "value")
            for name in cells
            if name not in (USUAL, BASE) and BASE in cells
        ]
    return judged(id, "; ".join(told), reading, checks)


def _percent(by_split: BySeed) -> str:
    found = mean_interval(list(by_split.values()))
    return shown(None if found is None else found.within(0.0, 100.0), 1)


def _gain(cells: Mapping[str, list[dict[int, float]]], name: str) -> str:
    base: BySeed = cells[BASE][0]
    return shown(paired_difference(base, cells[name][0]))


def ceiling(workload: str) -> tuple[list[float], list[float]]:
    """Return, for each step, what the generator's own probabilities get right: on the workflows, and in expectation."""
    opened = open_workload(WorkloadRef(workload))
    best = ceilings.of_workload(opened, STEPS)
    assert best is not None
    return accuracy(best.forecaster(), sequences.of_workload(opened)), best.expected()


def rows(wanted: Sequence[str], *, quick: bool) -> list[Row]:
    """Return the rows asked for: counted predictors, and learned ones where they are asked for by name."""
    out = []
    reading = f"top-1 in percent at steps 1/2/3; {HELD_OUT:g} of the tasks held out, {{}} splits; no text"
    if "P13" in wanted:
        splits = 3 if quick else 20
        out.append(row("P13", table(splits, COUNTED), reading.format(splits)))
    if "P13L" in wanted:
        if importlib.util.find_spec("torch") is None:
            return [
                *out,
                Row(
                    "P13L", "", "", NOT_ATTEMPTED, (), "fitting networks needs torch, which is not installed"
                ),
            ]
        splits = 2 if quick else 5
        found = table(splits, (BASE, "markov(order=3)", *LEARNED), LEAST)
        left = sorted(set(names()) - set(found))
        said = f"; left out, too few runs: {', '.join(left)}" if left else ""
        out.append(row("P13L", found, reading.format(splits) + said))
    return out
