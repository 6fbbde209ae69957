"""Where the time that early fill could hide is lost: `python -m experiments waterfall` (DynBranch, Eq. 2, backwards).

Per workflow, in seconds of the floor's run on the same seeds: what all branches could hide at most, the sum over
branches of min(window, what the choice runs); less what no candidate named, what was named with other arguments, what
the gate did not fill, what reuse had served anyway; the rest is filled. Of that, what promoted stages did not save was
late, and what they saved but did not come off the latency was paid back as contention. Floor and arm are paired by
seed.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any, NoReturn

import numpy as np

from calibration import catalog
from calibration.memory import kv_blocks
from experiments.floor_load import rate_per_s
from experiments.inputs import WorkloadRef, prepared
from experiments.plots import waterfall as waterfall_plot
from experiments.plots.output import check_suffix, save
from experiments.plots.style import context, panels
from experiments.stats import mean_interval
from policies.branching import BranchingConfig
from policies.costs import Profile
from policies.registry import PolicySet, load
from sim.config import LoadConfig, SimConfig
from sim.log import MemorySink
from sim.run import simulate
from traces.errors import InputError
from traces.rendering import path_of
from traces.schema import Workload

PROFILE = "H200x1--Qwen3-32B--bf16--vllm"
_SLOTS = BranchingConfig(fills_max=48)  # as `experiment=dynbranch`
WORKLOADS = ("dynbranch_routing", "dynbranch_react", "dynbranch_subagent", "dynbranch_hci")


@dataclass(frozen=True)
class Waterfall:
    """Seconds a workflow.

    overlap = uncovered + argument + unfilled + reused + filled, and filled = late + contention + hidden.

    latency   of the floor, waits included
    overlap   sum of min(window, execution of the choice) over branches: the most that early fill could hide
    uncovered, argument   lost because no candidate had the outcome, or only with other arguments
    unfilled  lost because the gate did not fill the right candidate (or it came too late to be planned)
    reused    taken by finished work first
    filled    of branches whose right candidate was filled
    hidden    what came off the latency in fact, against reuse alone
    late      of filled: what promoted stages did not save, since they were not done in time or not promoted
    contention   the rest of filled: what fills took from others and from each other; negative where they gave
    """

    latency: float
    overlap: float
    uncovered: float
    argument: float
    unfilled: float
    reused: float
    filled: float
    hidden: float
    late: float
    contention: float


def _run(
    workload: Workload, profile: Profile, config: SimConfig, blocks: int, **names: str
) -> dict[str, Any]:
    option = {"gate": "gates", "candidate": "candidates", "reuse": "reuse", "router": "routers"}
    chosen: dict[str, Any] = {k: load(option[k], v) for k, v in names.items()}
    with MemorySink() as sink:
        simulate(workload, profile, PolicySet(**chosen), config, sink, kv_blocks=blocks)
    return {name: table.to_pydict() for name, table in sink.tables().items()}


def _mean_latency(tables: dict[str, Any]) -> float:
    w = tables["workflows"]
    return float(np.mean(np.subtract(w["finished_ns"], w["arrival_ns"]))) / 1e9


def potentials(workload: Workload, floor: dict[str, Any]) -> np.ndarray:
    """Return float[branches]: min(window, execution of the choice) in s, from the floor's run."""
    b = workload.branches
    assert b is not None
    took = workload.stage_duration_ns.astype(np.float64)
    r = floor["requests"]
    took[np.array(r["stage"], dtype=np.int64)] = np.subtract(r["finished_ns"], r["released_ns"])
    path = np.array(path_of(b))
    ahead = np.zeros(b.n_options)
    on = (path >= 0) & b.canonical()
    # Stages of several valid options run beside each other: the longest of them is what the branch waits for.
    np.add.at(ahead, path[on], took[on])
    longest = np.zeros(b.n_branches)
    np.maximum.at(longest, b.option_branch[b.option_chosen], ahead[b.option_chosen])
    return np.minimum(took[b.branch_stage], longest) / 1e9


def measure(workload: Workload, profile: Profile, config: SimConfig, blocks: int, gate: str) -> Waterfall:
    """Return the waterfall of one seed."""
    common = {"router": "least_loaded"}
    floor = _run(workload, profile, config, blocks, **common)
    reuse = _run(workload, profile, config, blocks, reuse="subgraph", **common)
    full = _run(
        workload, profile, config, blocks, reuse="subgraph", gate=gate, candidate="deployed", **common
    )
    possible = potentials(workload, floor)
    assert workload.branches is not None
    at = {b: i for i, b in enumerate(full["branches"]["branch"])}
    served = {
        s
        for s, a in zip(reuse["decisions"]["stage"], reuse["decisions"]["action"], strict=True)
        if a == "served"
    }
    path, option_branch = path_of(workload.branches), workload.branches.option_branch.tolist()
    touched = {option_branch[path[s]] for s in served if path[s] >= 0}
    lost = dict.fromkeys(("uncovered", "argument", "unfilled", "reused", "filled", "late"), 0.0)
    for branch, seconds in enumerate(possible.tolist()):
        row = at.get(branch)
        if branch in touched or row is None:
            kind = "reused"
        elif full["branches"]["filled"][row]:
            kind = "filled"
            lost["late"] += max(seconds - full["branches"]["saved_ns"][row] / 1e9, 0.0)
        elif not full["branches"]["gate_open"][row] or full["branches"]["covered"][row] == 2:
            kind = "unfilled"
        else:
            kind = "argument" if full["branches"]["covered"][row] else "uncovered"
        lost[kind] += seconds
    n = workload.n_workflows
    each = {k: v / n for k, v in lost.items()}
    hidden = _mean_latency(reuse) - _mean_latency(full)
    return Waterfall(
        latency=_mean_latency(floor), overlap=float(possible.sum()) / n, hidden=hidden,
        contention=each["filled"] - each["late"] - hidden, **each,
    )  # fmt: skip


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        raise InputError(f"{self.prog}: {message} (see {self.prog} --help)")


def waterfalls(name: str, share: float, seeds: int, workflows: int, gate: str) -> list[Waterfall]:
    """Return the waterfalls of a workload at a share of what its floor serves, one a seed."""
    profile, ref = catalog.open(PROFILE), WorkloadRef(name)
    config = SimConfig(load=LoadConfig(loop="open", rate_per_s=1.0, workflows=workflows), branching=_SLOTS)
    blocks = kv_blocks(profile, config.engine).blocks
    rate = rate_per_s(ref, profile, config, blocks, share)
    here = replace(config, load=replace(config.load, rate_per_s=rate))
    return [
        measure(prepared(ref, here.load, seed), profile, replace(here, seed=seed), blocks, gate)
        for seed in range(seeds)
    ]


def main(argv: Sequence[str]) -> int:
    """Print the waterfall of every workload as a table; return the exit status."""
    parser = _Parser(prog="python -m experiments waterfall", description=__doc__, allow_abbrev=False)
    parser.add_argument("--seeds", type=int, default=20, help="paired seeds (default 20)")
    parser.add_argument("--workflows", type=int, default=600, help="workflows of a run (default 600)")
    parser.add_argument(
        "--utilisation", type=float, nargs="+", default=[0.3, 0.8], metavar="SHARE",
        help="loads, of what the floor serves (0.3 0.8)",
    )  # fmt: skip
    parser.add_argument("--gate", default="priced", help="the gate that fills (default priced)")
    parser.add_argument("--out", type=Path, help="draw it, too: .svg, .pdf or .png")
    a = parser.parse_args(list(argv))
    load("gates", a.gate)
    if a.seeds < 1 or a.workflows < 1 or not all(0 < u < 1 for u in a.utilisation):
        raise InputError("waterfall: seeds and workflows are at least 1, a utilisation is between 0 and 1")
    if a.out is not None:
        check_suffix(a.out)
    print(
        f"{a.gate} gate, {a.seeds} paired seeds, {a.workflows} workflows, s a workflow: mean [95 % interval]"
    )
    rows: list[tuple[str, list[Waterfall]]] = []
    for name in WORKLOADS:
        for share in a.utilisation:
            found = waterfalls(name, share, a.seeds, a.workflows, a.gate)
            rows.append((f"{name.removeprefix('dynbranch_')} at {share:g}", found))
            cells = []
            for f in fields(Waterfall):
                interval = mean_interval([getattr(w, f.name) for w in found])
                assert interval is not None
                bounds = "" if interval.low is None else f" [{interval.low:.2f}, {interval.high:.2f}]"
                cells.append(f"{f.name} {interval.mean:.2f}{bounds}")
            print(f"{rows[-1][0]}: " + "; ".join(cells), flush=True)
    if a.out is not None:
        with context():
            figure, axes = panels(waterfall_plot.MOSAIC, waterfall_plot.size(len(rows)))
            waterfall_plot.draw(waterfall_plot.data(rows), axes)
            print(f"figure: {save(figure, a.out)}")
    return 0
