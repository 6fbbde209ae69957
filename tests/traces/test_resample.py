"""Laws of resampling, against a cache that holds every prefix ever seen, computed from the raw units."""

import time
from collections import Counter
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from traces.builder import WorkloadBuilder
from traces.errors import InputError
from traces.resample import resample, subset
from traces.schema import StageKind, Workload

Units = tuple[int, ...]
Raw = list[list[tuple[Units, Units]]]  # workflow > LLM stage > (prompt, output), one token a unit


def build(raw: Raw) -> Workload:
    b = WorkloadBuilder("raw", hash_block_tokens=1)
    for i, stages in enumerate(raw):
        b.workflow(f"w{i}")
        last: list[int] = []
        for prompt, output in stages:
            units = np.array(prompt + output, dtype=np.uint64)
            stage = b.llm(
                len(prompt),
                len(output),
                parents=last,
                agent=f"a{i % 2}",
                prompt_units=units[: len(prompt)],
                sequence_units=units,
                output_ids=units[len(prompt) :].astype(np.uint32),
            )
            last = [b.delay(StageKind.TOOL, 1000 * i + stage, parents=[stage])]
    return b.build()


def hits(w: Workload) -> list[int]:
    """Hit tokens of each LLM stage, in stage order, in a cache that never forgets."""
    seen: set[int] = set()
    out = []
    for s in range(w.n_stages):
        if w.stage_kind[s] != StageKind.LLM:
            continue
        known = [g for g in w.prefix.path(int(w.prompt_segment[s])) if g in seen]
        out.append(min(int(w.prefix.end_tokens[known[-1]]), int(w.prompt_tokens[s])) if known else 0)
        seen.update(w.prefix.path(int(w.sequence_segment[s])))
    return out


def raw_hits(raw: Raw, copies: list[tuple[int, int]]) -> list[int]:
    """The same from the units: a prefix is global when two workflows have it, else it is the copy's own."""
    having: Counter[Units] = Counter()
    for stages in raw:
        having.update({(p + o)[:k] for p, o in stages for k in range(1, len(p + o) + 1)})
    seen: set[tuple[tuple[int, int] | None, Units]] = set()
    out = []
    for copy in copies:
        for prompt, output in raw[copy[0]]:
            whole = prompt + output
            keys = [(None if having[whole[:k]] > 1 else copy, whole[:k]) for k in range(1, len(whole) + 1)]
            out.append(next((k for k, key in enumerate(keys[: len(prompt)]) if key not in seen), len(prompt)))
            seen.update(keys)
    return out


units = st.lists(st.integers(0, 2), min_size=1, max_size=5).map(tuple)
workflows = st.lists(
    st.tuples(units, st.lists(st.integers(0, 2), max_size=3).map(tuple)), min_size=1, max_size=4
)


def copies_of(w: Workload) -> list[tuple[int, int]]:
    return [(int(n.split("#")[0][1:]), int(n.partition("#")[2] or 0)) for n in w.workflow_names]


@settings(max_examples=60, deadline=None)
@given(st.lists(workflows, min_size=1, max_size=4), st.integers(1, 11), st.integers(0, 3))
def test_an_infinite_cache_hits_in_the_resample_what_copies_own_and_what_is_global(
    raw: Raw, count: int, seed: int
) -> None:
    w = resample(build(raw), count, seed)
    assert w.errors() == []
    assert hits(w) == raw_hits(raw, copies_of(w))


@settings(max_examples=40, deadline=None)
@given(st.lists(workflows, min_size=1, max_size=4), st.integers(1, 11), st.integers(0, 3))
def test_every_original_is_drawn_once_a_round_and_copied_whole(raw: Raw, count: int, seed: int) -> None:
    base = build(raw)
    w = resample(base, count, seed)
    copies = copies_of(w)
    assert len(set(copies)) == count
    for r in range(count // len(raw)):
        assert sorted(i for i, turn in copies if turn == r) == list(range(len(raw)))
    for k, (i, _) in enumerate(copies):
        mine, original = np.flatnonzero(w.stage_workflow == k), np.flatnonzero(base.stage_workflow == i)
        for column in ("stage_kind", "stage_agent", "stage_duration_ns", "prompt_tokens", "output_tokens"):
            assert getattr(w, column)[mine].tolist() == getattr(base, column)[original].tolist()
        for s, o in zip(mine.tolist(), original.tolist(), strict=True):
            parents = w.parent_idx[w.parent_ptr[s] : w.parent_ptr[s + 1]] - mine[0]
            expected = base.parent_idx[base.parent_ptr[o] : base.parent_ptr[o + 1]] - original[0]
            assert parents.tolist() == expected.tolist()


@settings(max_examples=40, deadline=None)
@given(st.lists(workflows, min_size=1, max_size=5), st.data())
def test_a_subset_shares_exactly_what_its_workflows_shared(raw: Raw, data: st.DataObject) -> None:
    pick = data.draw(st.permutations(range(len(raw)))).copy()[: data.draw(st.integers(0, len(raw)))]
    w = subset(build(raw), pick)
    assert w.errors() == []
    assert w.workflow_names == tuple(f"w{i}" for i in pick)
    assert hits(w) == hits(build([raw[i] for i in pick])) if pick else w.n_stages == 0
    if pick:
        assert len(subset(w, range(len(pick))).prefix) == len(w.prefix)


def test_output_ids_repeat_within_a_round_and_never_between_rounds() -> None:
    raw: Raw = [[((1,), (7, 8, 7))], [((2,), (7, 9))]]
    w = resample(build(raw), 6, seed=0)
    assert w.output_ids is not None
    assert w.output_ptr is not None
    first = [w.output_ids[w.output_ptr[s] : w.output_ptr[s + 1]].tolist() for s in range(0, w.n_stages, 2)]
    rounds = [
        {i: ids for (i, turn), ids in zip(copies_of(w), first, strict=True) if turn == r} for r in range(3)
    ]
    assert rounds[0] == {0: [7, 8, 7], 1: [7, 9]}
    for r in rounds:
        assert r[0][0] == r[0][2] == r[1][0]
        assert len({*r[0], *r[1]}) == 3
    values = [set(r[0] + r[1]) for r in rounds]
    assert len(set().union(*values)) == sum(map(len, values))


def test_the_same_seed_gives_the_same_workload_and_another_seed_another_order() -> None:
    base = build([[((i, 1, 2), (i,))] for i in range(12)])
    assert resample(base, 30, 5).digest() == resample(base, 30, 5).digest()
    assert resample(base, 30, 5).workflow_names != resample(base, 30, 6).workflow_names


def test_arrival_times_are_left_to_the_load_by_resample_and_kept_by_subset() -> None:
    base = replace(build([[((1,), ())], [((2,), ())]]), workflow_arrival_ns=np.array([5, 9], dtype=np.int64))
    assert resample(base, 3, 0).workflow_arrival_ns is None
    arrival = subset(base, [1]).workflow_arrival_ns
    assert arrival is not None
    assert arrival.tolist() == [9]


def test_eight_thousand_requests_are_resampled_in_a_blink() -> None:
    raw: Raw = [[(tuple(range(5)) + (i,) * k, (9,)) for k in range(1, 41)] for i in range(20)]
    base = build(raw)
    best = 1e9
    for _ in range(3):
        begin = time.perf_counter()
        w = resample(base, 200, 0)
        best = min(best, time.perf_counter() - begin)
    assert w.n_requests == 8000
    assert best < 0.3


def test_wrong_arguments_say_what_is_allowed() -> None:
    base = build([[((1,), ())]])
    with pytest.raises(InputError, match="workflows=0, expected at least 1"):
        resample(base, 0, 0)
    with pytest.raises(InputError, match="workflow 4 out of range, allowed: 0 to 0"):
        subset(base, [4])
    with pytest.raises(InputError, match="takes a workflow once"):
        subset(base, [0, 0])
    with pytest.raises(InputError, match="no workflow to resample from"):
        resample(subset(base, []), 3, 0)
