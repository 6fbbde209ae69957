"""Predictors on recorded sequences: judged on tasks they never saw; the ceiling is the generator's own."""

from __future__ import annotations

import pytest

from experiments.cards.pbkv import recorded
from experiments.cards.rows import NOT, NOT_ATTEMPTED
from policies.training import sequences
from policies.training.sequences import original


def test_what_is_learned_from_and_what_is_judged_share_no_task(monkeypatch: pytest.MonkeyPatch) -> None:
    seen = []
    train = recorded.fitting.train
    measure = recorded.accuracy

    def spy(name, learn, fit, model):  # type: ignore[no-untyped-def]
        seen.append({original(n) for n in learn.names})
        return train(name, learn, fit, model)

    def judge(forecast, test):  # type: ignore[no-untyped-def]
        assert seen[-1].isdisjoint({original(n) for n in test.names})
        return measure(forecast, test)

    monkeypatch.setattr(recorded.fitting, "train", spy)
    monkeypatch.setattr(recorded, "accuracy", judge)
    found = recorded.table(2, ("markov(order=1)",))
    assert len(seen) == 2 * len(found)


def test_the_ceiling_is_what_the_process_gets_right_and_no_chain_beats_it() -> None:
    on_these, expected = recorded.ceiling("pbkv_hover")
    assert all(abs(a - b) < 0.02 for a, b in zip(on_these, expected, strict=True))
    assert 1 > expected[0] > expected[1] > expected[2] > 0.5


def test_the_usual_one_is_the_most_frequent_follower() -> None:
    text = tuple(recorded.np.zeros((n, recorded.DIMS), dtype="float32") for n in (3, 1))
    both = sequences.Sequences(("a", "b"), ("x", "y"), ((0, 1, 1), (1,)), text)
    assert recorded._usual(both, both)[0] == 0.5  # y, y, end, end


def cells(usual: float, chain: float) -> recorded.Table:
    def steps(v: float) -> list[dict[int, float]]:
        return [{s: v + 0.1 * s for s in range(4)} for _ in range(3)]

    return {"a source": {recorded.USUAL: steps(usual), recorded.BASE: steps(chain)}}


def test_a_chain_must_beat_the_most_frequent_symbol() -> None:
    assert recorded.row("P13", cells(40, 50), "").verdict != NOT
    assert recorded.row("P13", cells(50, 50), "").verdict == NOT


def test_learned_rows_are_not_attempted_without_torch(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(recorded.importlib.util, "find_spec", lambda _: None)
    (row,) = recorded.rows(("P13L",), quick=True)
    assert row.verdict == NOT_ATTEMPTED


def test_a_source_with_too_few_runs_for_a_network_is_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(recorded, "names", lambda: ("chatdev", "magentic"))
    assert set(recorded.table(1, ("markov(order=1)",), recorded.LEAST)) == {"magentic"}
    assert set(recorded.table(1, ("markov(order=1)",))) == {"chatdev", "magentic"}
