"""The eviction host on a pool that behaves as vLLM's (`fake_pool`); `external_tests/vllm` repeats it on vLLM's own."""

from __future__ import annotations

from pathlib import Path as File

import pytest
from fake_pool import FakeEngine, FakePool, Path, hashed, hosted, info
from hypothesis import given, settings
from hypothesis import strategies as st

from live.vllm.host import EvictionHost
from live.vllm.settings import EvictionSettings
from policies.registry import names
from traces.errors import InputError

PATHS = st.lists(st.integers(0, 2), min_size=1, max_size=5).map(tuple)
STEPS = st.lists(st.one_of(PATHS, st.integers(0, 3)), max_size=50)  # begin a path, or end a running request
ONLINE = [n for n in names("evictors") if n not in ("belady_leaf",)]


def play(engine: FakeEngine, steps: list[Path | int], *, overlap: bool) -> None:
    """Begin and end requests; equal contents are never in flight twice, where vLLM computes them twice."""
    running: list[tuple[int, Path]] = []
    for i, step in enumerate(steps):
        if isinstance(step, int):
            if running:
                engine.end(running.pop(step % len(running))[0])
            continue
        number = engine.begin(step, wf_id=i % 3, stage=i, agent=0)
        if number is not None:
            running.append((number, step))
            if not overlap:
                engine.end(running.pop()[0])
        if engine.host is not None:
            engine.host.tree.check_integrity()
    for number, _ in running:
        engine.end(number)


@settings(max_examples=150, deadline=None)
@given(steps=STEPS, blocks=st.integers(4, 14), overlap=st.booleans())
def test_lru_in_the_host_leaves_the_order_of_the_engines_own_queue(
    steps: list[Path | int], blocks: int, overlap: bool
) -> None:
    stock = FakeEngine(FakePool(blocks))
    ours = hosted(blocks, EvictionSettings(evictor="lru", call_ms_max=0))
    play(stock, steps, overlap=overlap)
    play(ours, steps, overlap=overlap)
    assert ours.pool.victims == stock.pool.victims
    assert ours.hits == stock.hits


@pytest.mark.parametrize("name", ONLINE)
@settings(max_examples=25, deadline=None)
@given(steps=STEPS, blocks=st.integers(4, 14), overlap=st.booleans())
def test_every_online_evictor_names_evictable_nodes_only(
    name: str, steps: list[Path | int], blocks: int, overlap: bool
) -> None:
    engine = hosted(blocks, EvictionSettings(evictor=name, agents=("a",), call_ms_max=0))
    play(engine, steps, overlap=overlap)
    assert engine.host is not None
    assert engine.host.evictor.alive, engine.host.evictor.dropped
    assert not engine.host.failed


def test_what_only_finished_workflows_used_leaves_first() -> None:
    engine = hosted(7, EvictionSettings(evictor="lifecycle", call_ms_max=0))
    engine.serve((1, 1), wf_id=1)
    engine.serve((2, 2), wf_id=2, wf_finished=1)
    engine.serve((3, 3), wf_id=3)
    engine.serve((4, 4), wf_id=4)
    assert engine.pool.victims[:2] == [hashed((2, 2)), hashed((2,))]
    stock = FakeEngine(FakePool(7))
    for i in range(1, 5):
        stock.serve((i, i))
    assert stock.pool.victims[0] == hashed((1, 1)), "without the policy another workflow's blocks leave first"


def test_a_forecast_of_the_client_keeps_what_is_read_next() -> None:
    def left(first_is_next: bool) -> bytes:
        engine = hosted(7, EvictionSettings(evictor="lookahead", agents=("a", "b"), call_ms_max=0))
        a, b = [1.0, 0.0, 0.0], [0.0, 1.0, 0.0]
        engine.serve((1, 1), wf_id=1, agent="a", forecast=a if first_is_next else b)
        engine.serve((2, 2), wf_id=2, agent="a", forecast=b if first_is_next else a)
        engine.serve((3, 3, 3), wf_id=3, agent="b", forecast=b)
        assert engine.host is not None
        assert engine.host.evictor.alive
        return bytes(engine.pool.victims[0])

    assert left(True) == hashed((2, 2))
    assert left(False) == hashed((1, 1))


@pytest.mark.parametrize("kind", ["raises", "nonsense", "nothing", "slow"])
def test_a_policy_that_misbehaves_is_dropped_and_the_engines_own_order_goes_on(
    kind: str, tmp_path: File, caplog: pytest.LogCaptureFixture
) -> None:
    write_policy(tmp_path, kind)
    given = EvictionSettings(evictor=kind, policy_path=str(tmp_path), call_ms_max=1 if kind == "slow" else 0)
    engine, stock = hosted(6, given), FakeEngine(FakePool(6))
    paths = [(1, 1), (2,), (3, 3), (1, 1), (4,), (2, 2), (5, 5, 5), (1,)] * 3
    for path in paths:
        engine.serve(path)
        stock.serve(path)
    assert engine.pool.victims == stock.pool.victims
    assert engine.host is not None
    assert not engine.host.failed
    assert not engine.host.evictor.alive
    assert len([r for r in caplog.records if "dropped" in r.getMessage()]) == 1, "reported once"
    engine.host.shutdown()
    actions = engine.host.tables.tables()["decisions"]["action"].to_pylist()
    assert actions.count("dropped") == 1
    assert "cost_ns.insert" in actions


def write_policy(folder: File, kind: str) -> None:
    """LRU that misbehaves at its fifth victim, or is slow from its first."""
    answer = {
        "raises": "raise ZeroDivisionError('a bug')",
        "nonsense": "return object()",
        "nothing": "return None",
        "slow": "sum(range(200_000))",
    }[kind]
    (folder / f"{kind}.py").write_text(
        "from dataclasses import dataclass\n"
        "from policies.evictors.lru import Lru as _Lru\n"
        "@dataclass(frozen=True)\n"
        f"class Bad{kind.capitalize()}(_Lru):\n"
        "    def next_victim(self, state, now_ns):\n"
        f"        if state.clock > {0 if kind == 'slow' else 14}:\n"
        f"            {answer}\n"
        "        return super().next_victim(state, now_ns)\n",
        encoding="utf-8",
    )


def test_an_error_of_the_host_itself_hands_the_pool_back(monkeypatch: pytest.MonkeyPatch) -> None:
    engine, stock = hosted(5, EvictionSettings(call_ms_max=0)), FakeEngine(FakePool(5))
    assert engine.host is not None
    for turn in range(12):
        if turn == 6:
            monkeypatch.setattr(engine.host.tree, "insert", lambda *_: 1 / 0)
        engine.serve((turn % 4, turn % 3))
        stock.serve((turn % 4, turn % 3))
    assert "ZeroDivisionError" in engine.host.failed
    assert engine.pool.victims == stock.pool.victims


def test_a_reset_of_the_cache_reaches_the_policy_as_removals() -> None:
    engine = hosted(8, EvictionSettings(evictor="lru", call_ms_max=0))
    engine.serve((1, 1, 1))
    engine.serve((1, 2))
    assert engine.pool.reset_prefix_cache()
    assert engine.host is not None
    assert not engine.host.tree.nodes
    assert engine.host.evictor.calls["remove"] == 4
    assert engine.host.evictor.call("next_victim", 0) is None
    engine.serve((1, 1, 1))
    engine.host.tree.check_integrity()
    assert engine.hits == 1, "only the one before the reset"


def test_blocks_taken_out_by_number_end_the_policy_not_the_engine() -> None:
    engine = hosted(5, EvictionSettings(call_ms_max=0))
    engine.serve((1, 1))
    engine.pool.evict_blocks({engine.pool.blocks[0].block_id})
    for turn in range(6):
        engine.serve((turn, turn))
    assert engine.host is not None
    assert "by number" in engine.host.failed


def test_a_content_in_two_blocks_is_one_node_and_its_spare_is_reused_first() -> None:
    engine = hosted(6, EvictionSettings(evictor="lru", call_ms_max=0))
    host = engine.host
    assert host is not None
    engine.serve((9,), extra=0)
    first = engine.begin((1, 1), extra=0)
    second = engine.begin((1, 1), extra=0, blind=True)  # as if scheduled before the first was known
    assert first is not None
    assert second is not None
    assert host.tree.duplicates == 2
    host.tree.check_integrity()
    engine.end(first)
    host.tree.check_integrity()
    assert engine.begin((2, 2), extra=1) is not None
    host.tree.check_integrity()
    assert hashed((1, 1)) in host.tree.nodes, "the second request still holds a copy"
    assert host.evictor.calls.get("next_victim", 0) == 0, "two spares and a blank block need no decision"
    engine.end(second)
    host.tree.check_integrity()
    assert engine.begin((1, 1), extra=0) is not None
    assert engine.hits == 2
    assert host.evictor.alive


def test_a_pool_that_it_cannot_serve_is_refused() -> None:
    pool = FakePool(4)
    pool.enable_caching = False
    with pytest.raises(InputError, match="prefix caching"):
        EvictionHost(EvictionSettings()).bind(pool, info(4))
    with pytest.raises(InputError, match="oracle"):
        EvictionHost(EvictionSettings(evictor="belady_leaf"))
