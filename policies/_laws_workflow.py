"""Laws of the families that decide around requests: routers, gates, candidates, reuse, predictors."""

from __future__ import annotations

import copy
import pickle
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np

from policies.api import CandidateDrafter, Gate, HostInfo, Predictor, ReusePolicy, Router
from policies.views import (
    BranchOutcome,
    BranchView,
    Candidate,
    LoadView,
    RequestView,
    StageView,
    WorkflowView,
)
from traces import draws


@dataclass(frozen=True)
class ToyReplica:
    """One engine as a router sees it, read-only."""

    index: int
    running: int
    waiting: int
    queued_tokens: int
    kv_tokens_active: int
    cached: int

    def cached_tokens(self, request: RequestView) -> int:
        """Return what is cached of any request, at most its prompt."""
        return min(self.cached, request.prompt_tokens)


def check_router(policy: Router[Any], host: HostInfo, seeds: Iterable[int]) -> None:
    """An index of a replica, a whole priority, equal reruns, and any number of replicas from one."""
    for seed in seeds:
        for count in (1, 2, 5):
            runs = []
            for _ in range(2):
                state = policy.new_state(host)
                out = []
                for i in range(40):
                    bits = draws.bits(seed, "toy routed", i)
                    request = RequestView(i, i % 10 - 1, i // 4, bits % 3, i * 1000, 1 + bits % 500)
                    replicas = [_replica(seed, i, k) for k in range(count)]
                    pick = policy.pick(state, request, replicas)
                    assert isinstance(pick, int), f"seed {seed}, request {i}: pick returned {pick!r}"
                    assert 0 <= pick < count, (
                        f"seed {seed}, request {i}: pick returned {pick} of {count} replicas"
                    )
                    priority = policy.priority(state, request)
                    assert isinstance(priority, int), (
                        f"seed {seed}, request {i}: priority returned {priority!r}"
                    )
                    out.append((pick, priority))
                runs.append(out)
            assert runs[0] == runs[1], f"seed {seed}: equal histories, other replicas"


def _replica(seed: int, i: int, k: int) -> ToyReplica:
    bits = draws.bits(seed, "toy replica", i, k)
    return ToyReplica(k, bits % 40, bits >> 8 & 31, bits >> 16 & 4095, bits >> 32 & 65535, bits >> 48 & 511)


def check_gate(policy: Gate[Any], host: HostInfo, seeds: Iterable[int]) -> None:
    """Yes or no; distinct rows of the candidates; admit leaves the state alone; equal reruns."""
    for seed in seeds:
        runs = []
        for _ in range(2):
            state = policy.new_state(host)
            out: list[object] = []
            for i in range(40):
                branch, load, candidates = _branch(seed, i), _load(seed, i), _candidates(seed, i)
                where = f"seed {seed}, branch {i}"
                policy.probe(state, load)
                opened = policy.open(state, branch, load)
                assert isinstance(opened, bool), f"{where}: open returned {opened!r}"
                before = _frozen(state)
                rows = policy.admit(state, branch, candidates, load).rows
                assert _frozen(state) == before, f"{where}: admit changed the state"
                assert len(set(rows)) == len(rows), f"{where}: admitted {rows}, one of them twice"
                assert all(0 <= r < len(candidates) for r in rows), (
                    f"{where}: admitted {rows} of {len(candidates)}"
                )
                filled = tuple(candidates[r] for r in rows)
                won = tuple(c.outcome for c in filled if c.outcome == i % 4)
                policy.settle(state, BranchOutcome(branch, i % 4, opened, filled, won, 5, 90, 30, 0))
                out.append((opened, rows))
            runs.append(out)
        assert runs[0] == runs[1], f"seed {seed}: equal histories, other decisions"


def check_candidates(policy: CandidateDrafter[Any], host: HostInfo, seeds: Iterable[int]) -> None:
    """At most `limit` distinct outcomes, ranked 0, 1, ..., with scores in [0, 1]; equal reruns."""
    for seed in seeds:
        runs = []
        for _ in range(2):
            state = policy.new_state(host)
            out = []
            for i in range(40):
                branch, limit = _branch(seed, i), draws.bits(seed, "toy limit", i) % 5
                got = list(policy.propose(state, branch, limit))
                where = f"seed {seed}, branch {i}: {got}"
                assert len(got) <= limit, f"{where}: the limit is {limit}"
                assert [c.rank for c in got] == list(range(len(got))), f"{where}: ranks must be 0, 1, ..."
                assert len({c.outcome for c in got}) == len(got), f"{where}: an outcome twice"
                assert all(0 <= c.score <= 1 for c in got), f"{where}: a score is outside [0, 1]"
                policy.observe(state, branch, i % 4)
                out.append(got)
            runs.append(out)
        assert runs[0] == runs[1], f"seed {seed}: equal histories, other candidates"


def check_reuse(policy: ReusePolicy[Any], host: HostInfo, seeds: Iterable[int]) -> None:
    """Equal stages get equal names, whatever their workflow and number; names are distinct; equal reruns."""
    for seed in seeds:
        state, other = policy.new_state(host), policy.new_state(host)
        for i in range(40):
            bits = draws.bits(seed, "toy stage", i)
            stage = StageView(i, i, bits % 3, bits % 5, bits >> 8 & 7, bits >> 16 & 1, ((bits >> 20 & 3, 0),))
            twin = StageView(i + 1000, i + 1000, *_content(stage))
            names = list(policy.names(state, stage))
            where = f"seed {seed}, stage {i}: names {names}"
            assert len(set(names)) == len(names), f"{where}: one twice"
            assert names == list(policy.names(other, stage)), f"{where}: equal histories, other names"
            assert names == list(policy.names(state, twin)), f"{where}: an equal stage has other names"
            for name in names:
                policy.store(state, stage, name)
                policy.store(other, stage, name)
            policy.invalidate(state, bits >> 20 & 3, i)
            policy.invalidate(other, bits >> 20 & 3, i)


def _content(stage: StageView) -> tuple[int, int, int, int, tuple[tuple[int, int], ...]]:
    return stage.agent, stage.fingerprint, stage.rendered_input, stage.parameters, stage.read_set


def check_predictor(policy: Predictor[Any], host: HostInfo, seeds: Iterable[int]) -> None:
    """float32[K, agents + 1], rows are distributions, at least one if active; equal reruns."""
    width = len(host.agents) + 1
    for seed in seeds:
        runs = []
        for _ in range(2):
            state = policy.new_state(host)
            out = []
            for i in range(40):
                past = tuple(draws.bits(seed, "toy agent", i % 5, k) % (width - 1) for k in range(1 + i // 5))
                workflow = WorkflowView(i % 5, past, i * 1000)
                policy.observe(state, workflow)
                got = policy.forecast(state, workflow)
                where = f"seed {seed}, forecast {i}"
                assert got.dtype == np.float32, f"{where}: {got.dtype}, expected float32"
                assert got.ndim == 2, f"{where}: shape {got.shape}, expected [K, {width}]"
                assert got.shape[1] == width, f"{where}: shape {got.shape}, expected [K, {width}]"
                assert len(got) or not policy.active(), f"{where}: no row, though active() is True"
                assert np.all(got >= 0), f"{where}: a negative probability"
                assert np.allclose(got.sum(axis=1), 1, atol=1e-4), f"{where}: rows sum to {got.sum(axis=1)}"
                out.append(got.tobytes())
                pair = [WorkflowView(i % 5, past[: 1 + i % 3], i * 1000), workflow]
                batch = policy.forecasts(state, pair)
                assert len(batch) == 2, f"{where}: {len(batch)} forecasts of a batch of 2"
                for one, view in zip(batch, pair, strict=True):
                    alone = policy.forecast(state, view)
                    assert np.allclose(one, alone, atol=1e-5), f"{where}: in a batch it is another than alone"
                if i >= 35:
                    policy.workflow_finished(state, workflow)
            runs.append(out)
        assert runs[0] == runs[1], f"seed {seed}: equal histories, other forecasts"


def _branch(seed: int, i: int) -> BranchView:
    bits = draws.bits(seed, "toy branch", i)
    history = tuple(bits >> s & 3 for s in range(8, 8 + 2 * (i % 4), 2))
    return BranchView(i // 4, i, bits % 6, bits >> 4 & 1, i * 10**9, history, (0, 1, 2, 3))


def _load(seed: int, i: int) -> LoadView:
    bits = draws.bits(seed, "toy load", i)
    return LoadView(i * 10**9, bits % 9, bits >> 8 & 8191, 8192, draws.uniform(seed, "toy busy", i))


def _candidates(seed: int, i: int) -> list[Candidate]:
    count = draws.bits(seed, "toy candidates", i) % 5
    return [Candidate(k, k, 1 / (2 + k), k) for k in range(count)]


def _frozen(state: Any) -> bytes:
    """Return the state's content, to compare before and after."""
    return pickle.dumps(copy.deepcopy(state))
