"""The drafter host on made-up batches: what policies hear, what may be verified, and what happens when they err."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from live.vllm.drafting import DraftHost, Row, Sent
from live.vllm.draftsettings import DraftSettings, parse_draft_settings
from policies.laws import toy_host
from policies.views import Draft, HostInfo
from traces.errors import InputError


class Batch:
    """Rows of requests that are known until they are dropped."""

    def __init__(self, host: DraftHost, **sent: Sent) -> None:
        self.host = host
        self.sent = sent
        self.tokens = {name: len(s.prompt) for name, s in sent.items()}

    def step(
        self, verified: Mapping[str, int] | None = None, **sampled: Sequence[int]
    ) -> dict[str, list[int]]:
        self.host.scheduled({name: [0] * k for name, k in (verified or {}).items()})
        rows = []
        for name, tokens in sampled.items():
            self.tokens[name] += len(tokens)
            rows.append(Row(name, list(tokens), self.tokens[name]))
        answer = self.host.step(rows, self.sent.__contains__, self.sent.__getitem__)
        return {row.name: draft for row, draft in zip(rows, answer, strict=True)}


def sent(prompt: Sequence[int] = (1, 2, 3, 1, 2, 3), most: int = 50, **extra: Any) -> Sent:
    return Sent(extra, list(prompt), most)


def hosted(clock: Any = None, **given: Any) -> DraftHost:
    toy = toy_host()
    info = HostInfo(profile=toy.profile, block_tokens=16, capacity_tokens=0, agents=("a/x", "a/y", "b/x"))
    options = {"call_ms_max": 0.0, "agents": ("a/x", "a/y", "b/x"), "tokens_max": 4} | given
    return DraftHost(DraftSettings(**options), info, 100, *([clock] if clock else []))


class Heard:
    """Notes the calls to the host's drafter."""

    def __init__(self, host: DraftHost, monkeypatch: pytest.MonkeyPatch, **answers: Any) -> None:
        self.calls: list[tuple[Any, ...]] = []
        call = host.drafter.call

        def noted(event: str, *args: Any) -> Any:
            self.calls.append((event, *args))
            return answers[event](*args) if event in answers else call(event, *args)

        monkeypatch.setattr(host.drafter, "call", noted)

    def of(self, event: str) -> list[tuple[Any, ...]]:
        return [c[1:] for c in self.calls if c[0] == event]


def test_a_repeated_run_is_drafted_and_only_rows_that_sampled_get_a_draft() -> None:
    batch = Batch(hosted(), r=sent(), chunk=sent())
    drafts = batch.step(r=[1], chunk=[])
    assert drafts["r"][:2] == [2, 3]
    assert drafts["chunk"] == []
    assert len(drafts["r"]) <= 4


def test_begin_commit_and_finish_come_once_and_in_order(monkeypatch: pytest.MonkeyPatch) -> None:
    host = hosted()
    heard = Heard(host, monkeypatch)
    batch = Batch(host, r=sent(wf_id=7, stage=3, agent="b/x"), s=sent())
    batch.step(r=[1])
    batch.step({"r": 2}, r=[2, 3, 9], s=[1])
    del batch.sent["r"]
    batch.step(s=[2])
    assert [c[0] for c in heard.calls if c[0] in ("begin", "finish")] == ["begin", "begin", "finish"]
    (view, prompt), _ = heard.of("begin")
    assert (view.workflow, view.stage, view.prompt_tokens) == (7, 3, 6)
    assert view.agent == 1, "b is the second application"
    assert view.query == 7, "the workflow, where no query is named"
    assert prompt.tolist() == [1, 2, 3, 1, 2, 3]
    committed = [(r, [t.tolist() for t in tokens]) for r, tokens, _ in heard.of("commit_batch")]
    assert committed == [([0], [[1]]), ([0, 1], [[2, 3, 9], [1]]), ([1], [[2]])]
    assert heard.of("finish") == [(0,)]


def test_the_budget_hears_what_was_verified_not_what_was_proposed(monkeypatch: pytest.MonkeyPatch) -> None:
    host = hosted(budget="fixed_k", keep_steps=True)
    seen: list[list[list[int]]] = []
    call = host.budget.call

    def noted(event: str, *args: Any) -> Any:
        if event == "observe":
            seen.append([a.tolist() for a in args])
        return call(event, *args)

    monkeypatch.setattr(host.budget, "call", noted)
    batch = Batch(host, r=sent(), s=sent())
    batch.step(r=[1], s=[1])
    batch.step({"r": 1}, r=[2, 7], s=[5])  # the scheduler cut r's draft to one token, and dropped s's
    assert seen == [[[0, 1], [1, 0], [1, 0]]]
    assert host.verified_steps == [(0, 1, 1), (1, 0, 0)]
    assert (host.verified, host.accepted) == (1, 1)


def test_what_is_sampled_past_a_requests_end_reaches_no_policy(monkeypatch: pytest.MonkeyPatch) -> None:
    host = hosted()
    heard = Heard(host, monkeypatch)
    batch = Batch(host, r=sent(most=3), one=sent(most=1))
    assert batch.step(r=[1], one=[4])["one"] == []
    assert batch.step({"r": 4}, r=[2, 3, 1, 2, 3])["r"] == [], "it has said all it may"
    tokens = [t.tolist() for _, batch_tokens, _ in heard.of("commit_batch") for t in batch_tokens]
    assert tokens == [[1], [2, 3]]
    assert len(heard.of("begin")) == 1


def test_drafts_stay_within_the_engines_length() -> None:
    toy = toy_host()
    host = hosted()
    room = toy.profile.max_model_len
    rows = [Row("r", [1], room - 2)]
    assert len(host.step(rows, lambda _: True, lambda _: sent())[0]) <= 1


def test_query_agent_and_structure_of_the_lightweight_interface(monkeypatch: pytest.MonkeyPatch) -> None:
    host = hosted(drafter="structured")
    heard = Heard(host, monkeypatch)
    good = '[[("{", "}")]]'
    extra = {"query_id": "q1", "agent_id": "editor", "structure": good}
    batch = Batch(host, a=sent(**extra), b=sent(**extra | {"query_id": "q2"}), c=sent(**extra))
    batch.step(a=[1], b=[1], c=[1])
    a, b, c = (view for view, _ in heard.of("begin"))
    assert a.query == c.query != b.query
    assert a.agent == b.agent
    assert a.structure == good


def test_a_malformed_structure_is_left_out_and_said_once(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    host = hosted(drafter="structured")
    heard = Heard(host, monkeypatch)
    batch = Batch(host, a=sent(structure="{"), b=sent(structure=5), c=sent())
    batch.step(a=[1], b=[1], c=[1])
    assert [view.structure for view, _ in heard.of("begin")] == [None, None, None]
    assert host.alive
    assert len([r for r in caplog.records if "structure" in r.getMessage()]) == 1


@pytest.mark.parametrize("every", [1, 2, 3])
def test_corruption_replaces_every_nth_drafted_token(every: int) -> None:
    clean = Batch(hosted(), r=sent()).step(r=[1])["r"]
    other = Batch(hosted(corrupt_every=every), r=sent()).step(r=[1])["r"]
    assert len(clean) == len(other) >= 3
    assert [i for i, (a, b) in enumerate(zip(clean, other, strict=True)) if a != b] == [
        i for i in range(len(clean)) if (i + 1) % every == 0
    ]


def big(*_: Any) -> list[Draft]:
    return [Draft(np.array([100], np.uint32), np.ones(1, np.float32))]


def error(*_: Any) -> Any:
    raise ZeroDivisionError("a bug")


@pytest.mark.parametrize("answer", [big, lambda *_: None, lambda *_: [], lambda *_: [5], error])
def test_a_drafter_that_errs_is_dropped_and_said_once(
    answer: Any, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    host = hosted()
    monkeypatch.setattr(type(host.drafter.policy), "propose_batch", lambda _, *args: answer(*args))
    batch = Batch(host, r=sent())
    for _ in range(3):
        assert batch.step(r=[1])["r"] == []
    assert host.drafter.dropped
    assert not host.failed
    assert len([r for r in caplog.records if "dropped" in r.getMessage()]) == 1


@pytest.mark.parametrize("answer", [lambda p: p.length + 1, lambda p: -p.length - 1, lambda p: None, error])
def test_a_budget_that_errs_is_dropped(answer: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    host = hosted()
    monkeypatch.setattr(type(host.budget.policy), "allocate", lambda _, state, p, view: answer(p))
    assert Batch(host, r=sent()).step(r=[1])["r"] == []
    assert host.budget.dropped


def test_an_error_of_the_host_itself_ends_drafting_and_nothing_else() -> None:
    host = hosted()
    rows = [Row("r", [1], 7)]
    assert host.step(rows, lambda _: True, error) == [[]]
    assert "ZeroDivisionError" in host.failed
    assert host.step(rows, lambda _: True, lambda _: sent()) == [[]]


def test_the_log_says_what_calls_cost(tmp_path: Path) -> None:
    host = hosted(log_file=str(tmp_path / "drafting.json"))
    Batch(host, r=sent()).step(r=[1])
    host.close()
    text = (tmp_path / "drafting.json").read_text(encoding="utf-8")
    assert '"propose_batch"' in text
    assert host.about()["cost_ns"]["propose_batch"] > 0


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"draftr": "ngram"}, "did you mean 'drafter'"),
        ({"tokens_max": 0}, "tokens_max=0"),
        ({"corrupt_every": -1}, "corrupt_every=-1"),
    ],
)
def test_bad_settings_are_refused_in_one_line(given: dict[str, Any], said: str) -> None:
    with pytest.raises(InputError, match=said):
        parse_draft_settings(given)
