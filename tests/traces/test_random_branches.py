"""Laws of the generator of random branch workflows: sound, seeded, and holding what it promises."""

from collections import Counter

import numpy as np
import pytest

from traces.branches import Branches, StageFlag
from traces.errors import InputError
from traces.schema import StageKind, Workload
from traces.synthetic_branches import Shape, random_branches


def branches(w: Workload) -> Branches:
    assert w.branches is not None
    return w.branches


@pytest.mark.parametrize("seed", range(12))
def test_random_branches_are_sound(seed: int) -> None:
    shape = Shape(length=1 + seed % 4, depth=seed % 4, options=1 + seed % 5, several=500 * (seed % 3))
    assert random_branches(25, seed, shape).errors() == []


def test_equal_arguments_give_equal_random_workloads() -> None:
    assert random_branches(30, 5).digest() == random_branches(30, 5).digest()
    assert random_branches(30, 5).digest() != random_branches(30, 6).digest()


def test_random_branches_hold_every_case_that_rules_must_get_right() -> None:
    w = random_branches(300, 0)
    b = branches(w)
    lost = ~b.canonical()
    paths = np.diff(b.option_stage_ptr)
    chosen = np.bincount(b.option_branch[b.option_chosen], minlength=b.n_branches)
    pairs = Counter(zip(b.option_branch.tolist(), b.option_outcome.tolist(), strict=True))
    rare = {
        "nested": np.count_nonzero(b.branch_nested >= 0),
        "nested below an option that was not taken": np.count_nonzero(lost[b.branch_stage]),
        "several valid": np.count_nonzero(chosen > 1),
        "none valid": np.count_nonzero(chosen == 0),
        "empty path": np.count_nonzero(paths == 0),
        "wrong arguments": sum(n > 1 for n in pairs.values()),
        "nobody can name": np.count_nonzero(~b.option_offered),
        "one drafter can": np.count_nonzero(np.isnan(b.option_score).sum(axis=0) == 1),
        "canonical stage that writes": np.count_nonzero((b.stage_flags == StageFlag.MUTATING) & ~lost),
        "not determined": np.count_nonzero((b.stage_flags == 0) & (w.stage_kind == StageKind.LLM)),
        "loser that would write": np.count_nonzero((b.stage_flags == StageFlag.MUTATING) & lost),
        "read of what is written": len(np.intersect1d(b.read_key, b.write_key)),
        "external": len(b.external_key),
        "nested subgraphs": np.count_nonzero(np.diff(np.sort(b.subgraph_first)) == 0),
        "wait": np.count_nonzero(w.stage_kind[b.branch_stage] == StageKind.WAIT),
    }
    assert {what: n for what, n in rare.items() if n < 4} == {}


def test_the_place_of_the_chosen_option_says_nothing() -> None:
    b = branches(random_branches(400, 1, Shape(options=3, several=0)))
    three = np.flatnonzero(np.diff(b.option_ptr) == 3)
    rows = b.option_chosen[b.option_ptr[three][:, None] + np.arange(3)]
    share = rows[rows.any(axis=1)].mean(axis=0)
    assert len(rows) > 200
    assert np.all(np.abs(share - 1 / 3) < 0.1)


def test_repeats_are_equal_and_changed_ones_differ_in_one_input() -> None:
    w = random_branches(200, 2, Shape(repeats=600, changed=500))
    b = branches(w)
    where = w.stage_workflow[b.canonical()]
    content, template = b.stage_content[b.canonical()], b.stage_fingerprint[b.canonical()]
    rows = [content[where == i].tolist() for i in range(w.n_workflows)]
    kinds = [template[where == i].tolist() for i in range(w.n_workflows)]
    whole = one = 0
    for i in range(w.n_workflows):
        like = [j for j in range(i) if kinds[j] == kinds[i] and len(rows[i]) > 3]
        apart = [sum(x != y for x, y in zip(rows[j], rows[i], strict=True)) for j in like]
        whole += 0 in apart
        one += 1 in apart and 0 not in apart
    assert whole > 10
    assert one > 10


def test_without_recurrence_no_two_workflows_have_an_input_in_common() -> None:
    w = random_branches(60, 3, Shape(repeats=0, contents=1 << 40))
    b = branches(w)
    assert len(np.unique(b.stage_content)) == w.n_stages


def test_bad_sizes_are_refused() -> None:
    with pytest.raises(InputError, match="must be at least 1"):
        random_branches(0, 0)
