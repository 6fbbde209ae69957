"""What a forecast costs: our own code, timed on this machine."""

from __future__ import annotations

import statistics
import time
from dataclasses import replace
from pathlib import Path

from experiments.train_table import Forecaster, predictor
from policies.api import WorkflowView
from policies.training import modelfile
from policies.training.sequences import Sequences

BATCHES = (1, 8, 72, 720)
_REPEATS = 15


def measure(name: str, model: Path, test: Sequences) -> dict[int, float]:
    """Print the cost of a batch, write it into the model's card, and return {workflows: us a batch}.

    The card gets two numbers, ps a batch and ps a workflow of it, through the smallest and the largest batch.
    """
    forecast = predictor(name, model, test.agents, cold=True)
    views = [
        WorkflowView(w, run[: t + 1], 0, text[t])
        for w, (run, text) in enumerate(zip(test.runs, test.text, strict=True))
        for t in range(len(run))
    ]
    us = {n: _timed_us(forecast, [views[(i * 7) % len(views)] for i in range(n)]) for n in BATCHES}
    least, most = BATCHES[0], BATCHES[-1]
    workflow = max(0.0, (us[most] - us[least]) / (most - least))
    batch = max(0.0, us[least] - workflow * least)
    cost = {"batch": round(batch * 1e6), "workflow": round(workflow * 1e6)}
    card, tensors = modelfile.load(model)
    modelfile.save(model, replace(card, cost_ps=cost), tensors)
    print("inference on this machine: " + ", ".join(f"{n} workflows {us[n]:,.0f} us" for n in BATCHES))
    print(f"charged in simulations: {batch:,.1f} us a batch and {workflow:,.2f} us a workflow of it")
    return us


def _timed_us(forecast: Forecaster, views: list[WorkflowView]) -> float:
    forecast(views)
    took = []
    for _ in range(_REPEATS):
        start = time.perf_counter_ns()
        forecast(views)
        took.append((time.perf_counter_ns() - start) / 1000)
    return statistics.median(took)
