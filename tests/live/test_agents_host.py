"""The workflow host against a server that answers by rule: speculation changes time, and nothing else."""

from __future__ import annotations

import gzip
import json
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from fake_openai import FakeServer, served

from live.agents import session
from live.agents.journal import first_difference, read_journal
from live.agents.report import printed
from live.agents.server import Patience
from live.agents.session import Outcome, controller_of, run, workload_of
from live.agents.settings import AgentSettings
from policies import branch_events as ev
from policies.api import Admission, BranchView, FillOption, Gate, HostInfo, LoadView
from policies.branching import BranchingConfig
from traces.branches import StageFlag
from traces.runlog import RunLog, read_run
from traces.schema import StageKind
from traces.tables import REQUEST_STATUS

FINISHED = REQUEST_STATUS.index("finished")
SERIAL = 1  # workflows that write the same resources beside each other have no order to keep
FILLS: dict[str, Any] = {"gate": "fanout", "gate_options": {"k": "2"}, "candidate": "oracle"}
MISSES: dict[str, Any] = {**FILLS, "candidate_options": {"accuracy": "0.3", "coverage": "0.6"}}


@pytest.fixture(scope="module")
def fake() -> Iterator[FakeServer]:
    with served(FakeServer(token_s=0.001)) as server:
        yield server


def settings(server: FakeServer, workload: str = "dynbranch_routing", **given: Any) -> AgentSettings:
    base: dict[str, Any] = {
        "workflows": 6, "concurrency": 3, "time_scale": 0.005, "poll_s": 0.02,
        "patience": Patience(retries=3, backoff_s=0.01, deadline_s=30.0),
    }  # fmt: skip
    return AgentSettings(workload, server.url, **{**base, **given})


def ran(tmp_path: Path, server: FakeServer, name: str = "run", **given: Any) -> tuple[Outcome, RunLog]:
    outcome = run(settings(server, **given), tmp_path / name)
    return outcome, read_run(tmp_path / name)


def names(log: RunLog, table: str, column: str) -> list[str]:
    found: list[str] = log.table(table, (column,))[column].to_pylist()
    return found


@pytest.mark.parametrize("workload", ["dynbranch_routing", "dynbranch_react", "dynbranch_hci_menu"])
@pytest.mark.parametrize("demand", ["join", "race", "drop"])
def test_speculation_and_reuse_change_no_value(
    workload: str, demand: str, fake: FakeServer, tmp_path: Path
) -> None:
    given = {"workload": workload, "workflows": 4, "concurrency": SERIAL}
    plain, _ = ran(tmp_path, fake, "plain", **given)
    branching = BranchingConfig(priority="low", demand=demand)
    fast, log = ran(tmp_path, fake, "fast", **given, **MISSES, reuse="subgraph", branching=branching)
    assert plain.completed == fast.completed == 4
    assert fast.values == plain.values
    assert fast.fills > 5
    assert fast.unsafe == 0
    assert not fast.broken
    assert demand == "drop" or names(log, "fills", "fate").count("promoted") > 0


def test_every_canonical_stage_is_answered_once(fake: FakeServer, tmp_path: Path) -> None:
    outcome, log = ran(tmp_path, fake, **MISSES)
    workload = workload_of(settings(fake))
    assert sorted(outcome.values) == np.flatnonzero(workload.canonical()).tolist()
    assert log.column("workflows", "finished_ns").min() > 0
    spliced = {s for s, a in zip(log.column("decisions", "stage"), names(log, "decisions", "action"), strict=True)
               if a in ("promoted", "served")}  # fmt: skip
    executed = log.column("requests", "stage")[log.column("requests", "status") == FINISHED].tolist()
    assert len(set(executed)) == len(executed)
    calls = {s for s in outcome.values if workload.stage_kind[s] == StageKind.LLM}
    assert set(executed) | (spliced & calls) == calls
    assert not spliced & set(executed)


def test_fills_have_low_priority_and_losers_close_their_streams(tmp_path: Path) -> None:
    with served(FakeServer(token_s=0.004)) as slow:
        outcome, log = ran(tmp_path, slow, **MISSES, scale=8.0)
        asked = {p: [b for b in slow.bodies if b.get("priority", 0) == p] for p in (0, 10)}
        promised = sum(b["max_tokens"] for b in slow.bodies)
    status = log.column("fills", "status")
    called = log.column("fills", "replica") >= 0
    aborted = called & (status == REQUEST_STATUS.index("aborted"))
    assert 0 < len(asked[10]) <= np.count_nonzero(called)  # some were cancelled before the server had them
    assert len(asked[0]) == log.rows("requests")
    assert np.count_nonzero(aborted) > 3
    assert 0 < slow.left <= np.count_nonzero(aborted)
    assert slow.tokens < promised
    assert outcome.fill_output_tokens + outcome.output_tokens <= slow.tokens


def test_a_mutating_stage_is_never_run_early(fake: FakeServer, tmp_path: Path) -> None:
    _, log = ran(tmp_path, fake, **FILLS, workflows=10)
    workload = workload_of(settings(fake, workflows=10))
    assert workload.branches is not None
    mutating = (workload.branches.stage_flags & StageFlag.MUTATING) != 0
    assert mutating.any()
    assert log.rows("fills") > 0
    assert not mutating[log.column("fills", "stage")].any()


@pytest.mark.parametrize("fault", [{"busy": 9}, {"cut": 7}])
def test_what_passes_is_tried_again(fault: dict[str, int], fake: FakeServer, tmp_path: Path) -> None:
    plain, _ = ran(tmp_path, fake, "plain", concurrency=SERIAL)
    with served(FakeServer(token_s=0.001, **fault)) as faulty:
        patient = Patience(retries=20, backoff_s=0.001, deadline_s=30.0)
        outcome, _ = ran(tmp_path, faulty, "faulty", **FILLS, concurrency=SERIAL, patience=patient)
    assert not outcome.failures
    assert outcome.values == plain.values


def test_a_server_that_dies_leaves_every_workflow_finished_or_failed_for_a_reason(
    fake: FakeServer, tmp_path: Path
) -> None:
    given: dict[str, Any] = {"workload": "dynbranch_react", "workflows": 10}
    plain, _ = ran(tmp_path, fake, "plain", **given)
    with served(FakeServer(token_s=0.002, dead=60)) as dying:
        outcome, log = ran(tmp_path, dying, "dying", **given, **MISSES, patience=Patience(1, 0.01, 5.0))
    assert outcome.completed + len(outcome.failures) == 10
    assert outcome.failures
    assert all("stage" in reason and "2 tries" in reason for reason in outcome.failures.values())
    assert all(plain.values[s] == v for s, v in outcome.values.items())
    fates, status = names(log, "fills", "fate"), log.column("fills", "status").tolist()
    assert all(s == FINISHED for f, s in zip(fates, status, strict=True) if f == "promoted")


def test_a_refused_fill_costs_nothing_but_itself(fake: FakeServer, tmp_path: Path) -> None:
    plain, _ = ran(tmp_path, fake, "plain", concurrency=SERIAL)
    with served(FakeServer(first_fill_fails=True)) as picky:
        outcome, log = ran(tmp_path, picky, "picky", **FILLS, concurrency=SERIAL)
    assert outcome.values == plain.values
    assert names(log, "fills", "fate").count("failed") == 1
    assert outcome.fill_failures == {"status 400: no priorities here": 1}
    assert "no priorities here" in printed(tmp_path / "picky")


def test_when_the_server_is_gone_the_rest_is_not_begun(tmp_path: Path) -> None:
    with served(FakeServer(dead=20)) as dying:
        outcome, log = ran(
            tmp_path, dying, "gone", workload="dynbranch_react", workflows=60, patience=Patience(0, 0.01, 5.0)
        )  # fmt: skip
    assert outcome.not_begun > 30
    assert outcome.completed + len(outcome.failures) + outcome.not_begun == 60
    assert log.rows("workflows") == outcome.completed + len(outcome.failures)
    assert "not begun" in printed(tmp_path / "gone")


def test_a_deadline_ends_the_workflow_with_that_reason(tmp_path: Path) -> None:
    with served(FakeServer(token_s=0.5)) as slow:
        outcome, _ = ran(tmp_path, slow, workflows=2, patience=Patience(0, 0.01, 0.2))
    assert len(outcome.failures) == 2
    assert all("no answer within 0.2 s" in reason for reason in outcome.failures.values())


def test_the_journal_gives_a_fresh_controller_the_same_commands(fake: FakeServer, tmp_path: Path) -> None:
    given = settings(fake, **MISSES, reuse="subgraph")
    run(given, tmp_path / "run")
    journal = tmp_path / "run" / "journal.jsonl"
    kinds = {type(command) for _, commands in read_journal(journal) for command in commands}
    assert {ev.Launch, ev.RunFill, ev.Cancel, ev.Promote, ev.Miss, ev.Settle} <= kinds
    assert first_difference(journal, controller_of(given, workload_of(given))) is None
    other = replace(given, gate_options={"k": "1"})
    assert first_difference(journal, controller_of(other, workload_of(other))) is not None


@dataclass(frozen=True)
class Raises(Gate[list[int]]):
    """Works for a while, and then raises."""

    after: int = 12

    def new_state(self, host: HostInfo) -> list[int]:
        return []

    def open(self, state: list[int], branch: BranchView, load: LoadView) -> bool:
        return True

    def admit(
        self, state: list[int], branch: BranchView, options: Sequence[FillOption], load: LoadView
    ) -> Admission:
        state.append(1)
        if len(state) > self.after:
            raise RuntimeError("no more")
        return Admission(rows=tuple(range(min(len(options), 2))))


@pytest.mark.parametrize("after", [0, 1, 5, 12])
def test_a_policy_that_raises_is_left_behind_and_changes_no_value(
    after: int, fake: FakeServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plain, _ = ran(tmp_path, fake, "plain", concurrency=SERIAL)
    monkeypatch.setattr(AgentSettings, "load_gate", lambda self: Raises(after))
    monkeypatch.setattr(session.registry, "describe", str)
    outcome, log = ran(tmp_path, fake, "raising", **FILLS, concurrency=SERIAL)
    assert outcome.broken == "RuntimeError: no more"
    assert outcome.completed == 6
    assert outcome.values == plain.values
    assert log.column("workflows", "finished_ns").min() > 0
    assert len(set(log.column("fills", "fill").tolist())) == outcome.fills  # all have a row


def test_the_load_of_others_is_seen(tmp_path: Path) -> None:
    with served(FakeServer(token_s=0.003)) as server:
        server.running = 5  # somebody else's
        run(settings(server, **FILLS, slots=10), tmp_path / "run")
    seqs = [
        e.load.canonical_seqs
        for e, _ in read_journal(tmp_path / "run" / "journal.jsonl")
        if isinstance(e, ev.Opened)
    ]
    assert max(seqs) >= 5


def test_a_server_without_metrics_is_enough(tmp_path: Path) -> None:
    with served(FakeServer(metrics=False)) as server:
        outcome, _ = ran(tmp_path, server, **FILLS)
    assert outcome.completed == 6
    assert outcome.polls == 0


def test_requests_say_who_sends_them_only_when_asked_to(tmp_path: Path) -> None:
    with served(FakeServer()) as server:
        run(settings(server), tmp_path / "quiet")
        assert not any("vllm_xargs" in body for body in server.bodies)
        server.bodies.clear()
        run(settings(server, signals=True), tmp_path / "loud")
        senders = [body["vllm_xargs"] for body in server.bodies]
    assert {s["wf_id"] for s in senders} == set(range(6))
    last = [s["wf_id"] for s in senders if s.get("wf_finished")]
    assert len(set(last)) == len(last)


def test_the_key_goes_to_the_server_and_nowhere_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "sk-very-secret")
    with served(FakeServer()) as server:
        run(settings(server, **FILLS, reuse="subgraph", store=tmp_path / "store.sqlite"), tmp_path / "run")
    for folder, _, files in os.walk(tmp_path):
        assert all(b"very-secret" not in (Path(folder) / name).read_bytes() for name in files)
    assert "very-secret" not in "".join(capsys.readouterr())


def test_values_on_disk_are_those_of_the_run(fake: FakeServer, tmp_path: Path) -> None:
    outcome, _ = ran(tmp_path, fake)
    kept = json.loads((tmp_path / "run" / "values.json").read_text())
    assert {int(s): v for s, v in kept.items()} == outcome.values


def test_the_timeline_shows_every_fill_with_its_fate(fake: FakeServer, tmp_path: Path) -> None:
    _, log = ran(tmp_path, fake, **FILLS)
    with gzip.open(tmp_path / "run" / "timeline.json.gz") as file:
        shown = [e["name"] for e in json.load(file)["traceEvents"] if e["ph"] == "b"]
    assert sum(name.startswith("fill ") for name in shown) == log.rows("fills")
    assert any(name.endswith("promoted") for name in shown)
