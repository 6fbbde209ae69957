"""Lookahead eviction keeps equation 2 of PBKV through any history, and orders by it."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from flat_cache import Hand
from numpy.typing import NDArray

from policies._lazy_heap import LazyHeap
from policies._pbkv_score import ONE, masked, reuse_weights
from policies._toy_tree import AGENTS, ToyOracle, ToyTree
from policies.api import Access, CacheNode, Forecast
from policies.evictors.lookahead import Lookahead
from policies.laws import toy_host
from traces import draws
from traces.errors import InputError


def rows(*steps: tuple[float, ...]) -> NDArray[np.float32]:
    return np.array(steps, dtype=np.float32)


def random_rows(seed: int, *ids: int, steps: int = 3, agents: int = AGENTS) -> NDArray[np.float32]:
    raw = draws.uniform_array(seed, "forecast", *ids, np.arange(steps * (agents + 1))).reshape(steps, -1)
    out: NDArray[np.float32] = (raw / raw.sum(axis=1, keepdims=True)).astype(np.float32)
    return out


def forecast(hand: Hand, workflow: int, *steps: tuple[float, ...]) -> None:
    hand.policy.forecast(hand.state, Forecast(workflow, 0, rows(*steps)))


def access(workflow: int, agent: int) -> Access:
    return Access(0, workflow, 0, agent)


class Book:
    """Stands between a toy cache and the evictor, and keeps A_w(c) of every resident node by walking to the root."""

    def __init__(self, policy: Lookahead, seed: int) -> None:
        self.policy = policy
        self.seed = seed
        self.readers: dict[int, dict[int, set[int]]] = {}
        self.ever: dict[int, set[int]] = {}
        self.nodes: dict[int, CacheNode] = {}
        self.evictable: set[int] = set()
        self.finished: set[int] = set()
        self.rows: dict[int, NDArray[np.float32]] = {}
        self.checks = [0, 0]

    def _read(self, node: CacheNode, by: Access) -> None:
        at: CacheNode | None = node
        while at is not None:
            self.readers[at.id].setdefault(by.workflow, set()).add(by.agent)
            self.ever[at.id].add(by.workflow)
            at = at.parent

    def insert(self, state: Any, node: CacheNode, access: Access) -> None:
        self.nodes[node.id], self.readers[node.id], self.ever[node.id] = node, {}, set()
        self._read(node, access)
        self.policy.insert(state, node, access)
        self.finished.discard(access.workflow)
        self.forecast(
            state,
            Forecast(access.workflow, 0, random_rows(self.seed, access.stage, node.id)),
        )

    def hit(self, state: Any, node: CacheNode, access: Access) -> None:
        self._read(node, access)
        self.policy.hit(state, node, access)

    def done(self, state: Any, node: CacheNode, now_ns: int) -> None:
        self.policy.done(state, node, now_ns)

    def release(self, state: Any, node: CacheNode, now_ns: int) -> None:
        self.evictable.add(node.id)
        self.policy.release(state, node, now_ns)

    def pin(self, state: Any, node: CacheNode) -> None:
        self.evictable.discard(node.id)
        self.policy.pin(state, node)

    def split(self, state: Any, upper: CacheNode, lower: CacheNode) -> None:
        self.nodes[upper.id] = upper
        self.readers[upper.id] = {w: set(agents) for w, agents in self.readers[lower.id].items()}
        self.ever[upper.id] = set(self.ever[lower.id])
        self.policy.split(state, upper, lower)

    def shrink(self, state: Any, node: CacheNode) -> None:
        self.policy.shrink(state, node)

    def retired(self, state: Any, node: CacheNode) -> bool:
        return self.policy.retired(state, node)

    def remove(self, state: Any, node: CacheNode) -> None:
        for book in (self.nodes, self.readers, self.ever):
            del book[node.id]
        self.evictable.discard(node.id)
        self.policy.remove(state, node)

    def workflow_finished(self, state: Any, workflow: int, now_ns: int) -> None:
        for readers in self.readers.values():
            readers.pop(workflow, None)
        self.rows.pop(workflow, None)
        self.policy.workflow_finished(state, workflow, now_ns)

    def forecast(self, state: Any, forecast: Forecast) -> None:
        self.rows[forecast.workflow] = forecast.probability
        self.policy.forecast(state, forecast)

    def score(self, id: int) -> float:
        """Equation 2, in floats, from the forecasts and the walked A_w(c)."""
        total = 0.0
        for workflow, agents in self.readers[id].items():
            p = self.rows.get(workflow)
            if p is None:
                continue
            p = p[: self.policy.horizon].astype(np.float64)
            survival = np.concatenate([[1.0], np.cumprod(1 - p[:-1, -1])])
            weight = self.policy.gamma ** np.arange(len(p)) * survival
            total += float(weight @ p[:, sorted(agents)].sum(axis=1))
        return total

    def next_victim(self, state: Any, now_ns: int) -> CacheNode | None:
        for id, node in self.nodes.items():
            parent = node.parent
            if parent is not None:
                assert self.ever[parent.id] >= self.ever[id]
                for workflow, agents in self.readers[id].items():
                    assert self.readers[parent.id][workflow] >= agents
                assert self.score(parent.id) >= self.score(id) - 1e-9, "Score is monotone toward the root"
        victim = self.policy.next_victim(state, now_ns)
        if victim is None:
            return None
        record = state.history.records[victim.id]
        assert {
            w: {a for a in range(AGENTS) if m >> a & 1} for w, m in record.readers.items()
        } == self.readers[victim.id], "deepest-node events and what removed children pass up give A_w(c)"
        retired = {id for id in self.evictable if not self.readers[id]}
        if retired:
            assert victim.id in retired, "retired cache is drained first"
            assert len(self.ever[victim.id]) == min(len(self.ever[id]) for id in retired)
            self.checks[0] += 1
        else:
            assert self.score(victim.id) <= min(self.score(id) for id in self.evictable) + 1e-7
            self.checks[1] += 1
        for id in self.evictable:
            if self.readers[id]:
                assert state.history.records[id].score / ONE == pytest.approx(self.score(id), abs=1e-7)
        return victim


@pytest.mark.parametrize("seed", range(6))
def test_score_is_equation_2_and_monotone_toward_the_root_through_random_histories(seed: int) -> None:
    book = Book(Lookahead(horizon=1 + seed % 3, gamma=(0.7, 1.0, 0.3)[seed % 3]), seed)
    state = book.policy.new_state(toy_host())
    tree = ToyTree(book, state, seed, blocks=48, oracle=ToyOracle(seed, 120))  # type: ignore[arg-type]
    for _ in range(120):
        tree.step()
    tree.drain()
    assert min(book.checks) > 5, book.checks


@pytest.mark.parametrize("seed", range(20))
def test_value_is_the_score_of_one_step(seed: int) -> None:
    p = random_rows(seed)
    value = [round(float(x) * ONE) for x in p[0, :AGENTS]]
    assert reuse_weights(p, 1, 0.7) == value
    assert reuse_weights(p[:1], 3, 0.2) == value


def test_a_forecast_row_is_weighed_by_survival_once() -> None:
    # Ends after one step with probability 1/2; if not, agent 1 runs. P^(2) is given survival (appendix G).
    p = rows((0.5, 0.0, 0.5), (0.0, 1.0, 0.0))
    assert reuse_weights(p, 2, 0.5) == [ONE // 2, ONE // 4]
    assert reuse_weights(p, 2, 0.5, survival=False) == [ONE // 2, ONE // 2]


def test_nothing_after_a_certain_end_counts() -> None:
    assert reuse_weights(rows((0.0, 0.0, 1.0), (1.0, 0.0, 0.0)), 2, 1.0) == [0, 0]


def test_lookahead_sees_past_the_next_step() -> None:
    orders = []
    for horizon in (1, 2):
        hand = Hand(Lookahead(horizon=horizon))
        late = hand.add(workflow=1)
        soon = hand.add(workflow=2)
        forecast(hand, 1, (0.1, 0.9, 0, 0), (1, 0, 0, 0))
        forecast(hand, 2, (0.3, 0.7, 0, 0), (0, 1, 0, 0))
        orders.append(
            ["late" if hand.evict() is late else "soon", "soon" if hand.evict() is soon else "late"]
        )
    assert orders == [["late", "soon"], ["soon", "late"]]


def test_what_many_workflows_share_is_worth_their_sum() -> None:
    hand = Hand(Lookahead())
    shared = hand.add(workflow=1)
    hand.hit(shared, workflow=2)
    private = hand.add(workflow=3)
    for workflow, p in ((1, 0.4), (2, 0.4), (3, 0.7)):
        forecast(hand, workflow, (p, 1 - p, 0, 0))
    assert [hand.evict(), hand.evict()] == [private, shared]


def test_an_active_node_without_value_stays_while_a_popular_retired_one_is_left() -> None:
    hand = Hand(Lookahead())
    active = hand.add(workflow=9)
    retired = hand.add(workflow=1)
    hand.hit(retired, workflow=2)
    for workflow in (1, 2):
        forecast(hand, workflow, (1, 0, 0, 0))
        hand.policy.workflow_finished(hand.state, workflow, 0)
    assert hand.victim() is retired
    assert hand.policy.retired(hand.state, retired)
    assert not hand.policy.retired(hand.state, active)


def test_equal_scores_leave_the_deeper_path_first_then_lru() -> None:
    hand = Hand(Lookahead())
    short, long, older, newer = (hand.add(tokens=n, workflow=1) for n in (16, 64, 32, 32))
    assert [hand.evict() for _ in range(4)] == [long, older, newer, short]


def test_a_trimmed_path_keeps_the_place_of_the_whole_as_blocks_apart_would() -> None:
    # One node of 4 blocks against the same path as 4 nodes of a block, beside a path of 3 blocks.
    hand = Hand(Lookahead())
    whole, other = hand.add(tokens=64, workflow=1), hand.add(tokens=48, workflow=1)
    blocks = Hand(Lookahead())
    a = blocks.add(workflow=1, held=True)
    b = blocks.add(parent=a, workflow=1, held=True)
    c = blocks.add(parent=b, workflow=1, held=True)
    d = blocks.add(parent=c, workflow=1)
    beside = blocks.add(tokens=48, workflow=1)
    for trimmed in (d, c, b):
        assert hand.victim() is whole
        whole.tokens -= 16
        hand.policy.shrink(hand.state, whole)
        assert blocks.evict(last_child=True) is trimmed
    assert [hand.evict(), hand.evict()] == [whole, other]
    assert [blocks.evict(), blocks.evict()] == [a, beside]


def test_a_forecast_costs_what_the_workflow_has_evictable_not_what_the_cache_holds() -> None:
    class Counting(LazyHeap[CacheNode]):
        changes = 0

        def set(self, id: int, priority: Any, item: CacheNode) -> None:
            Counting.changes += 1
            super().set(id, priority, item)

    hand = Hand(Lookahead())
    hand.state.evictable = Counting()
    for i in range(500):
        hand.add(workflow=i % 100)
    Counting.changes = 0
    forecast(hand, 7, (1, 0, 0, 0))
    assert Counting.changes == 5
    forecast(hand, 7, (1, 0, 0, 0))
    assert Counting.changes == 5, "no score changed"


def test_inherit_marks_the_agents_that_are_passed_the_history() -> None:
    def order(policy: Lookahead) -> list[CacheNode]:
        hand = Hand(policy)
        history = hand.add(workflow=1)  # by agent 0
        own = hand.add(workflow=2)
        forecast(hand, 1, (0, 1, 0, 0))  # agent 1, which never read it
        forecast(hand, 2, (0.5, 0, 0, 0.5))
        return [own, history] if hand.evict() is own else [history, own]

    names = [n.id for n in order(Lookahead())]
    assert names == [1, 2]
    assert [n.id for n in order(Lookahead(access="inherit", passes="all"))] == [2, 1]
    assert [n.id for n in order(Lookahead(access="inherit", passes="a>b"))] == [2, 1]
    assert [n.id for n in order(Lookahead(access="inherit", passes="b>a"))] == [1, 2]


def test_passing_is_learned_from_two_workflows_and_passes_on() -> None:
    hand = Hand(Lookahead(access="inherit"))
    inheritance = hand.state.inheritance
    for workflow, seen in ((1, False), (2, True)):
        node = hand.add(workflow=workflow)  # by agent 0
        hand.policy.pin(hand.state, node)
        hand.policy.hit(hand.state, node, access(workflow, 1))
        hand.end(node)
        assert (inheritance.close(0b001) == 0b011) is seen
    for workflow in (3, 4):
        node = hand.add(workflow=workflow)
        hand.policy.hit(hand.state, node, access(workflow, 1))
        hand.policy.hit(hand.state, node, access(workflow, 2))
    assert inheritance.close(0b001) == 0b111


def test_a_shared_prompt_teaches_nothing_about_who_passes_history() -> None:
    hand = Hand(Lookahead(access="inherit"))
    prompt = hand.add(workflow=1)
    for workflow in (2, 3, 4):
        hand.policy.hit(hand.state, prompt, access(workflow, 1))
        hand.policy.hit(hand.state, prompt, access(workflow, 2))
    assert hand.state.inheritance.close(0b010) == 0b010


def test_global_pin_keeps_what_two_workflows_read_to_the_last() -> None:
    for pinned, last in ((False, "private"), (True, "prompt")):
        hand = Hand(Lookahead(access="global_pin" if pinned else "literal"))
        prompt = hand.add(workflow=1)
        hand.hit(prompt, workflow=2)
        for workflow in (1, 2):
            hand.policy.workflow_finished(hand.state, workflow, 0)
        private = hand.add(workflow=3)
        forecast(hand, 3, (1, 0, 0, 0))
        victim = hand.evict()
        assert victim is (private if last == "prompt" else prompt)
        if pinned:
            assert not hand.policy.retired(hand.state, prompt)


def test_a_node_back_from_the_host_has_the_readers_it_had() -> None:
    hand = Hand(Lookahead())
    node = hand.add(workflow=1)
    other = hand.add(workflow=2)
    forecast(hand, 1, (0, 0.9, 0.1, 0))
    forecast(hand, 2, (0.5, 0.5, 0, 0))
    hand.policy.restore(hand.state, node, [access(1, 1)])
    assert [hand.evict(), hand.evict()] == [other, node]


def test_the_end_of_a_workflow_forgets_all_of_it() -> None:
    hand = Hand(Lookahead())
    for w in range(5):
        hand.add(workflow=w)
        forecast(hand, w, (1, 0, 0, 0))
    for w in range(5):
        hand.policy.workflow_finished(hand.state, w, 0)
    state = hand.state
    assert [*state.nodes, *state.leaves, *state.weights, *state.values] == []


@pytest.mark.parametrize(
    ("options", "words"),
    [({"horizon": 0}, "horizon=0"), ({"gamma": 1.5}, "gamma=1.5")],
)
def test_options_out_of_range_are_refused(options: dict[str, Any], words: str) -> None:
    with pytest.raises(InputError, match=words):
        Lookahead(**options)


def test_an_unknown_agent_in_passes_is_refused_with_the_nearest_name() -> None:
    with pytest.raises(InputError, match="unknown agent"):
        Lookahead(access="inherit", passes="a>zz").new_state(toy_host())


def test_masked_sums_the_agents_of_the_mask() -> None:
    assert masked([1, 10, 100], 0b110) == 110
