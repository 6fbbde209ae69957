"""R55 to R57: how good predictors are, on workflows that none learned from."""

from __future__ import annotations

import tempfile
from pathlib import Path

import numpy as np

from experiments.cards.pbkv import recorded
from experiments.cards.rows import NOT_ATTEMPTED, REPRODUCED, Check, Row, judged, near, over_seeds
from experiments.inputs import WorkloadRef, open_workload
from experiments.policyspec import parse
from experiments.targets import target
from experiments.train_table import STEPS, accuracy, served
from policies.training import fitting, sequences

TRAIN, TEST = "pbkv_hover_train", "pbkv_hover"
SIZES = (25, 50, 100, 200, 500, 1000)
HIDDEN_STATES = "needs the served model's hidden states, which no recorded workflow here has"


def table(seeds: int) -> dict[str, dict[int, list[dict[int, float]]]]:
    """Return predictor -> training size -> for each step, accuracy by seed (of which workflows are learned from)."""
    learn = sequences.of_workload(open_workload(WorkloadRef(TRAIN)))
    test = sequences.of_workload(open_workload(WorkloadRef(TEST)))
    order = [test.agents.index(a) for a in learn.agents]
    learn = sequences.Sequences(
        learn.names, test.agents, tuple(tuple(order[a] for a in run) for run in learn.runs), learn.text
    )
    out: dict[str, dict[int, list[dict[int, float]]]] = {}
    with tempfile.TemporaryDirectory(prefix="foreserve-card-") as folder:
        model = Path(folder) / "model.safetensors"
        for seed in range(seeds):
            rows, _ = sequences.split(learn.names, 0.01, seed)
            for size in SIZES:
                for spec in (*(f"markov(order={n})" for n in (1, 2, 3)), "knn"):
                    if spec == "knn" and size != SIZES[-1]:
                        continue
                    fitting.train(spec.partition("(")[0], learn.take(rows[:size]), fitting.FitConfig(), model)
                    steps = accuracy(served(spec, model, learn.agents), test)
                    cell = out.setdefault(spec, {}).setdefault(size, [{} for _ in range(STEPS)])
                    for k, value in enumerate(steps):
                        cell[k][seed] = value
    return out


def rows(found: dict[str, dict[int, list[dict[int, float]]]]) -> list[Row]:
    """Return R55 to R57."""
    wanted = target("R55").values
    last = SIZES[-1]
    best = {
        n: [float(np.mean(list(s.values()))) for s in found[f"markov(order={n})"][last]] for n in (1, 2, 3)
    }
    checks = [Check(f"order {n} falls with the step", best[n][0] > best[n][1] > best[n][2]) for n in best]
    checks += [
        Check(f"longer contexts help at step {k + 1}", best[1][k] <= best[2][k] <= best[3][k])
        for k in range(STEPS)
    ]
    for n in best:
        for k in range(STEPS):
            checks.append(near(f"order {n}, step {k + 1}", best[n][k], wanted[f"markov{n}"][k], 0.15))
    told = "; ".join(
        f"{name}: " + ", ".join(over_seeds(s, 3) for s in sizes[last]) for name, sizes in found.items()
    )
    best_possible = recorded.ceiling(TEST)[0]
    told += "; the generator's own probabilities on the same workflows: " + ", ".join(
        f"{v:.3f}" for v in best_possible
    )
    checks += [
        Check(
            f"{name} at most the ceiling at step {k + 1}",
            float(np.mean(list(step.values()))) <= best_possible[k] + 0.01,
        )
        for name, sizes in found.items()
        for k, step in enumerate(sizes[last])
    ]
    markov = judged(
        "R55",
        told,
        f"top-1, learned from {last} generated workflows; learned predictors: {HIDDEN_STATES}",
        checks,
    )
    by = int(target("R56").values["markov_saturates_by"])
    growth = {}
    for n in (1, 2, 3):
        at = [float(np.mean(list(found[f"markov(order={n})"][size][0].values()))) for size in (by, last)]
        growth[n] = 100 * (at[1] - at[0])
    size_checks = [
        Check(f"order {n} gains {g:.2f} pt from {by} to {last} workflows", g < 1.0) for n, g in growth.items()
    ]
    scale = judged("R56", "; ".join(c.text for c in size_checks), "Markov rows alone", size_checks)
    if all(c.ok for c in size_checks):
        scale = Row(
            scale.id,
            scale.ours,
            scale.reading,
            REPRODUCED,
            scale.checks,
            "the learned rows are not attempted",
        )
    return [markov, scale, Row("R57", "", "", NOT_ATTEMPTED, (), HIDDEN_STATES)]


def step_one(specs: list[str]) -> dict[str, float]:
    """Return step-1 accuracy on the evaluated workflows of predictors as configs write them.

    Those with a model are measured, uniform guesses among the agents and the end, the oracle is always right.
    """
    test = sequences.of_workload(open_workload(WorkloadRef(TEST)))
    out = {}
    for spec in specs:
        choice = parse("predictors", spec)
        given = dict(choice.options)
        if "model" in given:
            shown = ", ".join(f"{k}={v}" for k, v in given.items() if k not in ("model", "online"))
            out[spec] = accuracy(served(f"{choice.name}({shown})", Path(given["model"]), test.agents), test)[
                0
            ]
        elif spec == "oracle":
            out[spec] = 1.0
        elif spec == "uniform":
            out[spec] = 1.0 / (len({a for run in test.runs for a in run}) + 1)
    return out
