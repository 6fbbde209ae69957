"""Hand-worked cases: a few requests on an engine whose step takes one microsecond whatever it holds."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from policies.costs import Profile
from policies.registry import PolicySet
from sim.config import SimConfig
from sim.log import MemorySink
from sim.run import RunStats, simulate
from sim.worlds import flat_profile
from traces.builder import WorkloadBuilder
from traces.tables import REQUEST_STATUS

STEP_NS = 1_000
STEP_PS = STEP_NS * 1_000


@dataclass
class Case:
    """A workload under construction, in blocks of four tokens."""

    builder: WorkloadBuilder = field(default_factory=lambda: WorkloadBuilder("case", hash_block_tokens=4))

    def call(
        self,
        prompt: int,
        output: int,
        *,
        at_ns: int | None = 0,
        units: Sequence[int] | None = None,
        sequence: Sequence[int] | None = None,
        agent: str | None = None,
    ) -> int:
        """Add a workflow of one request; `at_ns` None in a closed loop."""
        self.builder.workflow(f"w{len(self.builder._workflow_names)}", arrival_ns=at_ns)
        return self.more(prompt, output, units=units, sequence=sequence, agent=agent)

    def more(
        self,
        prompt: int,
        output: int,
        *,
        parents: Sequence[int] = (),
        units: Sequence[int] | None = None,
        sequence: Sequence[int] | None = None,
        agent: str | None = None,
    ) -> int:
        """Add a request to the last workflow."""
        return self.builder.llm(
            prompt,
            output,
            parents=parents,
            agent=agent,
            prompt_units=None if units is None else np.array(units, dtype=np.uint64),
            sequence_units=None if sequence is None else np.array(sequence, dtype=np.uint64),
        )


@dataclass
class Result:
    """Rows by stage, steps as (start, decoding, prefill tokens) in units of a step, and everything else."""

    stats: RunStats
    requests: dict[int, dict[str, Any]]
    steps: list[tuple[float, int, int]]
    tables: dict[str, list[dict[str, Any]]]

    def ns(self, column: str) -> list[int]:
        """Return a column of the requests in order of stage."""
        return [self.requests[stage][column] for stage in sorted(self.requests)]

    def status(self) -> list[str]:
        """Return the status of each request in order of stage."""
        return [REQUEST_STATUS[i] for i in self.ns("status")]


def run(
    case: Case,
    *,
    blocks: int = 1000,
    config: SimConfig | None = None,
    profile: Profile | None = None,
    policies: PolicySet | None = None,
    **engine: Any,
) -> Result:
    """Simulate the case, checking the books; `engine` are options of the engine (blocks of four tokens)."""
    config = config or OPEN
    config = replace(config, engine=replace(config.engine, **{"block_tokens": 4, **engine}))
    with MemorySink() as sink:
        stats = simulate(
            case.builder.build(),
            profile or flat_profile(STEP_PS),
            policies or PolicySet(),
            config,
            sink,
            kv_blocks=blocks,
            check=True,
        )
    tables = {name: table.to_pylist() for name, table in sink.tables().items()}
    return Result(
        stats,
        {r["stage"]: r for r in tables["requests"]},
        [(s["start_ns"] / STEP_NS, s["decode_seqs"], s["prefill_tokens"]) for s in tables["steps"]],
        tables,
    )


OPEN = SimConfig(load=replace(SimConfig().load, loop="open"))
