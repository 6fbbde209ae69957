"""Laws of the families that decide around requests: routers and predictors."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np

from policies.api import HostInfo, Predictor, Router
from policies.views import RequestView, WorkflowView
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
