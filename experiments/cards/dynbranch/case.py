"""The case study: one Routing request without and with early fill, and its timeline for Perfetto.

python -m experiments.cards.dynbranch.case case.json.gz
"""

from __future__ import annotations

import functools
import sys
from dataclasses import dataclass

import pyarrow as pa

from calibration import catalog
from calibration.memory import kv_blocks
from policies.registry import PolicySet, load
from sim.config import LoadConfig, SimConfig
from sim.log import MemorySink
from sim.run import simulate
from traces import resample, workloads
from traces.perfetto import export_log
from traces.runlog import from_tables
from traces.schema import Workload

PROFILE = "H200x1--Qwen3-32B--bf16--vllm"
_TRIED = 60


@dataclass(frozen=True)
class Case:
    """One request: its latency alone and with fills, stages promoted, and the log with fills."""

    name: str
    serial_s: float
    filled_s: float
    promoted: int
    tables: dict[str, pa.Table]

    @property
    def saved_s(self) -> float:
        """Latency saved."""
        return self.serial_s - self.filled_s


def run_one(workload: Workload, *, filled: bool) -> tuple[float, int, dict[str, pa.Table]]:
    """Run one workflow on two idle replicas; return its latency in s, stages promoted, and the log."""
    profile = catalog.open(PROFILE)
    config = SimConfig(load=LoadConfig(loop="closed", concurrency=1), replicas=2)
    policies = PolicySet()
    if filled:
        policies = PolicySet(gate=load("gates", "always"), candidate=load("candidates", "deployed"))  # type: ignore[arg-type]
    with MemorySink() as sink:
        simulate(
            workload, profile, policies, config, sink, kv_blocks=kv_blocks(profile, config.engine).blocks
        )
    tables = sink.tables()
    flow = tables["workflows"].to_pydict()
    fates = tables["fills"]["fate"].to_pylist()
    return (flow["finished_ns"][0] - flow["arrival_ns"][0]) / 1e9, fates.count("promoted"), tables


@functools.cache
def best_case() -> Case:
    """Return the request of the Routing workload, of the first sixty with two decisions or more, that gains most."""
    workload = workloads.open("dynbranch_routing")
    b = workload.branches
    assert b is not None
    owners = workload.stage_workflow[b.branch_stage].tolist()
    several = [w for w in dict.fromkeys(owners) if owners.count(w) >= 2][:_TRIED]
    best: Case | None = None
    for w in several:
        alone = resample.subset(workload, [w])
        serial, _, _ = run_one(alone, filled=False)
        filled, promoted, tables = run_one(alone, filled=True)
        case = Case(workload.workflow_names[w], serial, filled, promoted, tables)
        if best is None or (case.saved_s, case.promoted) > (best.saved_s, best.promoted):
            best = case
    assert best is not None
    return best


def main() -> int:
    """Write the case as a Perfetto trace to the path given (default `case.json.gz`)."""
    case = best_case()
    out = export_log(
        from_tables(case.tables, case.name), sys.argv[1] if len(sys.argv) > 1 else "case.json.gz"
    )
    print(
        f"{case.name}: {case.serial_s:.2f} s alone, {case.filled_s:.2f} s with fills, {case.promoted} stages promoted"
    )
    print(f"timeline: {out}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
