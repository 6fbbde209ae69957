"""One controller, two hosts: on equal events the same commands, and in equal time the same events."""

from __future__ import annotations

import asyncio
import heapq
import selectors
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import fields, is_dataclass
from io import StringIO
from pathlib import Path
from typing import Any

import pytest
from fake_openai import FakeServer, served

from live.agents.calls import Call
from live.agents.clock import Clock
from live.agents.flow import Flow
from live.agents.journal import JournalledController, first_difference, read_journal
from live.agents.load import ServerLoad
from live.agents.session import controller_of, run, workload_of
from live.agents.settings import AgentSettings
from live.agents.world import LiveBranches
from live.recorder import TableRecorder
from policies.branch_hosting.views import BranchViews
from policies.branching import BranchingConfig, Controller
from policies.registry import PolicySet, load
from sim.config import EngineConfig, LoadConfig, SimConfig
from sim.log import MemorySink
from sim.run import simulate
from sim.worlds import flat_profile
from traces.rendering import Rendering
from traces.schema import Workload
from traces.tables import REQUEST_STATUS

WORKFLOWS, CONCURRENCY, KV_BLOCKS = 12, 3, 20_000
BRANCHING = BranchingConfig(priority="low", kv_share=1.0, fills_max=64)


def policies(accuracy: float, reuse: str) -> PolicySet:
    return PolicySet(
        gate=load("gates", "fanout", {"k": 2}),  # type: ignore[arg-type]
        candidate=load("candidates", "oracle", {"accuracy": accuracy, "coverage": 0.8}),  # type: ignore[arg-type]
        reuse=load("reuse", reuse),  # type: ignore[arg-type]
    )


def simulated(
    workload: Workload, given: PolicySet, monkeypatch: pytest.MonkeyPatch
) -> tuple[str, dict[str, Any], Controller]:
    """Run the simulator with a journal; return the journal, the tables and the controller."""
    journal = StringIO()
    made: list[Controller] = []

    class Writing(JournalledController):
        def __init__(self, *args: Any, **kwargs: Any) -> None:
            super().__init__(*args, **kwargs)
            self.journal = journal
            made.append(self)

    # A step takes a whole number of microseconds, so that every time is a whole number of nanoseconds, as live.
    profile = flat_profile(7_000_000)
    config = SimConfig(
        EngineConfig(max_num_seqs=64, fast_forward=True),
        load=LoadConfig(concurrency=CONCURRENCY),
        branching=BRANCHING,
    )
    monkeypatch.setattr("sim.branch_setup.Controller", Writing)
    with MemorySink() as sink:
        simulate(workload, profile, given, config, sink, kv_blocks=KV_BLOCKS)
    tables = {name: table.to_pydict() for name, table in sink.tables().items()}
    return journal.getvalue(), tables, made[0]


@pytest.fixture(scope="module")
def fake() -> Iterator[FakeServer]:
    with served(FakeServer()) as server:
        yield server


def agent_settings(server: FakeServer, workload: str, accuracy: float, reuse: str) -> AgentSettings:
    options = {"accuracy": accuracy, "coverage": 0.8}
    return AgentSettings(
        workload, server.url, workflows=WORKFLOWS, concurrency=CONCURRENCY, gate="fanout", gate_options={"k": 2},
        candidate="oracle", candidate_options=options, reuse=reuse, branching=BRANCHING, time_scale=0.001,
        kv_tokens=KV_BLOCKS * 16, slots=64,
    )  # fmt: skip


@pytest.mark.parametrize("workload", ["dynbranch_routing", "dynbranch_react"])
@pytest.mark.parametrize("reuse", ["none", "subgraph"])
def test_events_of_either_host_get_the_same_commands_from_the_others_controller(
    workload: str, reuse: str, fake: FakeServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    given = agent_settings(fake, workload, 0.5, reuse)
    run(given, tmp_path / "live")
    text, _, _ = simulated(workload_of(given), policies(0.5, reuse), monkeypatch)
    (tmp_path / "simulated.jsonl").write_text(text)
    live_controller = controller_of(given, workload_of(given))
    assert first_difference(tmp_path / "simulated.jsonl", live_controller) is None
    _, _, like = simulated(workload_of(given), policies(0.5, reuse), monkeypatch)
    host = like.book.candidate_state.host
    of_simulator = Controller(like.gate, like.candidate, like.index.policy, host, like.config)
    assert first_difference(tmp_path / "live" / "journal.jsonl", of_simulator) is None


class VirtualLoop(asyncio.SelectorEventLoop):
    """An event loop in which only waiting takes time, and that none: whole ns, timers of one instant in order."""

    def __init__(self) -> None:
        self._now_ns = 0
        self._timers = 0
        loop = self

        class Jumping(selectors.SelectSelector):
            def select(self, timeout: float | None = None) -> Any:
                loop._now_ns += round((timeout or 0.0) * 1e9)
                return super().select(0)

        super().__init__(Jumping())

    def time(self) -> float:
        return self._now_ns / 1e9

    def call_later(self, delay: float, callback: Any, *args: Any, context: Any = None) -> asyncio.TimerHandle:
        self._timers += 1
        timer = _Timer(self._now_ns + round(delay * 1e9), self._timers, callback, args, self, context)
        heapq.heappush(self._scheduled, timer)  # type: ignore[attr-defined]
        timer._scheduled = True  # type: ignore[attr-defined]
        return timer


class _Timer(asyncio.TimerHandle):
    def __init__(self, due_ns: int, number: int, callback: Any, args: Any, loop: Any, context: Any) -> None:
        super().__init__(due_ns / 1e9, callback, args, loop, context)
        self.order = due_ns, number

    def __lt__(self, other: Any) -> bool:
        return bool(self.order < other.order)


class RecordedCaller:
    """Answers as the simulator's engines did: each stage after as long, with what it truly returns."""

    def __init__(self, workload: Workload, tables: Mapping[str, Mapping[str, list[int]]]) -> None:
        self._rendering = Rendering(workload)
        self._values: dict[int, int] = {}
        self._made: Counter[tuple[int, bool]] = Counter()
        self._took_ns: dict[tuple[int, bool, int], int] = {}
        r, f = tables["requests"], tables["fills"]
        for stage, start, end in zip(r["stage"], r["released_ns"], r["finished_ns"], strict=True):
            self._took_ns[stage, False, 0] = end - start
        rows = sorted(
            zip(f["started_ns"], f["fill"], f["stage"], f["replica"], f["ended_ns"], f["status"], strict=True)
        )
        seen: Counter[int] = Counter()
        for start, _, stage, replica, end, status in rows:
            if replica >= 0:
                finished = status == 0
                self._took_ns[stage, True, seen[stage]] = end - start if finished else 10**15
                seen[stage] += 1

    def call(
        self,
        stage: int,
        values: Mapping[int, int],
        reads: tuple[tuple[int, int], ...],
        last: bool = False,
        *,
        fill: bool = False,
        low: bool = False,
    ) -> Call:
        call = Call(stage, len(self._values), "", 1, None, 0, fill, low)
        rendered = self._rendering.rendered(stage, values)
        self._values[id(call)] = self._rendering.value(stage, rendered, reads)
        return call

    async def answer(self, call: Call) -> int | None:
        number = self._made[call.stage, call.fill]
        self._made[call.stage, call.fill] += 1
        await asyncio.sleep(self._took_ns[call.stage, call.fill, number] / 1e9)
        return self._values[id(call)]


# What a client of a server cannot see: load, what is in its prefix cache, how long its engine had a request.
UNSEEN = {"load", "cached_tokens", "engine_ns", "wasted_ns"}


def seen(x: Any) -> Any:
    """Return an event or a command as nested values, times and views included, without what no client can see."""
    if is_dataclass(x) and not isinstance(x, type):
        return type(x).__name__, *(seen(getattr(x, f.name)) for f in fields(x) if f.name not in UNSEEN)
    if isinstance(x, tuple | list):
        return [seen(v) for v in x]
    return x


@pytest.mark.parametrize(
    "workload", ["dynbranch_routing", "dynbranch_react", "dynbranch_hci", "dynbranch_subagent"]
)
@pytest.mark.parametrize("reuse", ["none", "subgraph"])
def test_in_equal_time_the_live_host_tells_the_controller_what_the_simulator_told_it(
    workload: str, reuse: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    taken = workload_of(agent_settings(FakeServer(), workload, 0.5, reuse))
    text, tables, like = simulated(taken, policies(0.5, reuse), monkeypatch)
    assert REQUEST_STATUS.index("rejected") not in tables["requests"]["status"]
    journal = StringIO()

    async def live() -> None:
        load, clock, recorder = ServerLoad(64), Clock(), TableRecorder()
        controller = JournalledController(
            like.gate, like.candidate, like.index.policy, like.book.candidate_state.host, BRANCHING
        )
        controller.journal = journal
        views = BranchViews(taken, scopes=controller.index.active)
        caller: Any = RecordedCaller(taken, tables)
        flow = Flow(taken, views.rendering, caller, clock, recorder, CONCURRENCY, 0, lambda done, total: None)
        flow.host = LiveBranches(taken, views, controller, caller, flow, clock, load, recorder)
        flow.host.start()
        flow.start()
        await flow.ended.wait()
        assert not flow.host.broken
        assert flow.completed == flow.total

    loop = VirtualLoop()
    try:
        loop.run_until_complete(live())
    finally:
        loop.close()
    (tmp_path / "sim").write_text(text)
    (tmp_path / "live").write_text(journal.getvalue())
    expected = [seen(row) for row in read_journal(tmp_path / "sim")]
    got = [seen(row) for row in read_journal(tmp_path / "live")]
    promoted = sum(c[0] in ("Promote", "Serve") for _, commands in expected for c in commands)
    assert promoted > 5
    for i, (a, b) in enumerate(zip(expected, got, strict=False)):
        assert a == b, f"event {i}"
    assert len(expected) == len(got)
