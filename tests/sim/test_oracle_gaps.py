"""How long a workflow is away after a request is what its tools and waits take, by the trace."""

from __future__ import annotations

from sim.kv.paths import PrefixPaths
from sim.oracle import NEVER, RecordedOracle
from traces.builder import WorkloadBuilder
from traces.schema import StageKind


def test_a_gap_is_the_shortest_way_through_tools_to_the_next_request() -> None:
    builder = WorkloadBuilder("gaps", hash_block_tokens=16)
    builder.workflow("w")
    first = builder.llm(16, 4, agent="a")
    slow = builder.delay(StageKind.TOOL, 500, parents=[first])
    quick = builder.delay(StageKind.TOOL, 30, parents=[first])
    wait = builder.delay(StageKind.WAIT, 9, parents=[quick])
    builder.llm(16, 4, parents=[slow], agent="b")
    joined = builder.llm(16, 4, parents=[wait, slow], agent="c")
    last = builder.llm(16, 4, parents=[joined], agent="d")
    builder.delay(StageKind.TOOL, 5, parents=[last])
    workload = builder.build()
    oracle = RecordedOracle(workload, PrefixPaths(workload, 16), [])
    assert oracle.away_ns(first) == 39
    assert oracle.away_ns(joined) == 0
    assert oracle.away_ns(last) == NEVER
    assert oracle.away_ns(-1) == 0
