"""KVFlow orders by steps-to-execution; moving a workflow is cheap and still gives the order of a full sort."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from flat_cache import Hand, Node

from policies._pbkv_declared import DeclaredGraph, Marking
from policies._pbkv_steps import FAR, UNIT, StepGraph, forecast_steps
from policies.api import Access, Forecast
from policies.evictors.kvflow import Kvflow
from policies.laws import toy_host
from traces import draws
from traces.errors import InputError


def rows(*steps: tuple[float, ...]) -> Any:
    return np.array(steps, dtype=np.float32)


def request(hand: Hand, workflow: int, stage: int, agent: int, tokens: int = 16) -> Node:
    """A request of the workflow's agent inserts a node of its own and ends."""
    hand.made += 1
    node = Node(hand.made, tokens, None, hand.made)
    hand.policy.insert(hand.state, node, Access(0, workflow, stage, agent))
    hand.end(node)
    return node


def learned(*paths: tuple[int, ...]) -> Hand:
    """A host whose earlier workflows ran through the given agents; their nodes are gone."""
    hand = Hand(Kvflow())
    stage = 10_000
    for w, path in enumerate(paths, 1000):
        for agent in path:
            stage += 1
            request(hand, w, stage, agent)
        hand.policy.workflow_finished(hand.state, w, 0)
        while hand.victim() is not None:
            hand.evict()
    return hand


def test_the_agent_that_runs_latest_loses_its_cache_first() -> None:
    hand = learned((0, 1, 2, 0))
    first, second, third = (request(hand, 1, i, agent) for i, agent in enumerate((0, 1, 2)))
    # After agent 2 comes 0, then 1, then 2 again.
    assert [hand.evict(), hand.evict(), hand.evict()] == [third, second, first]


def test_a_node_is_as_near_as_the_nearest_of_the_workflows_that_read_it() -> None:
    hand = learned((0, 1, 2))
    shared = request(hand, 1, 0, 2)  # workflow 1 is at agent 2: it never runs again
    hand.policy.pin(hand.state, shared)
    hand.policy.hit(hand.state, shared, Access(0, 2, 1, 2))
    hand.end(shared)
    private = request(hand, 3, 2, 2)
    request(hand, 2, 3, 1)  # workflow 2 is one step before agent 2 now
    assert hand.evict() is private


def test_what_no_running_workflow_reads_leaves_first() -> None:
    hand = learned((0, 1, 0))
    kept = request(hand, 1, 0, 1)
    gone = request(hand, 2, 1, 0)
    request(hand, 1, 2, 0)
    hand.policy.workflow_finished(hand.state, 2, 0)
    assert hand.policy.retired(hand.state, gone)
    assert not hand.policy.retired(hand.state, kept)
    assert hand.evict() is gone


def test_among_equals_a_private_suffix_leaves_before_a_shared_prompt() -> None:
    hand = Hand(Kvflow())
    prompt = request(hand, 1, 0, 0)
    hand.hit(prompt, workflow=2)
    suffix = request(hand, 3, 1, 1)
    assert [hand.evict(), hand.evict()] == [suffix, prompt]


def test_a_forecast_gives_the_steps_where_it_is_the_graph() -> None:
    hand = Hand(Kvflow(graph="forecast"))
    a, b = request(hand, 1, 0, 0), request(hand, 2, 1, 0)
    hand.policy.forecast(hand.state, Forecast(1, 0, rows((0, 1, 0, 0), (1, 0, 0, 0))))
    hand.policy.forecast(hand.state, Forecast(2, 0, rows((1, 0, 0, 0), (0, 1, 0, 0))))
    assert [hand.evict(), hand.evict()] == [a, b]


def test_shortest_steps_are_breadth_first_and_a_return_takes_its_cycle() -> None:
    graph = StepGraph(5, 8, expected=False)
    for a, b in ((0, 1), (1, 2), (2, 0), (0, 3), (3, 2)):
        assert graph.observe(a, b)
    assert graph.steps(0) == [3 * UNIT, UNIT, 2 * UNIT, UNIT, FAR]
    assert not graph.observe(0, 1), "no new edge, no new distance"
    assert graph.observe(2, 1)
    assert graph.steps(2)[1] == UNIT
    assert graph.steps(-1) == [FAR] * 5


def test_expected_steps_of_a_loop_are_the_mean_first_passage() -> None:
    # From 0: to 1 or (retry) back to 0, each with probability 1/2. First visit of 1 is geometric, cut at 65.
    graph = StepGraph(3, 64, expected=True)
    graph.observe(0, 1)
    graph.observe(0, 0)
    steps = graph.steps(0)
    exact = sum(Fraction(k, 2**k) for k in range(1, 65)) + Fraction(65, 2**64)
    assert steps[1] == round(exact * UNIT)
    assert steps[2] == FAR
    shortest = StepGraph(3, 64, expected=False)
    shortest.observe(0, 1)
    shortest.observe(0, 0)
    assert shortest.steps(0)[1] == UNIT


def test_expected_steps_by_a_forecast() -> None:
    p = rows((0.5, 0.25, 0.25), (1.0, 0.0, 0.0))
    assert forecast_steps(p, 0.1, expected=False) == [UNIT, UNIT]
    # Agent 0: 1/2 at step 1; of the rest, alive with 3/4, then certain: 3/8 at step 2; 1/8 counts as 3.
    assert forecast_steps(p, 0.1, expected=True)[0] == round(UNIT * (0.5 + 2 * 0.375 + 3 * 0.125))
    assert forecast_steps(rows((0.0, 1.0, 0.0)), 0.1, expected=True)[0] == FAR
    assert forecast_steps(rows((0.05, 0.95, 0.0)), 0.1, expected=False)[0] == FAR


@pytest.mark.parametrize("seed", range(8))
@pytest.mark.parametrize("options", [{}, {"steps": "expected"}, {"graph": "forecast"}])
def test_lazily_kept_groups_give_the_order_of_a_full_sort(seed: int, options: dict[str, Any]) -> None:
    hand = Hand(Kvflow(**options))
    state = hand.state
    nodes: dict[int, Node] = {}
    for i in range(400):
        bits = draws.bits(seed, "kvflow", i)
        workflow, agent = bits % 6, bits >> 8 & 1 | bits >> 16 & 2
        agent = min(agent, 2)
        what = bits >> 32 & 7
        if what < 3 or not nodes:
            node = request(hand, workflow, i, agent, 16 * (1 + (bits >> 40) % 3))
            nodes[node.id] = node
        elif what < 5:
            node = list(nodes.values())[(bits >> 40) % len(nodes)]
            hand.policy.pin(state, node)
            hand.policy.hit(state, node, Access(0, workflow, i, agent))
            hand.end(node)
        elif what == 5:
            raw = draws.uniform_array(seed, "rows", i, np.arange(12)).reshape(3, 4) ** 4
            p = (raw / raw.sum(axis=1, keepdims=True)).astype(np.float32)
            hand.policy.forecast(state, Forecast(workflow, 0, p))
        elif what == 6 and bits >> 48 & 3 == 0:
            hand.policy.workflow_finished(state, workflow, 0)
        else:
            records = state.history.records

            def place(id: int, records: Any = records) -> tuple[Any, ...]:
                group, tie = state.priority(records[id])
                return -state.distance(group), tie

            expected = min(nodes, key=place)
            victim = hand.evict()
            assert place(victim.id) == place(expected) if victim.id in records else victim.id == expected
            del nodes[victim.id]
    assert len(nodes) > 20


def test_one_request_moves_its_workflow_once() -> None:
    hand = Hand(Kvflow())
    for _ in range(3):  # three blocks of one request
        request(hand, 1, 5, 0)
    assert hand.state.graph.steps(0) == [FAR] * 3, "an agent did not follow itself"
    request(hand, 1, 6, 0)
    assert hand.state.graph.steps(0)[0] == UNIT


@pytest.mark.parametrize(("options", "words"), [({"horizon": 0}, "horizon=0"), ({"likely": 0.0}, "likely=0")])
def test_options_of_kvflow_out_of_range_are_refused(options: dict[str, Any], words: str) -> None:
    with pytest.raises(InputError, match=words):
        Kvflow(**options).new_state(toy_host())


AGENTS = ("plan", "search", "code", "write", "check")
PLAN, SEARCH, CODE, WRITE, CHECK = range(5)
EDGES = "plan>search&code,search&code>write,write>check,check>write|plan"


def after(*ran: int, edges: str = EDGES) -> list[float]:
    """Return the steps to each agent after these ran."""
    graph, marking = DeclaredGraph(edges, AGENTS), Marking()
    for agent in ran:
        marking = graph.ran(marking, agent)
    return [s / UNIT if s < FAR else float("inf") for s in graph.steps(marking)]


def test_a_join_is_one_step_after_the_last_of_its_sources() -> None:
    assert after(PLAN)[WRITE] == 2  # both at once, then the join
    assert after(PLAN, SEARCH)[WRITE] == 2  # still waits for the coder
    assert after(PLAN, SEARCH, CODE)[WRITE] == 1
    chain = "plan>search,search>code,plan&code>write"
    assert after(PLAN, edges=chain)[WRITE] == 3


def test_an_alternative_is_as_near_as_the_nearest_and_a_fork_runs_all_its_heirs() -> None:
    assert after(PLAN)[SEARCH] == after(PLAN)[CODE] == 1
    assert after(PLAN, SEARCH)[CODE] == 1  # it has yet to run
    assert after(PLAN, SEARCH)[SEARCH] > 1
    done = (PLAN, SEARCH, CODE, WRITE, CHECK)
    assert after(*done)[WRITE] == after(*done)[PLAN] == 1
    assert after(*done, PLAN)[WRITE] == 2  # the other alternative was taken


def test_what_cannot_run_again_is_infinitely_far() -> None:
    line = "plan>search,search>write"
    assert after(PLAN, SEARCH, edges=line) == [float("inf"), float("inf"), float("inf"), 1, float("inf")]


def test_declared_joins_decide_who_leaves_first() -> None:
    host = replace(toy_host(), agents=AGENTS)
    policy = Kvflow(graph="declared", edges=EDGES)
    state = policy.new_state(host)
    nodes = {}
    for id, (workflow, agent) in enumerate(
        [(1, WRITE), (2, WRITE), (1, PLAN), (2, PLAN), (2, SEARCH), (2, CODE)]
    ):
        nodes[id] = Node(id, 16)
        policy.insert(state, nodes[id], Access(0, workflow, id, agent))
        if agent == WRITE:
            policy.release(state, nodes[id], 0)
    # Workflow 2 has both sources of the join, workflow 1 neither: its writer is farther.
    assert policy.next_victim(state, 0) is nodes[0]


@pytest.mark.parametrize(
    ("edges", "words"),
    [("plan-search", "expected edges"), ("plan>", "expected edges"), ("plan>serch", "did you mean 'search'")],
)
def test_edges_that_are_none_are_refused(edges: str, words: str) -> None:
    with pytest.raises(InputError, match=words):
        Kvflow(graph="declared", edges=edges).new_state(replace(toy_host(), agents=AGENTS))


def test_edges_go_with_a_declared_graph() -> None:
    for options in (
        {"edges": "a>b"},
        {"graph": "declared"},
        {"graph": "declared", "edges": "a>b", "steps": "expected"},
    ):
        with pytest.raises(InputError):
            Kvflow(**options)  # type: ignore[arg-type]
