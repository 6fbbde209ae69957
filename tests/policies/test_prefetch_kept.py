"""Candidates kept in order choose what a scan of all of them would, whatever came and went before."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest

from policies._pbkv_score import masked, reuse_weights
from policies.api import BatchShape, Forecast
from policies.laws import toy_host
from policies.prefetchers.conservative import Conservative
from traces import draws

SHAPE = BatchShape(4, 1, 4, 0, 100)
WORKFLOWS, AGENTS = 5, 3


@dataclass(eq=False)
class Run:
    id: int
    readers: tuple[tuple[int, int], ...]
    tokens: int
    parent: Any = None
    identity: int = 0
    depth_tokens: int = 0
    created_ns: int = 0
    last_access_ns: int = 0


class Scan:
    """The rule as it was written first: score every candidate, take greedily, a parent before its children."""

    def __init__(self, stop: bool) -> None:
        self.weights: dict[int, list[int]] = {}
        self.stop = stop

    def value(self, run: Run) -> int:
        masks: dict[int, int] = {}
        for workflow, agent in run.readers:
            masks[workflow] = masks.get(workflow, 0) | 1 << agent
        return sum(masked(self.weights[w], m) for w, m in masks.items() if w in self.weights)

    def choose(self, runs: list[Run], budget: int) -> list[int]:
        there = {r.id for r in runs}
        root = {r.id: r.parent is None or r.parent.id not in there for r in runs}
        left, taken, passed = budget, [], set()
        whole = set()
        while True:
            ready = [
                (-self.value(r), place)
                for place, r in enumerate(runs)
                if r.id not in taken and r.id not in passed and (root[r.id] or r.parent.id in whole)
            ]
            if not ready or min(ready)[0] == 0:
                return taken
            run = runs[min(ready)[1]]
            tokens = min(run.tokens, budget) if root[run.id] else run.tokens
            if tokens > left or left == 0:
                if self.stop:
                    return taken
                passed.add(run.id)
                continue
            left -= tokens
            taken.append(run.id)
            if tokens == run.tokens:
                whole.add(run.id)


@pytest.mark.parametrize("seed", range(40))
def test_a_kept_order_chooses_what_a_scan_chooses(seed: int) -> None:
    stop = seed % 3 == 0
    policy = Conservative(unfitting="stop" if stop else "skip")
    state, scan = policy.new_state(toy_host()), Scan(stop)
    runs: list[Run] = []  # in the order of their places, parents before children
    serial = 0
    for turn in range(60):
        bits = draws.bits(seed, "kept", turn)
        what, workflow = bits % 4, bits >> 8 & 0xFF
        workflow %= WORKFLOWS
        if what == 0 and bits >> 16 & 7:
            row = draws.uniform_array(seed, "row", turn, np.arange(AGENTS + 1)).astype(np.float32)
            row = (row / row.sum()).reshape(1, -1)
            policy.forecast(state, Forecast(workflow, turn, row))
            scan.weights[workflow] = reuse_weights(row, 1, 1.0)
        elif what == 0:
            policy.workflow_finished(state, workflow, turn)
            scan.weights.pop(workflow, None)
        elif what == 3 and runs:
            gone = runs[(bits >> 20) % len(runs)]
            runs.remove(gone)
            policy.withdraw(state, gone.id)
        else:
            serial += 1
            parent = runs[(bits >> 20) % len(runs)] if runs and bits >> 30 & 1 else None
            readers = tuple({((bits >> s) % WORKFLOWS, (bits >> s + 5) % AGENTS) for s in (32, 40, 48)})
            runs.append(Run(serial, readers, 16 * (1 + (bits >> 56) % 5), parent))
            policy.offer(state, runs[-1], (serial,))
        if runs and bits & 1 << 60:  # a reader more
            run = runs[(bits >> 40) % len(runs)]
            run.readers = (*run.readers, (workflow, 0))
            policy.offer(state, run, (run.id,))
        for budget in (16, 48, (bits >> 50) % 400 // 16 * 16):
            kept = policy.choose_offered(state, budget, SHAPE)
            assert [r.id for r in kept] == scan.choose(runs, budget), (seed, turn, budget)


def test_a_choice_costs_the_same_whatever_lies_behind_it() -> None:
    took = []
    for count in (500, 20_000):
        policy = Conservative()
        state = policy.new_state(toy_host())
        for workflow in range(50):
            row = np.array([[0.5 - workflow / 200, 0.1, 0.1, 0.3 + workflow / 200]], dtype=np.float32)
            policy.forecast(state, Forecast(workflow, 0, row))
        for id in range(count):
            policy.offer(state, Run(id, ((id % 50, id % 3),), 64), id)
        best = 10**12
        for _ in range(30):
            began = time.perf_counter_ns()
            policy.choose_offered(state, 512, SHAPE)
            best = min(best, time.perf_counter_ns() - began)
        took.append(best)
    assert took[1] < 5 * took[0]  # forty times the candidates
