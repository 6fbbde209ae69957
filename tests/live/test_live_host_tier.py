"""The host tier on a pool that behaves as vLLM's: copies that come in time, prefetch, and memory that lies."""

from __future__ import annotations

from typing import Any

import pytest
from fake_pool import hashed
from fake_tiered import TieredEngine
from hypothesis import example, given, settings
from hypothesis import strategies as st

from live.vllm.settings import EvictionSettings, parse_settings
from policies.registry import load, names
from traces.errors import InputError
from traces.tables import CACHE_EVENTS

PATHS = st.lists(st.integers(0, 2), min_size=1, max_size=4).map(tuple)
STEPS = st.lists(st.one_of(PATHS, st.integers(0, 3), st.none()), max_size=40)  # begin, end, step
ONLINE = [n for n in names("evictors") if n != "belady_leaf"]


def tiered(blocks: int = 8, **given: Any) -> TieredEngine:
    options = {"evictor": "lru", "host_blocks": 12, "agents": ("a", "b"), "call_ms_max": 0.0} | given
    return TieredEngine(blocks, EvictionSettings(**options))


def play(engine: TieredEngine, steps: list[Any]) -> None:
    running: list[str] = []
    paths: dict[str, Any] = {}
    for i, step in enumerate(steps):
        if step is None:
            engine.step()
        elif isinstance(step, int):
            engine.step()
            if running:
                engine.end(running.pop(step % len(running)))
        elif step not in paths.values():  # equal contents in flight would be computed twice
            forecast = [0.5, 0.3, 0.2] if i % 2 else [0.1, 0.8, 0.1]
            request = engine.begin(step, wf_id=i % 3, stage=i, agent=i % 2, forecast=forecast)
            if request is not None:
                running.append(request)
                paths[request] = step
        paths = {r: p for r, p in paths.items() if r in running}
    engine.step()


@settings(max_examples=150, deadline=None)
@example(
    steps=[(0, 0, 0, 0), 0, (1, 0), 0, None], blocks=5, host=4, write="write_back", prefetcher="aggressive"
)
@given(
    steps=STEPS, blocks=st.integers(5, 14), host=st.integers(1, 14),
    write=st.sampled_from(["write_through", "write_through_selective", "write_back"]),
    prefetcher=st.sampled_from(["none", "conservative", "aggressive"]),
)  # fmt: skip
def test_every_block_that_the_cache_knows_holds_its_content(
    steps: list[Any], blocks: int, host: int, write: str, prefetcher: str
) -> None:
    engine = tiered(blocks, host_blocks=host, host_write=write, prefetcher=prefetcher, evictor="lookahead")
    play(engine, steps)
    assert engine.host.tiering.tier.tree.duplicates == 0
    assert len(engine.host.tiering.tier.tree.nodes) <= host
    for guard in (engine.host.evictor, engine.host.tiering.host_evictor, engine.host.tiering.prefetch_guard):
        assert guard is None or guard.alive, guard.dropped


@pytest.mark.parametrize("evictor", ONLINE)
def test_any_online_evictor_orders_the_host(evictor: str) -> None:
    engine = tiered(6, host_evictor=evictor, host_blocks=7)
    for i in range(40):
        engine.serve(((i * 7) % 3, i % 2, (i // 3) % 2), wf_id=i % 4, agent=i % 2, stage=i)
    assert engine.loaded > 5
    assert engine.host.tiering.host_evictor.alive, engine.host.tiering.host_evictor.dropped
    rows = engine.host.tables.tables()["blocks"]["event"].to_pylist()
    assert rows.count(CACHE_EVENTS.index("drop_host")) > 5


def test_the_host_gives_back_what_the_pool_gave_up() -> None:
    engine = tiered(4, host_blocks=16)
    engine.serve((1, 1), wf_id=1)
    engine.serve((2, 2, 2), wf_id=2)
    assert engine.pool.get_one_block(hashed((1, 1))) is None
    engine.serve((1, 1), wf_id=1)
    assert engine.loaded == 2
    requests = engine.host.tables.tables()["requests"]
    assert requests["host_hit_tokens"].to_pylist() == [0, 0, 32]
    assert requests["prefilled_tokens"].to_pylist() == [33, 49, 1]


@pytest.mark.parametrize("damage", ["zeroed", "swapped", "forgotten"])
def test_a_slot_that_lies_is_computed_again_and_the_host_is_emptied(damage: str) -> None:
    engine = tiered(4, host_blocks=16)
    engine.serve((1, 1), wf_id=1)
    engine.serve((2, 2, 2), wf_id=2)
    host = engine.memory.host["layer"]
    if damage == "zeroed":
        host.zero_()
    elif damage == "swapped":
        host.copy_(host.flip(0))
    else:
        engine.memory._content = [-1] * 16
    engine.serve((1, 1), wf_id=1, steps=4)  # `check` compares every block's content
    assert engine.recomputed == 1
    assert engine.host.tiering.corrupt >= 1
    actions = engine.host.tables.tables()["decisions"]
    families = list(zip(actions["family"].to_pylist(), actions["action"].to_pylist(), strict=True))
    assert families.count(("host_tier", "corrupt")) == 1
    engine.serve((3,), wf_id=3)
    engine.serve((4, 4, 4), wf_id=3)
    engine.serve((3,), wf_id=3)
    assert engine.host.tiering.corrupt == engine.host.about()["host_tier"]["corrupt"]
    assert engine.recomputed == 1, "what was stored since is sound"


def pressed(prefetcher: str, b_is_next: bool) -> TieredEngine:
    """The pool gave up what agent a of workflow 1 has read; what workflow 2 left there is retired."""
    engine = tiered(7, evictor="lifecycle", prefetcher=prefetcher, host_blocks=16, load_back="never")
    engine.serve((1, 1), wf_id=1, stage=0, agent="a")
    engine.serve((2, 2, 2, 2), wf_id=2, stage=1, agent="b")
    engine.serve((3, 3, 3), wf_id=2, stage=2, agent="b", wf_finished=1)
    assert engine.pool.get_one_block(hashed((1, 1))) is None
    weight = [0.0, 1.0, 0.0] if b_is_next else [1.0, 0.0, 0.0]
    engine.serve((5,), wf_id=1, stage=3, agent="b", forecast=weight, steps=5)
    return engine


def test_what_a_forecast_names_comes_back_before_it_is_asked_for() -> None:
    def hits(prefetcher: str, b_is_next: bool) -> tuple[int, int]:
        engine = pressed(prefetcher, b_is_next)
        found = engine.pool.get_one_block(hashed((1, 1)))
        return int(found is not None), engine.host.about()["host_tier"].get("prefetched", 0)

    assert hits("conservative", b_is_next=False) == (1, 2)
    assert hits("conservative", b_is_next=True) == (0, 0), "nobody who comes next has read it"
    assert hits("none", b_is_next=False) == (0, 0)


def test_what_was_prefetched_and_hit_counts_as_used() -> None:
    engine = pressed("conservative", b_is_next=False)
    engine.serve((1, 1), wf_id=1, stage=4, agent="a")
    told = engine.host.about()["host_tier"]
    assert (told["prefetched"], told["used"], told["dropped"]) == (2, 2, 0)
    assert engine.host.tables.tables()["requests"]["gpu_hit_tokens"].to_pylist()[-1] == 32
    rows = engine.host.tables.tables()["blocks"]["event"].to_pylist()
    assert rows.count(CACHE_EVENTS.index("prefetch")) == 2


def test_a_reset_of_the_pool_empties_the_host() -> None:
    engine = tiered(6)
    engine.serve((1, 2), wf_id=1)
    assert engine.host.tiering.tier.tree.nodes
    assert engine.pool.reset_prefix_cache()
    assert not engine.host.tiering.tier.tree.nodes
    engine.serve((1, 2), wf_id=1)
    assert engine.loaded == 0


@pytest.mark.parametrize("where", ["offered", "admitted", "step", "landed"])
def test_an_error_of_the_tier_itself_loses_no_content(where: str, monkeypatch: pytest.MonkeyPatch) -> None:
    engine = tiered(4, host_blocks=16)
    engine.serve((1, 1), wf_id=1)
    engine.serve((2, 2, 2), wf_id=2)

    def broken(*_: object, **__: object) -> None:
        raise ZeroDivisionError("a bug of ours")

    monkeypatch.setattr(engine.host.tiering, where, broken)
    engine.check = lambda: None  # type: ignore[method-assign]
    engine.serve((1, 1), wf_id=1, steps=4)
    assert "ZeroDivisionError" in engine.host.failed
    assert engine.recomputed == (where in ("admitted", "step"))
    engine.serve((2, 2), wf_id=2)
    for block in engine.pool.blocks:
        if block.block_hash is not None:
            assert engine.device[block.block_id].tolist() != [-1, -1]


def test_a_prefetcher_that_answers_nonsense_is_dropped_and_serving_goes_on(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    kind = type(load("prefetchers", "conservative"))
    monkeypatch.setattr(kind, "choose", lambda *_: [99])
    engine = pressed("conservative", b_is_next=False)
    assert "choose answered [99]" in engine.host.tiering.prefetch_guard.dropped
    assert engine.host.about()["host_tier"]["prefetched"] == 0


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"prefetcher": "conservative"}, "host_blocks is 0"),
        ({"host_write": "write_tru"}, "did you mean 'write_through'"),
        ({"host_blocks": -1}, "host_blocks=-1"),
        ({"host_blocks": 2, "host_evictor": "belady_leaf"}, "oracle"),
    ],
)
def test_a_tier_that_cannot_be_is_refused_in_one_line(options: dict[str, Any], said: str) -> None:
    def ask() -> None:
        given = parse_settings(options)
        given.load_host_evictor()
        given.load_prefetcher()

    with pytest.raises(InputError, match=said):
        ask()
