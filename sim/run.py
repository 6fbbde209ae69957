"""One run: a workload, a profile, a set of policies and a configuration in; the run log out."""

from __future__ import annotations

import gc
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, cast

import pyarrow as pa

from policies.api import Drafter, Evictor, Predictor, Prefetcher
from policies.costs import Profile
from policies.guards import Guards
from policies.registry import PolicySet, load
from policies.views import HostInfo
from sim.accept import Acceptance
from sim.branch_setup import for_branches, shares_device, simulated_branches, speculates
from sim.check import check_engine
from sim.clock import PS_PER_NS, PS_PER_S, Clock
from sim.cluster import Cluster
from sim.config import SimConfig
from sim.engine import Engine
from sim.flow import Flow
from sim.graphs import startup
from sim.kv.paths import PrefixPaths
from sim.kv.tiers import HostTier
from sim.log import MemorySink, RunLog, Sink
from sim.oracle import RecordedOracle
from sim.request import Request
from sim.speculate import Speculator
from traces.errors import InputError
from traces.schema import Workload

NS_PER_MS = 1_000_000
SERVED = frozenset({"oracle", "output_length"})


@dataclass(frozen=True)
class RunStats:
    """What a run came to.

    events              SimPy events processed
    fast_forward_ratio  share of steps that were not an event of their own
    prefetched_blocks, prefetched_blocks_used   counted on arrival, and once as used when a request hits them before
                        they are evicted
    graphs, graph_misses, graph_build_ms   CUDA graphs captured, those of them captured while serving, and what a
                        replica spends on graphs before it serves
    draft_ns            time the steps spent drafting
    verify_packed_ns, verify_prefill_ns   time that attention over drafts takes beyond plain decoding, under both
                        regimes (`Profile.verify_read_tokens`); the run's steps were priced with one of them
    drafting_steps      steps that verified a draft
    filled              fills launched
    spliced, unsafe     canonical stages given a result that they did not compute; of those, results that they would
                        not have computed (checked against the workload's truth function; never, unless a guard is off)
    notes               what a reader of the results must know
    """

    requests: int
    workflows: int
    completed: int
    incomplete: int
    rejected: int
    steps: int
    events: int
    fast_forward_ratio: float
    simulated_ns: int
    kv_blocks: int
    pcie_bytes: int
    prefetched_blocks: int = 0
    prefetched_blocks_used: int = 0
    graphs: int = 0
    graph_misses: int = 0
    graph_build_ms: int = 0
    notes: tuple[str, ...] = ()
    filled: int = 0
    spliced: int = 0
    unsafe: int = 0
    draft_ns: int = 0
    verify_packed_ns: int = 0
    verify_prefill_ns: int = 0
    drafting_steps: int = 0


def simulate(
    workload: Workload,
    profile: Profile,
    policies: PolicySet,
    config: SimConfig,
    sink: Sink,
    *,
    kv_blocks: int,
    progress: Callable[[int, int], None] | None = None,
    check: bool = False,
    guards: Guards | None = None,
) -> RunStats:
    """Run the simulation and write its log to `sink`. Deterministic in its arguments.

    kv_blocks: KV blocks of one replica (see `calibration.memory`). progress: called with (workflows done,
    all of them).
    check: verify every replica's books at every step (slow; raises AssertionError).
    guards: those of reuse and promotion, all on by default; for tests that turn one off.
    Raises InputError when a policy needs what a simulator cannot give or the load does not fit the workload.
    """
    missing = policies.needs() - SERVED
    if missing:
        raise InputError(f"the simulator cannot give what the policies need: {', '.join(sorted(missing))}")
    oracle = None
    paths = PrefixPaths(workload, config.engine.block_tokens)
    if "oracle" in _without_branches(policies).needs():  # what branches need, the trace says
        order = _admission_order(workload, profile, policies, config, kv_blocks)
        oracle = RecordedOracle(workload, paths, order)
    collecting = gc.isenabled()
    gc.disable()  # the model makes no reference cycles, and a collection walks every live object
    try:
        return _run(
            workload, profile, policies, config, sink, kv_blocks, progress, paths, oracle, check, guards
        )
    finally:
        if collecting:
            gc.enable()


def _run(
    workload: Workload,
    profile: Profile,
    policies: PolicySet,
    config: SimConfig,
    sink: Sink,
    kv_blocks: int,
    progress: Callable[[int, int], None] | None,
    paths: PrefixPaths,
    oracle: RecordedOracle | None,
    check: bool,
    guards: Guards | None,
) -> RunStats:
    engine = config.engine
    env = Clock(initial_time=0)
    engines: list[Engine] = []
    log = RunLog(sink, engine.block_tokens, lambda: min(e.settled_ns for e in engines))
    host_blocks = int(config.host_tier.ratio * kv_blocks)
    host = HostInfo(
        profile=profile,
        block_tokens=engine.block_tokens,
        capacity_tokens=kv_blocks * engine.block_tokens,
        host_capacity_tokens=host_blocks * engine.block_tokens,
        max_num_seqs=engine.max_num_seqs,
        max_num_batched_tokens=engine.max_num_batched_tokens,
        replicas=config.replicas,
        agents=workload.agents,
        seed=config.seed,
        oracle=oracle,
    )
    at_start = startup(policies.bucketer, host, profile, engine)
    if at_start.blocks:
        kv_blocks -= at_start.blocks
        if kv_blocks <= 0:
            raise InputError(
                f"engine.graph_memory=pool: {at_start.graphs} graphs take {at_start.blocks} KV blocks, the pool has "
                f"{kv_blocks + at_start.blocks}"
            )
        host = replace(host, capacity_tokens=kv_blocks * engine.block_tokens)
    cluster = Cluster(workload, policies, host, log, engines, on_step=engine.forecasts == "step")
    flow = Flow(env, workload, config.load, config.seed, cluster, log, progress)
    branches = None
    if shares_device(policies, config):
        kv_blocks -= int(kv_blocks * config.drafter_device.kv_share)
        host = replace(host, capacity_tokens=kv_blocks * engine.block_tokens)
    if speculates(policies):
        host = for_branches(workload, policies, host, config, kv_blocks)
        branches = flow.host = simulated_branches(
            env, workload, policies, host, cluster, flow, log, config, guards
        )
    counts = {"requests": 0, "rejected": 0}
    speculators: list[Speculator] = []

    def done(request: Request, finished: bool) -> None:
        if request.fill:
            assert branches is not None
            branches.fill_done(request, finished)
            return
        counts["requests"] += 1
        counts["rejected"] += not finished
        flow.request_done(request, finished)

    for index in range(config.replicas):
        if at_start.graphs:
            log.add("decisions", (0, index, "bucketers", "capture", -1, -1, at_start.build_ps // PS_PER_NS))
        tier = None
        if host_blocks:
            tier = HostTier(
                config.host_tier, host_blocks, engine.block_tokens * profile.kv_bytes_per_token, profile,
                host, paths,
            )  # fmt: skip
        speculator = None
        if policies.drafter.active():
            acceptance = Acceptance(workload, config.accept, config.seed, policies.drafter.acceptance())
            speculator = Speculator(
                policies.drafter, policies.budget, host, acceptance, profile, engine.block_tokens,
                regime=config.verify.attention, max_len=engine.max_model_len,
            )  # fmt: skip
            speculators.append(speculator)
        cluster.engines.append(
            Engine(
                env, index, engine, profile, host, policies.evictor, policies.bucketer, paths, kv_blocks,
                tier, log, done, lone=config.replicas == 1, oracle=oracle, speculator=speculator,
                prefetcher=policies.prefetcher, check=check_engine if check else None,
                fill_ended=None if branches is None else branches.fill_ended,
            )
        )  # fmt: skip
    _schedule_fault(env, config, cluster)
    if branches is not None:
        branches.host.start()
    flow.start()
    horizon = config.load.horizon_s
    if horizon is None:
        env.run(until=flow.ended)
    else:
        limit = env.timeout(round(horizon * PS_PER_S))
        env.run(until=limit | flow.ended)
    for replica in cluster.engines:
        replica.stop()
    flow.stop()
    if branches is not None:
        branches.host.stop()
        if check:
            branches.host.controller.check()
    log.close()
    steps = sum(e.steps for e in cluster.engines)
    stretches = sum(e.stretches for e in cluster.engines)
    notes = []
    if config.load.think_scale != 1.0:
        notes.append(f"waits scaled by load.think_scale={config.load.think_scale}")
    if policies.prefetcher.active() and not any(e.prefetch for e in cluster.engines):
        notes.append("nothing was prefetched: there is no host tier (host_tier.ratio=0) or no prefix cache")
    return RunStats(
        requests=counts["requests"],
        workflows=flow.total,
        completed=flow.completed,
        incomplete=flow.total - flow.completed,
        rejected=counts["rejected"],
        steps=steps,
        events=stretches,
        fast_forward_ratio=1.0 - stretches / steps if steps else 0.0,
        simulated_ns=int(env.now) // PS_PER_NS,
        kv_blocks=kv_blocks,
        graphs=at_start.graphs + sum(e.graphs.captured for e in cluster.engines),
        graph_build_ms=at_start.build_ps // PS_PER_NS // NS_PER_MS,
        graph_misses=sum(e.graphs.captured for e in cluster.engines),
        pcie_bytes=sum(
            e.host_tier.to_host.bytes_moved + e.host_tier.to_device.bytes_moved
            for e in cluster.engines
            if e.host_tier
        ),
        prefetched_blocks=sum(e.prefetch.prefetched_blocks for e in cluster.engines if e.prefetch),
        prefetched_blocks_used=sum(e.prefetch.used_blocks for e in cluster.engines if e.prefetch),
        notes=tuple(notes),
        filled=0 if branches is None else branches.host.filled,
        spliced=0 if branches is None else branches.host.spliced,
        unsafe=0 if branches is None else branches.host.unsafe,
        draft_ns=sum(s.draft_ps for s in speculators) // PS_PER_NS,
        verify_packed_ns=_attention_ns(speculators, 0, profile),
        verify_prefill_ns=_attention_ns(speculators, 1, profile),
        drafting_steps=sum(s.drafting_steps for s in speculators),
    )


def _attention_ns(speculators: list[Speculator], regime: int, profile: Profile) -> int:
    return sum(s.read_tokens[regime] for s in speculators) * profile.kv_read_ps_per_token // PS_PER_NS


def _schedule_fault(env: Clock, config: SimConfig, cluster: Cluster) -> None:
    fault = config.fault
    if fault.pause_for_s <= 0:
        return
    if fault.replica >= config.replicas:
        raise InputError(
            f"fault.replica={fault.replica}: there are {config.replicas} replicas, counted from 0"
        )
    replica = cluster.engines[fault.replica]
    at = round(fault.pause_at_s * PS_PER_S)
    pause, resume = env.timeout(at), env.timeout(at + round(fault.pause_for_s * PS_PER_S))
    pause.callbacks.append(lambda _: replica.pause())
    resume.callbacks.append(lambda _: replica.resume())


def _without_branches(policies: PolicySet) -> PolicySet:
    """Return the policies with nothing reused and nothing filled."""
    simplest = PolicySet()
    return replace(policies, gate=simplest.gate, candidate=simplest.candidate, reuse=simplest.reuse)


def _lru() -> Evictor[Any]:
    return cast("Evictor[Any]", load("evictors", "lru"))


def _no_forecast() -> Predictor[Any]:
    return cast("Predictor[Any]", load("predictors", "none"))


def _no_drafts() -> Drafter[Any]:
    return cast("Drafter[Any]", load("drafters", "none"))


def _no_prefetch() -> Prefetcher[Any]:
    return cast("Prefetcher[Any]", load("prefetchers", "none"))


class _AdmissionSink:
    """Keeps the order in which requests were first admitted, and nothing else."""

    def __init__(self) -> None:
        self.memory = MemorySink()

    def write(self, table: str, rows: pa.Table) -> None:
        if table == "requests":
            self.memory.write(table, rows)

    def order(self) -> list[int]:
        requests = self.memory.tables()["requests"]
        admitted, stage = requests["admitted_ns"].to_numpy(), requests["stage"].to_numpy()
        keep = admitted >= 0
        by = sorted(zip(admitted[keep].tolist(), stage[keep].tolist(), strict=True))
        return [s for _, s in by]


def _admission_order(
    workload: Workload, profile: Profile, policies: PolicySet, config: SimConfig, kv_blocks: int
) -> list[int]:
    """Record the order of admissions of the same run under LRU, without forecasts and prefetching.

    Whatever may need truth is left out: the record is what truth is made of.
    """
    sink = _AdmissionSink()
    simulate(
        workload,
        profile,
        replace(
            _without_branches(policies),
            evictor=_lru(),
            predictor=_no_forecast(),
            prefetcher=_no_prefetch(),
            drafter=policies.drafter if "oracle" not in policies.drafter.needs else _no_drafts(),
        ),
        config,
        sink,
        kv_blocks=kv_blocks,
    )
    return sink.order()
