"""What each boundary of reuse serves: R4 exactly, and on random graphs what brute-force reachability says."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from policies.laws import toy_host
from policies.registry import load
from policies.reuse_index import Provenance, ReuseIndex
from policies.reuse_names import hashed
from policies.views import Scope, StageView


@dataclass(frozen=True)
class Graph:
    """Nodes 0..n-1 in topological order, with nested ranges that are subgraphs of the template."""

    parents: tuple[tuple[int, ...], ...]
    ranges: tuple[tuple[int, int], ...] = ()
    reads: tuple[int, ...] = ()

    def reached(self, changed: set[int]) -> set[int]:
        """Brute force: every node with a changed node among its ancestors, or changed itself."""
        out: set[int] = set()
        for node, parents in enumerate(self.parents):
            if node in changed or out & set(parents):
                out.add(node)
        return out


def index_of(name: str, **options: object) -> ReuseIndex:
    return ReuseIndex(load("reuse", name, options), toy_host())  # type: ignore[arg-type]


def run(index: ReuseIndex, graph: Graph, contents: Sequence[int], workflow: int) -> set[int]:
    """Run one request through the index; return the nodes it served. Every served value must be the true one."""
    n = len(graph.parents)
    values: dict[int, int] = {}
    served: set[int] = set()
    prefix = 0
    truth: dict[int, int] = {}
    for node, parents in enumerate(graph.parents):
        reads = tuple((k, index.version(k)) for k in graph.reads[node : node + 1] if k)
        rendered = hashed(1, node, contents[node], *(truth[p] for p in parents))
        truth[node] = hashed(2, rendered, *(x for r in reads for x in r))
        prefix = hashed(3, prefix, rendered)
        if node in values:
            assert values[node] == truth[node]
            continue
        scopes = [scope(graph, contents, truth, a, b) for a, b in graph.ranges if a == node]
        scopes.sort(key=lambda s: -s.stages)
        if node == 0:
            scopes.insert(0, Scope("request", 7, hashed(4, *contents), 0, n))
        view = StageView(workflow, node, 0, node, rendered, 0, reads, tuple(scopes), prefix)
        hit = index.demanded(view)
        if hit is None:
            values[node] = truth[node]
            index.finished(view, truth[node], Provenance(workflow, node), reads)
            continue
        assert hit.record is not None
        for k, value in enumerate(hit.record.values):
            values[node + k] = value
            served.add(node + k)
        assert values[node] == truth[node]
    index.close(workflow)
    index.check()
    return served


def scope(graph: Graph, contents: Sequence[int], values: dict[int, int], a: int, b: int) -> Scope:
    outside = sorted({p for x in range(a, b + 1) for p in graph.parents[x] if p < a})
    inputs = hashed(5, *contents[a : b + 1], *(values[p] for p in outside))
    return Scope("subgraph", hashed(6, a, b), inputs, 0, b - a + 1)


# A chain of two, the changed value with what depends on it, and two that depend on neither.
SIX = Graph(((), (0,), (1,), (2,), (0,), (4,)), ((4, 5),))


@pytest.mark.parametrize(
    ("boundary", "expected"),
    [("none", 0), ("whole_response", 0), ("prefix_region", 2), ("subgraph", 4), ("per_operator", 4)],
)
def test_r4_one_changed_value_of_six_nodes(boundary: str, expected: int) -> None:
    index = index_of(boundary)
    assert run(index, SIX, [1] * 6, 0) == set()
    assert len(run(index, SIX, [1, 1, 2, 1, 1, 1], 1)) == expected


@pytest.mark.parametrize("boundary", ["whole_response", "prefix_region", "subgraph", "per_operator"])
def test_an_exact_repeat_is_served_whole(boundary: str) -> None:
    index = index_of(boundary)
    run(index, SIX, [1] * 6, 0)
    assert run(index, SIX, [1] * 6, 1) == set(range(6))


@st.composite
def graphs(draw: st.DrawFn) -> Graph:
    n = draw(st.integers(1, 10))
    parents = tuple(
        tuple(sorted(draw(st.sets(st.integers(0, i - 1), max_size=2)))) if i else () for i in range(n)
    )
    ranges: list[tuple[int, int]] = []
    a, b = 0, n - 1
    while b - a >= 1:
        ranges.append((a, b))
        a, b = a + draw(st.integers(0, 2)), b - draw(st.integers(0, 2))
        if ranges[-1] == (a, b):
            break
    reads = tuple(draw(st.integers(0, 2)) for _ in range(n))
    return Graph(parents, tuple(ranges), reads)


@settings(max_examples=60, deadline=None, derandomize=True)
@given(graphs(), st.sets(st.integers(0, 9)), st.booleans())
def test_served_sets_equal_reachability_on_random_graphs(
    graph: Graph, picks: set[int], written: bool
) -> None:
    n = len(graph.parents)
    changed = {p for p in picks if p < n}
    contents = [2 if i in changed else 1 for i in range(n)]
    first = min(changed, default=n)
    affected = set(changed)
    if written:
        affected |= {i for i in range(n) if graph.reads[i] == 1}
    fresh = set(range(n)) - graph.reached(affected)
    for boundary in ("subgraph", "per_operator", "prefix_region", "whole_response"):
        index = index_of(boundary)
        run(index, graph, [1] * n, 0)
        if written:
            index.write(1, 1)
        served = run(index, graph, contents, 1)
        if boundary in ("subgraph", "per_operator"):
            assert served == fresh
        elif boundary == "whole_response":
            assert served == (set() if affected else set(range(n)))
        elif not written:
            assert served == set(range(first))
        else:
            assert served <= fresh


def test_a_write_during_an_execution_keeps_its_result_out() -> None:
    index = index_of("per_operator")
    view = StageView(0, 0, 0, 1, 1, 0, ((5, 0),))
    assert index.demanded(view) is None
    index.write(5, 1)
    index.finished(view, 42, Provenance(0, 0), view.read_set)
    assert len(index) == 0


def test_a_write_removes_a_subgraph_whose_inner_stage_read_the_key() -> None:
    index = index_of("subgraph")
    graph = Graph(((), (0,), (1,)), ((0, 2),), (0, 1, 0))
    run(index, graph, [1, 1, 1], 0)
    before = len(index)
    gone = index.write(1, 1)
    assert {name.scope for name in gone} == {"stage", "subgraph", "request"}
    assert len(index) == before - len(gone)


def test_capacity_is_kept_and_the_least_recently_used_goes_first() -> None:
    for eviction, kept in (("lru", {0, 2}), ("fifo", {1, 2}), ("lfu", {0, 2})):
        index = index_of("per_operator", capacity=2, eviction=eviction)
        views = [StageView(0, i, 0, i, i) for i in range(3)]
        for view in (views[0], views[1], views[0], views[2]):
            if index.demanded(view) is None:
                index.finished(view, 1, Provenance(0, view.stage), ())
        index.check()
        assert {i for i in range(3) if index.lookup(views[i], index.names(views[i])) is not None} == kept


def test_prefilled_requests_are_served_until_what_they_read_is_written() -> None:
    index = index_of("whole_response", nll_max=3.0)
    likely = StageView(0, 0, 0, 1, 1, scopes=(Scope("request", 7, 1, 0, 4, keys=(9,), nll=2.5),))
    unlikely = StageView(0, 0, 0, 1, 1, scopes=(Scope("request", 7, 2, 0, 4, keys=(9,), nll=3.5),))
    hit = index.lookup(likely, index.names(likely))
    assert hit is not None
    assert hit.record is None
    assert index.lookup(unlikely, index.names(unlikely)) is None
    index.write(9, 1)
    assert index.lookup(likely, index.names(likely)) is None


def test_a_whole_that_saw_two_versions_of_a_resource_is_not_kept() -> None:
    index = index_of("subgraph")
    part = Scope("subgraph", 1, 1, 0, 2)
    first = StageView(0, 0, 0, 1, 1, 0, ((5, 0),), (part,))
    second = StageView(0, 1, 0, 2, 2, 0, ((5, 1),))
    index.demanded(first)
    index.finished(first, 1, Provenance(0, 0), first.read_set)
    index.write(5, 1)
    index.demanded(second)
    index.finished(second, 2, Provenance(0, 1), second.read_set)
    assert index.lookup(first, index.names(first)) is None
    index.check()
