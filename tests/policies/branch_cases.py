"""Workloads and worlds for the tests of branching, made once."""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from typing import Any

import numpy as np
from branch_world import Chances, World

from policies.branching import BranchingConfig
from policies.guards import Guards
from policies.registry import load
from traces import draws
from traces.schema import Workload
from traces.synthetic_branches import Shape, random_branches


@cache
def workload(seed: int, workflows: int = 60, resources: int = 6, contents: int = 1) -> Workload:
    """Random workflows with much recurrence: parameters vary, options of different branches have equal arguments."""
    shape = Shape(
        contents=contents,
        decides=600,
        several=150,
        length=4,
        resources=resources,
        undetermined=60 if resources else 0,
    )
    w = random_branches(workflows, seed, shape)
    b = w.branches
    assert b is not None
    bits = draws.bits_array(seed, "test parameters", np.arange(w.n_stages))
    place = np.arange(b.n_options) - b.option_ptr[b.option_branch]
    params = (bits % np.uint64(2)).astype(np.int32)
    w = replace(w, branches=replace(b, stage_params=params, option_arguments=place))
    assert not w.errors()
    return w


def world(
    w: Workload,
    *,
    seed: int = 0,
    gate: str = "fanout",
    candidate: str = "oracle",
    reuse: str = "subgraph",
    guards: Guards | None = None,
    chances: Chances | None = None,
    gate_options: dict[str, Any] | None = None,
    candidate_options: dict[str, Any] | None = None,
    **config: Any,
) -> World:
    """Return a world that ran to its end."""
    if candidate == "oracle" and candidate_options is None:
        candidate_options = {"accuracy": 0.6}
    if gate == "fanout" and gate_options is None:
        gate_options = {"k": 3}
    policies: Any = (
        load("gates", gate, gate_options or {}),
        load("candidates", candidate, candidate_options or {}),
        load("reuse", reuse),
    )
    made = World(w, *policies, seed=seed, config=BranchingConfig(**config), guards=guards, chances=chances)
    return made.run()
