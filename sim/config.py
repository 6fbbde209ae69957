"""What a run simulates, as data. Each field is an option of the command line (`engine.max_num_seqs=64`)."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, cast

from policies.api import Evictor
from policies.branching import BranchingConfig
from policies.costs import VERIFY_REGIMES
from policies.registry import load
from policies.spec import parse
from traces.errors import InputError, nearest

PREFIX_CACHES = ("radix", "block_hash", "none")
QUEUES = ("fcfs", "priority")
GRAPH_MEMORIES = ("outside", "pool")
WRITE_POLICIES = ("write_through", "write_through_selective", "write_back")
LOOPS = ("closed", "open")


@dataclass(frozen=True)
class EngineConfig:
    """One replica; names and defaults follow vLLM V1.

    prefix_cache            radix (SGLang-like: whole leaves leave) or block_hash (vLLM-like: full blocks, at
                            most n - 1 prompt tokens hit, tail blocks leave first), or none
    num_gpu_blocks          KV blocks of `block_tokens`; None: computed from gpu_memory_utilization
    watermark_blocks_ratio  share of blocks that admission leaves free
    max_model_len           None: the profile's
    graph_memory            pool: captured graphs take KV blocks; outside: they live in the share of memory that
                            gpu_memory_utilization leaves, as vLLM has it
    async_scheduling        the next step is scheduled while one runs, which hides the host's time a sequence; not with
                            a drafter on the CPU, which waits for the tokens
    forecasts               stream: what a predictor's forecasts cost is spent beside the engine, and they arrive later;
                            step: the next step of the engine that got the request takes longer by it
    fast_forward            False executes every step as its own event (same log, slower)
    """

    block_tokens: int = 16
    max_num_seqs: int = 256
    max_num_batched_tokens: int = 8192
    max_model_len: int | None = None
    gpu_memory_utilization: float = 0.9
    num_gpu_blocks: int | None = None
    prefix_cache: str = "block_hash"
    queue: str = "fcfs"
    watermark_blocks_ratio: float = 0.0
    graph_memory: str = "outside"
    async_scheduling: bool = False
    forecasts: str = "stream"
    fast_forward: bool = True

    def __post_init__(self) -> None:
        _one_of(self, "engine", forecasts=("stream", "step"))
        _at_least(self, "engine", block_tokens=1, max_num_seqs=1, max_num_batched_tokens=1)
        if self.max_num_batched_tokens < self.max_num_seqs:
            raise InputError(
                f"engine.max_num_batched_tokens={self.max_num_batched_tokens} is below "
                f"engine.max_num_seqs={self.max_num_seqs}: every sequence needs a token a step"
            )
        _between(self, "engine", gpu_memory_utilization=(0.05, 1.0), watermark_blocks_ratio=(0.0, 0.5))
        if self.num_gpu_blocks is not None:
            _at_least(self, "engine", num_gpu_blocks=1)
        if self.max_model_len is not None:
            _at_least(self, "engine", max_model_len=1)
        _one_of(self, "engine", prefix_cache=PREFIX_CACHES, queue=QUEUES, graph_memory=GRAPH_MEMORIES)


@dataclass(frozen=True)
class HostTierConfig:
    """Host memory behind HBM (HiCache-like).

    ratio               host KV capacity over device KV capacity; 0 turns the tier off
    write               write_through (copy on insert), write_through_selective (copy on the second access),
                        write_back (copy on eviction)
    load_back           predicted (load when cheaper than recomputing), always, never
    evictor             what leaves the host: any evictor that needs no oracle, as a name or name(option=value, ...)
    pcie_bytes_per_s    None: the profile's; shared by concurrent copies of one direction
    prefetch_grain      run (candidates are runs of blocks between divergences), block (single ones, as PBKV's pages and
                        in the live host)
    """

    ratio: float = 0.0
    write: str = "write_through_selective"
    load_back: str = "predicted"
    pcie_bytes_per_s: int | None = None
    min_load_tokens: int = 64
    prefetch_grain: str = "run"
    evictor: str = "lru"

    def __post_init__(self) -> None:
        self.load_evictor()
        _between(self, "host_tier", ratio=(0.0, 1000.0))
        _one_of(self, "host_tier", prefetch_grain=("run", "block"))
        _one_of(self, "host_tier", write=WRITE_POLICIES, load_back=("predicted", "always", "never"))
        _at_least(self, "host_tier", min_load_tokens=0)
        if self.pcie_bytes_per_s is not None:
            _at_least(self, "host_tier", pcie_bytes_per_s=1)

    def load_evictor(self) -> Evictor[Any]:
        """Return the host's policy. Raises InputError for a name, an option or a need that cannot be met there."""
        name, options = parse(self.evictor, "host_tier.evictor")
        try:
            policy = load("evictors", name, options)
        except InputError as e:
            raise InputError(f"host_tier.evictor={self.evictor}: {e}") from None
        if policy.needs:
            raise InputError(
                f"host_tier.evictor={self.evictor} needs {', '.join(sorted(policy.needs))}, "
                "which the host tier is not given"
            )
        return cast("Evictor[Any]", policy)


@dataclass(frozen=True)
class LoadConfig:
    """How workflows arrive.

    loop          closed: `concurrency` workflows are always in progress; open: they arrive by the clock
    concurrency   closed loop only
    rate_per_s    open loop: workflows a second (Poisson); None takes the trace's arrival times
    utilisation   open loop, in the place of rate_per_s: this share of the workflows a second that replicas without
                  speculation and reuse complete when never short of work (`experiments/floor_load.py` finds it)
    workflows     number of workflows to run; None: each of the trace once. More than the trace holds are
                  resampled copies with private tokens re-keyed
    replay        share of workflows that are exact repeats of earlier ones of the run (closed loop or drawn arrivals)
    think_scale   multiplies wait stages; tool stages keep their times. Stated in the report when not 1
    request_tokens_max   leave out workflows with a request (prompt and output) longer than this, and say how many;
                  None: they are run, and the engine rejects what it cannot serve
    horizon_s     stop after this much simulated time; what is unfinished is counted as incomplete
    """

    loop: str = "closed"
    concurrency: int = 32
    rate_per_s: float | None = None
    utilisation: float | None = None
    workflows: int | None = None
    replay: float = 0.0
    think_scale: float = 1.0
    request_tokens_max: int | None = None
    horizon_s: float | None = None

    def __post_init__(self) -> None:
        _one_of(self, "load", loop=LOOPS)
        if self.request_tokens_max is not None:
            _at_least(self, "load", request_tokens_max=1)
        _at_least(self, "load", concurrency=1)
        _between(self, "load", think_scale=(0.0, 1000.0))
        if self.workflows is not None:
            _at_least(self, "load", workflows=1)
        _between(self, "load", replay=(0.0, 0.99))
        if self.utilisation is not None:
            _between(self, "load", utilisation=(0.01, 0.99))
            if self.loop != "open" or self.rate_per_s is not None:
                raise InputError(
                    "load.utilisation: needs load.loop=open, and stands in the place of load.rate_per_s"
                )
        if self.rate_per_s is not None and not self.rate_per_s > 0:
            raise InputError(f"load.rate_per_s={self.rate_per_s}: expected more than 0")
        if self.rate_per_s is not None and self.loop != "open":
            raise InputError(f"load.rate_per_s={self.rate_per_s}: needs load.loop=open")
        if self.horizon_s is not None and not self.horizon_s > 0:
            raise InputError(f"load.horizon_s={self.horizon_s}: expected more than 0")


@dataclass(frozen=True)
class AcceptConfig:
    """Acceptance of drafted tokens where no recorded token can decide it: the trace holds no output ids, or the
    drafter's tokens are known to its model only.

    rate             probability that a drafted token is accepted, given that those before it in the draft were
    positions        the same by place in the draft (first, second, ...; the last one repeated); replaces `rate`. A
                     drafter that states its own probabilities replaces both
    autocorrelation  correlation of the luck of neighbouring output tokens: easy stretches follow one another
    """

    rate: float = 0.0
    positions: tuple[float, ...] = ()
    autocorrelation: float = 0.0

    def __post_init__(self) -> None:
        _between(self, "accept", rate=(0.0, 1.0), autocorrelation=(0.0, 0.99))
        for p in self.positions:
            if not 0 <= p <= 1:
                raise InputError(f"accept.positions={list(self.positions)}: expected numbers from 0 to 1")


@dataclass(frozen=True)
class VerifyConfig:
    """How a step that verifies drafts is priced.

    attention    packed (KV is read once while the queries of a KV head fit a tile), prefill (grows with each query),
                 or profile: the regime that the profile names. Which one an engine gets is known only once measured
    """

    attention: str = "profile"

    def __post_init__(self) -> None:
        _one_of(self, "verify", attention=("profile", *VERIFY_REGIMES))


@dataclass(frozen=True)
class FaultConfig:
    """Faults to inject: replica `replica` pauses at `pause_at_s` for `pause_for_s`. No pause by default."""

    replica: int = 0
    pause_at_s: float = 0.0
    pause_for_s: float = 0.0

    def __post_init__(self) -> None:
        _between(self, "fault", pause_at_s=(0.0, 1e9), pause_for_s=(0.0, 1e9))
        _at_least(self, "fault", replica=0)


@dataclass(frozen=True)
class DrafterDeviceConfig:
    """Where candidates of branches are drafted.

    place      own: a device of its own; colocated: the workflow's replica, whose steps wait while it drafts
    kv_share   colocated: share of the KV pool that its weights and cache take
    """

    place: str = "own"
    kv_share: float = 0.02

    def __post_init__(self) -> None:
        _one_of(self, "drafter_device", place=("own", "colocated"))
        _between(self, "drafter_device", kv_share=(0.0, 0.9))


@dataclass(frozen=True)
class SimConfig:
    """Everything but workload, profile and policies."""

    engine: EngineConfig = field(default_factory=EngineConfig)
    host_tier: HostTierConfig = field(default_factory=HostTierConfig)
    load: LoadConfig = field(default_factory=LoadConfig)
    accept: AcceptConfig = field(default_factory=AcceptConfig)
    verify: VerifyConfig = field(default_factory=VerifyConfig)
    fault: FaultConfig = field(default_factory=FaultConfig)
    branching: BranchingConfig = field(default_factory=BranchingConfig)
    drafter_device: DrafterDeviceConfig = field(default_factory=DrafterDeviceConfig)
    replicas: int = 1
    seed: int = 0

    def __post_init__(self) -> None:
        _at_least(self, "", replicas=1)


def _at_least(config: object, group: str, **bounds: int) -> None:
    for name, low in bounds.items():
        value = getattr(config, name)
        if isinstance(value, bool) or not isinstance(value, int) or value < low:
            raise InputError(f"{_dotted(group, name)}={value}: expected a whole number of at least {low}")


def _between(config: object, group: str, **bounds: tuple[float, float]) -> None:
    for name, (low, high) in bounds.items():
        value = getattr(config, name)
        if not (isinstance(value, int | float) and low <= value <= high):
            raise InputError(f"{_dotted(group, name)}={value}: expected a number from {low} to {high}")


def _one_of(config: object, group: str, **allowed: tuple[str, ...]) -> None:
    for name, names in allowed.items():
        value = getattr(config, name)
        if value not in names:
            raise InputError(nearest(str(value), names, what=_dotted(group, name)))


def _dotted(group: str, name: str) -> str:
    return f"{group}.{name}" if group else name
