"""Laws of what early execution could hide, of coverage, and of repeated inputs."""

import numpy as np
import pytest

from traces.branches import Branches
from traces.builder import WorkloadBuilder
from traces.coverage import RANKS, coverage
from traces.describe import describe
from traces.describe_branches import repeated_inputs
from traces.describe_text import render
from traces.overlap import Nominal, overlap
from traces.schema import StageKind, Workload
from traces.synthetic_branches import Shape, random_branches

MS = 1_000_000
COST = Nominal(decode_ns_per_token=10 * MS, prefill_ns_per_token=0)


def branches(w: Workload) -> Branches:
    assert w.branches is not None
    return w.branches


def decided(
    window_tokens: int, work_ms: int, *, setup_ms: int = 0, safe: bool = True, copies: int = 1
) -> Workload:
    """A call decides for a tool, then a last call of 10 tokens; another option is not taken."""
    builder = WorkloadBuilder("decided")
    b = builder.with_branches(("guess",))
    for i in range(copies):
        builder.workflow(str(i))
        first = builder.llm(16, window_tokens, agent="decider")
        tool = builder.delay(StageKind.TOOL, work_ms * MS, parents=[first], agent="tool")
        last = builder.llm(16, 10, parents=[tool], agent="teller")
        other = builder.delay(StageKind.TOOL, 5 * MS, parents=[first], agent="tool")
        for s in (first, tool, last, other):
            b.stage(s, fingerprint=s - 4 * i, content=7, speculable=safe or s != tool)
        branch = b.branch(first, coordinate=1, setup_ns=setup_ms * MS)
        b.option(branch, outcome=0, stages=[other], scores={"guess": 0.9})
        b.option(branch, outcome=1, chosen=True, stages=[tool], scores={"guess": 0.5})
    return builder.build()


@pytest.mark.parametrize(
    ("window", "work", "setup", "hidden"),
    [
        (50, 300, 0, 300),
        (50, 800, 0, 500),
        (50, 800, 100, 400),
        (50, 800, 600, 0),
        (0, 800, 0, 0),
        (50, 0, 0, 0),
    ],
)
def test_a_branch_hides_the_shorter_of_window_and_work(
    window: int, work: int, setup: int, hidden: int
) -> None:
    found = overlap(decided(window, work, setup_ms=setup), COST)
    wall = 10 * window + work + 100
    assert found.wall_ms == wall
    assert found.window == found.bound == round(hidden / wall, 4)
    assert found.downstream == round(work / wall, 4)


def test_what_may_not_run_early_is_not_hidden() -> None:
    found = overlap(decided(50, 300, safe=False), COST)
    assert found.window == found.bound == 0
    assert found.downstream > 0


def test_a_user_s_wait_is_a_window_and_no_time() -> None:
    builder = WorkloadBuilder("wait")
    b = builder.with_branches()
    builder.workflow("w")
    wait = builder.delay(StageKind.WAIT, 900 * MS)
    tool = builder.delay(StageKind.TOOL, 300 * MS, parents=[wait])
    last = builder.delay(StageKind.TOOL, 100 * MS, parents=[tool])
    for s in (tool, last):
        b.stage(s, fingerprint=s, speculable=True)
    b.option(b.branch(wait, coordinate=0), outcome=0, chosen=True, stages=[tool])
    found = overlap(builder.build())
    assert (found.wall_ms, found.window, found.bound) == (400, 0.75, 0.75)


@pytest.mark.parametrize("seed", range(6))
def test_shares_are_shares_and_no_windows_hide_nothing(seed: int) -> None:
    w = random_branches(40, seed, Shape(several=300, wait=0))
    found = overlap(w, COST)
    assert 0 < found.bound < 1
    assert 0 <= found.window <= 1
    assert 0 < found.downstream < 1
    assert overlap(random_branches(40, seed, Shape(decides=0)), COST).bound == 0
    assert overlap(random_branches(40, seed, Shape(undetermined=1000)), COST).bound == 0


def test_coverage_counts_what_a_search_through_all_options_finds() -> None:
    b = branches(random_branches(200, 4))
    found = coverage(b)
    for d, kind in enumerate(b.drafters):
        hits = {(what, k): 0.0 for what in ("choice", "choice and arguments") for k in RANKS}
        total = 0
        for n in range(b.n_branches):
            rows = range(int(b.option_ptr[n]), int(b.option_ptr[n + 1]))
            wanted = [o for o in rows if b.option_taken[o]]
            if not any(b.option_stage_ptr[o + 1] > b.option_stage_ptr[o] for o in wanted):
                continue
            total += 1
            named = [o for o in rows if not np.isnan(b.option_score[d, o])]
            named.sort(key=lambda o: (-float(b.option_score[d, o]), o))
            for k in RANKS:
                top = named[:k]
                hits["choice and arguments", k] += sum(o in top for o in wanted) / len(wanted)
                outcomes = {int(b.option_outcome[o]) for o in top}
                hits["choice", k] += sum(int(b.option_outcome[o]) in outcomes for o in wanted) / len(wanted)
        for (what, k), n in hits.items():
            assert found["drafters"][kind][what][str(k)] == pytest.approx(n / total, abs=1e-4)
        assert found["branches_with_a_taken_path"] == total
    wrong = found["drafters"]["frequent"]
    assert wrong["choice"]["8"] > wrong["choice and arguments"]["8"]


def test_the_most_frequent_outcomes_are_counted_by_coordinate() -> None:
    assert coverage(branches(decided(50, 300, copies=4)))["most_frequent_outcome"] == dict.fromkeys(
        "1238", 1.0
    )
    b = branches(random_branches(300, 4))
    shares = list(coverage(b)["most_frequent_outcome"].values())
    assert shares == sorted(shares)
    assert shares[0] < shares[1]


def test_inputs_repeat_when_workflows_do_and_only_where_that_is_safe() -> None:
    once, twice = (repeated_inputs(decided(50, 300, copies=n), COST) for n in (1, 2))
    assert once["stages"] == once["time"] == 0
    assert twice["stages"] == twice["time"] == 0.5
    unsafe = repeated_inputs(decided(50, 300, copies=2, safe=False), COST)
    # The tool returns something of its own every time, so what reads it has new inputs, too.
    assert {name: s["stages"] for name, s in unsafe["by_agent"].items()} == {
        "decider": 0.5,
        "tool": 0,
        "teller": 0,
    }


def test_a_description_counts_the_recorded_run_alone() -> None:
    w = decided(50, 300, copies=3)
    said = describe(w)
    assert said["requests"] == 6
    assert said["stages"] == {"llm": 6, "tool": 3, "wait": 0}
    assert said["branches"]["not_taken"] == {"llm": 0, "tool": 3}
    text = render(said)
    assert "coverage of guess, choice: 0.0 % @1, 100.0 % @2" in text
    assert "overlap share" in text
    assert describe(random_branches(5, 0, Shape(decides=0)))["branches"]["branches"] == 0
