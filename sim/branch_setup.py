"""A run with branches: the controller, what its policies are told before it begins, and its host."""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from policies.api import HostInfo
from policies.branch_hosting.recorded import RecordedChoices
from policies.branch_hosting.views import BranchViews
from policies.branching import Controller
from policies.gates.never import Never
from policies.guards import Guards
from policies.registry import PolicySet
from policies.views import Slowdown
from sim.branches import SimulatedBranches
from sim.clock import Clock
from sim.config import SimConfig
from sim.log import RunLog
from sim.slowdown import canonical_shape, probe
from traces.schema import Workload

if TYPE_CHECKING:
    from sim.cluster import Cluster
    from sim.flow import Flow


def speculates(policies: PolicySet) -> bool:
    """Say whether anything is ever filled or reused: without, canonical flow asks nobody."""
    return policies.reuse.active() or not isinstance(policies.gate, Never)


def shares_device(policies: PolicySet, config: SimConfig) -> bool:
    """Say whether a drafter of candidates takes its part of every replica's KV pool."""
    return config.drafter_device.place == "colocated" and not isinstance(policies.gate, Never)


class ProbedSlowdown(Slowdown):
    """A surface that is probed when a gate first asks for it; gates that do not price never do."""

    def __init__(self, make: Callable[[], Slowdown]) -> None:
        object.__setattr__(self, "_surface", functools.cache(make))

    def __getattribute__(self, name: str) -> Any:
        surface = object.__getattribute__(self, "_surface")
        return getattr(surface(), name) if name in ("fills", "context_tokens", "ratio", "at") else surface


def for_branches(
    workload: Workload, policies: PolicySet, host: HostInfo, config: SimConfig, kv_blocks: int
) -> HostInfo:
    """Return what gates, candidate drafters and reuse policies are told, truth only where they declare the need."""
    slowdown = None
    if not isinstance(policies.gate, Never):
        shape = canonical_shape(workload)
        slowdown = ProbedSlowdown(lambda: probe(host.profile, config.engine, kv_blocks, shape))
    needs = policies.gate.needs | policies.candidate.needs | policies.reuse.needs
    oracle = RecordedChoices(workload) if "oracle" in needs and workload.branches is not None else None
    return replace(host, slowdown=slowdown, branch_oracle=oracle)


def simulated_branches(
    env: Clock,
    workload: Workload,
    policies: PolicySet,
    host: HostInfo,
    cluster: Cluster,
    flow: Flow,
    log: RunLog,
    config: SimConfig,
    guards: Guards | None,
) -> SimulatedBranches:
    """Return the world of a run that fills or reuses, with its host."""
    controller = Controller(policies.gate, policies.candidate, policies.reuse, host, config.branching, guards)
    views = BranchViews(workload, scopes=policies.reuse.active())
    colocated = config.drafter_device.place == "colocated"
    return SimulatedBranches(env, workload, views, controller, cluster, flow, log, colocated=colocated)
