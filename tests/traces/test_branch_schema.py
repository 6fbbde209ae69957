"""Branches: what a sound workload holds, what is refused, and that storing and resampling keep its meaning."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from traces import resample, store
from traces.builder import WorkloadBuilder
from traces.errors import InputError
from traces.schema import StageKind, Workload

SHARED = 77


def small(workflows: int = 2) -> Workload:
    """Return workflows of decision > (tool > nested decision > tool), each with an option not taken."""
    builder = WorkloadBuilder("small")
    branches = builder.with_branches(["retrieval", "entity"])
    for w in range(workflows):
        builder.workflow(f"w{w}")
        decide = builder.llm(100, 20)
        tool = builder.delay(StageKind.TOOL, 5_000_000, parents=[decide])
        again = builder.llm(150, 10, parents=[tool])
        second = builder.delay(StageKind.TOOL, 7_000_000, parents=[again])
        lost = builder.delay(StageKind.TOOL, 9_000_000, parents=[decide])
        lost_again = builder.llm(120, 5, parents=[lost])
        for s in (decide, tool, again, second, lost, lost_again):
            branches.stage(
                s,
                fingerprint=s % 6,
                content=SHARED if s % 6 == 0 else 1000 + s,
                speculable=True,
                reads=[w, SHARED],
            )
        first = branches.branch(decide, coordinate=0, setup_ns=1_000)
        branches.option(
            first, outcome=1, arguments=w + 5, chosen=True, stages=[tool, again], scores={"retrieval": 0.5}
        )
        branches.option(first, outcome=2, stages=[lost, lost_again], scores={"retrieval": 0.7, "entity": 0.1})
        branches.option(first, outcome=3)
        inner = branches.branch(again, coordinate=1, open_space=True)
        branches.option(inner, outcome=SHARED, chosen=True, stages=[second], scores={"entity": 0.9})
        branches.subgraph(decide, lost_again, fingerprint=9)
        branches.subgraph(tool, again, fingerprint=8)
        branches.external_write(w, 1_000_000, workflow=w)
    branches.external_write(SHARED, 5)
    return builder.build()


def of(workload: Workload) -> Any:
    """Return its branches."""
    assert workload.branches is not None
    return workload.branches


def test_stages_of_an_option_that_was_not_taken_are_not_canonical() -> None:
    w = small(1)
    assert w.canonical().tolist() == [True] * 4 + [False] * 2
    assert of(w).stage_option.tolist() == [-1, -1, -1, -1, 1, 1]
    assert w.n_requests == 2


def test_an_option_that_no_drafter_can_name_is_not_offered() -> None:
    assert of(small(1)).option_offered.tolist() == [True, True, False, True]


def test_a_branch_inside_a_path_knows_the_option_it_is_nested_in() -> None:
    assert of(small(2)).branch_nested.tolist() == [-1, 0, -1, 4]


def test_the_file_of_a_workload_keeps_its_branches(tmp_path: Path) -> None:
    w = small()
    store.save(w, tmp_path / "a.workload")
    back = store.open(tmp_path / "a.workload")
    assert back.digest() == w.digest()
    for name, column in of(w).columns().items():
        read = of(back).columns()[name]
        assert read.dtype == column.dtype, name
        assert np.array_equal(read, column, equal_nan=column.dtype.kind == "f"), name


def test_branches_are_part_of_the_digest() -> None:
    w = small()
    other = replace(w, branches=replace(of(w), option_arguments=of(w).option_arguments + 1))
    assert len({w.digest(), other.digest(), replace(w, branches=None).digest()}) == 3


def test_a_subset_keeps_the_branches_of_its_workflows() -> None:
    w = small(3)
    back = resample.subset(w, [2, 0])
    assert not back.errors()
    assert of(back).option_arguments.tolist() == [7, 0, 0, 0, 5, 0, 0, 0]
    assert of(back).external_workflow.tolist() == [-1, 0, 1]
    assert of(back).external_key.tolist() == [SHARED, 2, 0]
    whole = resample.subset(w, [0, 1, 2])
    for name, column in of(w).columns().items():
        if not name.startswith("external"):
            assert np.array_equal(column, of(whole).columns()[name], equal_nan=column.dtype.kind == "f"), name


def test_copies_share_with_others_what_originals_share_and_nothing_else() -> None:
    w = small(2)
    back = resample.resample(w, 6, seed=3)
    assert not back.errors()
    b = of(back)
    content = b.stage_content.reshape(6, 6)
    assert (content[:, 0] == SHARED).all()
    assert len(np.unique(content[:, 1:])) == 30
    assert len(np.unique(b.option_arguments.reshape(6, 4)[:, 0])) == 6
    assert (b.option_outcome.reshape(6, 4) == [1, 2, 3, SHARED]).all()
    reads = b.read_key.reshape(6, 6, 2)
    assert len(np.unique(reads[:, :, 0])) == 6
    assert (reads[:, :, 1] == SHARED).all()
    # A workflow's own writes meet its own reads.
    for row, owner in enumerate(b.external_workflow.tolist()):
        if owner >= 0:
            assert b.external_key[row] == reads[owner, 0, 0]


@pytest.mark.parametrize(
    ("changes", "line"),
    [
        ({"branch_stage": [0, 99]}, "branch 1: field 'branch_stage' out of range"),
        ({"branch_stage": [2, 0]}, "must be ascending"),
        ({"stage_flags": [3, 1, 1, 1, 1, 1]}, "stage 0: a stage cannot be speculable and mutating"),
        ({"stage_option": [-1, -1, -1, -1, -1, 1]}, "option 1: 'stage_option' of its path"),
        ({"branch_nested": [-1, -1]}, "'branch_nested' is not the option"),
        ({"branch_nested": [3, 0]}, "must be an option of an earlier branch"),
        ({"option_chosen": [True, True, False, True]}, "an exclusive branch has one chosen option at most"),
        ({"option_ptr": [0, 3, 5]}, "column 'option_ptr' does not index its rows"),
        ({"stage_content": [0]}, "column 'stage_content' has 1 rows, expected 6"),
        ({"subgraph_first": [0, 1], "subgraph_last": [2, 4]}, "overlaps another without being inside it"),
        ({"external_time_ns": [-1, 0]}, "must not be negative"),
    ],
)
def test_inconsistent_branches_are_refused_in_one_line(changes: dict[str, list[Any]], line: str) -> None:
    w = small(1)
    b = of(w)
    broken = replace(b, **{k: np.array(v, dtype=getattr(b, k).dtype) for k, v in changes.items()})
    errors = replace(w, branches=broken).errors()
    assert errors
    assert line in errors[0]


def test_a_canonical_stage_depends_on_no_stage_that_was_not_taken() -> None:
    builder = WorkloadBuilder("bad")
    branches = builder.with_branches()
    builder.workflow("w")
    decide = builder.llm(10, 5)
    lost = builder.delay(StageKind.TOOL, 5, parents=[decide])
    builder.llm(10, 5, parents=[lost])
    branches.option(branches.branch(decide, coordinate=0), outcome=0, stages=[lost])
    with pytest.raises(InputError, match="depends on a stage that was not taken"):
        builder.build()


def test_an_unknown_drafter_is_named_with_the_nearest() -> None:
    branches = WorkloadBuilder("x").with_branches(["retrieval"])
    with pytest.raises(InputError, match="retrieval"):
        branches.option(branches.branch(0, coordinate=0), outcome=0, scores={"retrievl": 1.0})


def test_replayed_workflows_are_the_same_requests_again() -> None:
    drawn = resample.resample(small(2), 200, seed=1)
    back = resample.replayed(drawn, 0.6, seed=4)
    assert not back.errors()
    assert back.n_workflows == 200
    contents = [tuple(row) for row in of(back).stage_content.reshape(200, 6).tolist()]
    repeats = 200 - len(set(contents))
    assert repeats == back.provenance["replayed"]["repeats"]
    assert 90 <= repeats <= 150
    assert len({tuple(row) for row in of(drawn).stage_content.reshape(200, 6).tolist()}) == 200
    assert resample.replayed(drawn, 0.0, seed=4).digest() == replace(drawn, workflow_arrival_ns=None).digest()
