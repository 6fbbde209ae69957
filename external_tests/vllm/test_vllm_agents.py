"""Workflows against a real server: fills launched, promoted and cancelled, and not one answer changed.

The server runs fp32 on the CPU, so that an answer does not depend on what was computed beside it. It is ours inside,
too: an evictor of this project orders its KV pool by who the workflow host says it is.
"""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from live.agents.journal import first_difference
from live.agents.load import gauge
from live.agents.server import Patience
from live.agents.session import Outcome, controller_of, run, workload_of
from live.agents.settings import AgentSettings
from live.vllm.settings import EvictionSettings
from policies.branching import BranchingConfig
from traces.branches import StageFlag
from traces.runlog import RunLog, read_run
from traces.tables import REQUEST_STATUS

FINISHED, ABORTED = REQUEST_STATUS.index("finished"), REQUEST_STATUS.index("aborted")
ENVIRONMENT = {
    "HF_HUB_OFFLINE": "1", "TRANSFORMERS_OFFLINE": "1", "VLLM_NO_USAGE_STATS": "1", "DO_NOT_TRACK": "1",
    "VLLM_CPU_KVCACHE_SPACE": "1", "VLLM_CPU_OMP_THREADS_BIND": "nobind", "VLLM_PLUGINS": "", "OMP_NUM_THREADS": "1",
    "PYTHONHASHSEED": "0", "VLLM_LOGGING_LEVEL": "WARNING",
}  # fmt: skip


@dataclass
class Served:
    """A server in a process of its own."""

    url: str
    process: subprocess.Popen[bytes]

    def total(self, name: str) -> float:
        with urllib.request.urlopen(f"{self.url}/metrics", timeout=10) as answer:
            return gauge(answer.read().decode(), name) or 0.0

    def kill(self) -> None:
        """End the server and its engine, at once."""
        os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait(timeout=60)


@contextmanager
def vllm_server(site: Path, model: Path, agents: tuple[str, ...], log: Path) -> Iterator[Served]:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    evictor = EvictionSettings(evictor="lifecycle", agents=agents, log_dir=str(site / f"engine-{port}"))
    with log.open("wb") as output:
        process = subprocess.Popen(
            [sys.executable, "-m", "vllm.entrypoints.openai.api_server", "--model", str(model), "--served-model-name",
             "tiny", "--host", "127.0.0.1", "--port", str(port), "--dtype", "float32", "--enforce-eager",
             "--block-size", "32", "--num-gpu-blocks-override", "400", "--max-model-len", "2048", "--max-num-seqs",
             "8", "--scheduling-policy", "priority", "--seed", "0", "--no-async-scheduling",
             "--kv-transfer-config", json.dumps(evictor.transfer_config())],
            cwd=site, env={**os.environ, **ENVIRONMENT, "PYTHONPATH": str(site)}, stdout=output, stderr=output,
            start_new_session=True,
        )  # fmt: skip
    served = Served(f"http://127.0.0.1:{port}", process)
    try:
        limit = time.monotonic() + 300
        while True:
            try:
                with urllib.request.urlopen(f"{served.url}/health", timeout=5):
                    break
            except OSError:
                assert process.poll() is None, log.read_text()[-3000:]
                assert time.monotonic() < limit, log.read_text()[-3000:]
                time.sleep(0.5)
        yield served
    finally:
        if process.poll() is None:
            served.kill()


def settings(url: str, **given: object) -> AgentSettings:
    base: dict[str, object] = {
        "workflows": 8, "concurrency": 1, "scale": 16.0, "output_scale": 1.0, "time_scale": 0.05, "signals": True,
        "patience": Patience(retries=1, backoff_s=0.1, deadline_s=120.0),
    }  # fmt: skip
    return AgentSettings("dynbranch_routing", url, **{**base, **given})  # type: ignore[arg-type]


FILLS: dict[str, object] = {
    "gate": "fanout", "gate_options": {"k": 2}, "candidate": "oracle",
    "candidate_options": {"accuracy": 0.6, "coverage": 0.8}, "branching": BranchingConfig(priority="low"),
}  # fmt: skip


@dataclass
class Runs:
    """The same workflows with speculation off and on; tokens that the server generated for each."""

    given: AgentSettings
    out: Path
    plain: Outcome
    fast: Outcome
    plain_tokens: float
    fast_tokens: float
    log: RunLog


@pytest.fixture(scope="module")
def agents() -> tuple[str, ...]:
    return workload_of(settings("http://unused")).agents


@pytest.fixture(scope="module")
def server(
    site: Path, model: Path, agents: tuple[str, ...], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Served]:
    with vllm_server(site, model, agents, tmp_path_factory.mktemp("server") / "log") as served:
        yield served


@pytest.fixture(scope="module")
def runs(server: Served, tmp_path_factory: pytest.TempPathFactory) -> Runs:
    out = tmp_path_factory.mktemp("agents")
    before = server.total("generation_tokens_total")
    plain = run(settings(server.url), out / "plain")
    between = server.total("generation_tokens_total")
    given = settings(server.url, **FILLS, reuse="subgraph")
    fast = run(given, out / "fast")
    after = server.total("generation_tokens_total")
    log = read_run(out / "fast")
    return Runs(given, out / "fast", plain, fast, between - before, after - between, log)


def fates(log: RunLog) -> list[str]:
    found: list[str] = log.table("fills", ("fate",))["fate"].to_pylist()
    return found


def test_every_answer_is_the_one_without_speculation(runs: Runs) -> None:
    assert runs.plain.completed == runs.fast.completed == 8
    assert not runs.fast.broken
    assert runs.fast.unsafe == 0
    assert runs.fast.values == runs.plain.values


def test_answers_are_neither_constant_nor_few(runs: Runs) -> None:
    assert len(set(runs.plain.values.values())) > len(runs.plain.values) // 2


def test_fills_are_launched_promoted_and_cancelled(runs: Runs) -> None:
    found = Counter(fates(runs.log))
    assert runs.fast.fills > 10
    assert found["promoted"] > 3
    assert found["unselected"] + found["wrong argument"] > 3


def test_the_servers_own_counter_shows_cancelled_fills_cut_short(runs: Runs) -> None:
    assert runs.plain_tokens == runs.plain.output_tokens
    whole = runs.fast.output_tokens + runs.fast.fill_output_tokens
    called = runs.log.column("fills", "replica") >= 0
    cut = called & (runs.log.column("fills", "status") == ABORTED)
    assert cut.sum() > 3
    workload = workload_of(runs.given)
    asked = workload.output_tokens[runs.log.column("fills", "stage")[cut]].sum()
    spent = runs.fast_tokens - whole
    assert 0 < spent < asked


def test_a_mutating_stage_never_ran_early(runs: Runs) -> None:
    branches = workload_of(runs.given).branches
    assert branches is not None
    mutating = (branches.stage_flags & StageFlag.MUTATING) != 0
    assert mutating.any()
    assert not mutating[runs.log.column("fills", "stage")].any()


def test_load_is_read_from_the_servers_metrics(runs: Runs) -> None:
    assert runs.fast.polls > 0


def test_the_journal_gives_a_fresh_controller_the_same_commands(runs: Runs) -> None:
    fresh = controller_of(runs.given, workload_of(runs.given))
    assert first_difference(runs.out / "journal.jsonl", fresh) is None


def test_a_server_killed_in_the_middle_leaves_no_workflow_in_doubt(
    site: Path, model: Path, agents: tuple[str, ...], runs: Runs, tmp_path: Path
) -> None:
    with vllm_server(site, model, agents, tmp_path / "log") as doomed:
        given = settings(doomed.url, **FILLS, concurrency=2)

        def progress(done: int, total: int) -> None:
            if done == 3:
                doomed.kill()

        outcome = run(given, tmp_path / "run", progress)
    assert outcome.completed + len(outcome.failures) == 8
    assert outcome.completed >= 3
    assert outcome.failures
    assert all(re.match(r"stage \d+: .+ \(2 tries\)$", reason) for reason in outcome.failures.values())
    log = read_run(tmp_path / "run")
    status = log.column("fills", "status").tolist()
    assert all(s == FINISHED for f, s in zip(fates(log), status, strict=True) if f == "promoted")
    unfinished = log.column("workflows", "workflow")[log.column("workflows", "finished_ns") < 0]
    assert set(unfinished.tolist()) == set(outcome.failures)
