"""Every option of `python -m experiments run` but policies and axes, as one checked value."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from experiments import typed
from policies.branching import BranchingConfig
from sim.config import (
    AcceptConfig,
    DrafterDeviceConfig,
    EngineConfig,
    FaultConfig,
    HostTierConfig,
    LoadConfig,
    SimConfig,
    VerifyConfig,
)
from traces.errors import InputError, nearest

EXECUTORS = ("local", "ray", "slurm")
SEEDS_MAX = 10_000
DRAWS_MAX = 1000


@dataclass(frozen=True)
class ExecutorConfig:
    """Where runs run; never part of a run's identity.

    name       local (processes of this machine), ray (a cluster), slurm (through submitit)
    jobs       local: worker processes, None for one a CPU; ray and slurm: runs at a time, None for no limit
    address    ray: the cluster's address; None starts or finds a local one
    partition  slurm: partition; None for the site's default
    minutes    slurm: time limit of one run
    memory_gb  slurm: memory of one run
    """

    name: str = "local"
    jobs: int | None = None
    address: str | None = None
    partition: str | None = None
    minutes: int = 60
    memory_gb: int = 4

    def __post_init__(self) -> None:
        if self.name not in EXECUTORS:
            raise InputError(nearest(self.name, EXECUTORS, what="executor"))
        for name in ("jobs", "minutes", "memory_gb"):
            value = getattr(self, name)
            if value is not None and value < 1:
                raise InputError(f"executor.{name}={value}: expected a whole number of at least 1")


@dataclass(frozen=True)
class SloConfig:
    """Thresholds of slo_goodput; they change metrics, never a run."""

    ttft_ms: float = 2000.0
    tpot_ms: float = 50.0

    def __post_init__(self) -> None:
        for name in ("ttft_ms", "tpot_ms"):
            if not getattr(self, name) > 0:
                raise InputError(f"slo.{name}={getattr(self, name)}: expected more than 0")


@dataclass(frozen=True)
class StepLawConfig:
    """A step cost stated by hand, t(M) = base_us + slope_us M, in place of the profile's; None: the profile's."""

    base_us: float | None = None
    slope_us: float | None = None

    def __post_init__(self) -> None:
        for name in ("base_us", "slope_us"):
            value = getattr(self, name)
            if value is not None and not 0 <= value <= 1e9:
                raise InputError(f"step_law.{name}={value}: expected from 0 to 1e9 microseconds")


@dataclass(frozen=True)
class Settings:
    """The options, checked.

    name             of the experiment; part of its folder's name
    workload         name of an embedded workload, or a file
    workload_format  importer of the file; None: by its name and content
    profile          name of a calibrated profile, or a file; gpu, tp, model, precision replace parts of it
    model            model name, or a Hugging Face config.json for a roofline profile
    gpu              a listed GPU, or a datasheet file (*.json) for a roofline profile
    kv_precision     fp8: the KV cache takes half the bytes; None: as the profile says
    seeds            paired across arms; seeds=8 on the command line is seeds 0 to 7
    profile_draws    runs of each arm under draws of the profile's step costs, spread over the seeds: draw d has
                     seed d mod n. Intervals that include calibration error then stand beside those over seeds
    store            folder of the run store
    """

    name: str = "main"
    workload: str = "weka"
    workload_format: str | None = None
    profile: str | None = None
    model: str | None = None
    gpu: str | None = None
    tp: int | None = None
    precision: str | None = None
    kv_precision: str | None = None
    seeds: tuple[int, ...] = (0, 1, 2, 3, 4)
    profile_draws: int = 0
    store: str = "runs"
    replicas: int = 1
    engine: EngineConfig = field(default_factory=EngineConfig)
    host_tier: HostTierConfig = field(default_factory=HostTierConfig)
    load: LoadConfig = field(default_factory=LoadConfig)
    accept: AcceptConfig = field(default_factory=AcceptConfig)
    verify: VerifyConfig = field(default_factory=VerifyConfig)
    fault: FaultConfig = field(default_factory=FaultConfig)
    branching: BranchingConfig = field(default_factory=BranchingConfig)
    drafter_device: DrafterDeviceConfig = field(default_factory=DrafterDeviceConfig)
    slo: SloConfig = field(default_factory=SloConfig)
    step_law: StepLawConfig = field(default_factory=StepLawConfig)
    executor: ExecutorConfig = field(default_factory=ExecutorConfig)

    def __post_init__(self) -> None:
        if not self.name or set(self.name) & set("/\\ \t\n") or self.name.startswith("."):
            raise InputError(f"name={self.name!r}: expected a word without spaces and slashes")
        if not self.seeds:
            raise InputError("seeds=[]: expected at least one seed")
        if len(set(self.seeds)) != len(self.seeds):
            raise InputError(f"seeds={list(self.seeds)}: a seed is given twice")
        if min(self.seeds) < 0:
            raise InputError(f"seeds={list(self.seeds)}: expected whole numbers of at least 0")
        if self.profile_draws not in range(DRAWS_MAX + 1) or self.profile_draws == 1:
            raise InputError(
                f"profile_draws={self.profile_draws}: expected 0 or a whole number from 2 to {DRAWS_MAX}"
            )
        if self.tp is not None and self.tp < 1:
            raise InputError(f"tp={self.tp}: expected a whole number of at least 1")

    def sim(self, seed: int) -> SimConfig:
        """Return what the simulator is given for one seed; raises InputError for impossible combinations."""
        return SimConfig(
            engine=self.engine,
            host_tier=self.host_tier,
            load=self.load,
            accept=self.accept,
            verify=self.verify,
            fault=self.fault,
            branching=self.branching,
            drafter_device=self.drafter_device,
            replicas=self.replicas,
            seed=seed,
        )


OPTIONS: dict[str, Any] = typed.leaves(Settings)
GROUPS = tuple(
    f.name for f in dataclasses.fields(Settings) if f.name in {o.split(".")[0] for o in OPTIONS if "." in o}
)


def settings(values: Mapping[str, Any]) -> Settings:
    """Return the checked options; `seeds` may be a count. Raises InputError with one clear line."""
    values = dict(values)
    seeds = values.get("seeds")
    if isinstance(seeds, int) and not isinstance(seeds, bool):
        if not 1 <= seeds <= SEEDS_MAX:
            raise InputError(f"seeds={seeds}: expected a count from 1 to {SEEDS_MAX}, or a list of seeds")
        values["seeds"] = tuple(range(seeds))
    for group in GROUPS:
        if values.get(group, {}) is None:
            values[group] = {}
    chosen = typed.build(Settings, values)
    chosen.sim(chosen.seeds[0])
    return chosen


def changed(chosen: Settings) -> dict[str, Any]:
    """Return the options whose value is not the default, dotted name -> value; only what changes results."""
    default = typed.flat(Settings())
    shown = {k: v for k, v in typed.flat(chosen).items() if k != "store" and not k.startswith("executor.")}
    return {k: _plain(v) for k, v in shown.items() if v != default[k]}


def as_dict(chosen: Settings) -> dict[str, Any]:
    """Return the options as nested plain data, without the executor and the store."""
    body = dataclasses.asdict(chosen)
    for name in ("executor", "store"):
        del body[name]
    return {k: _plain(v) for k, v in body.items()}


def _plain(value: Any) -> Any:
    """Return what JSON would read back: lists for tuples, at any depth."""
    if isinstance(value, dict):
        return {k: _plain(v) for k, v in value.items()}
    return [_plain(v) for v in value] if isinstance(value, tuple | list) else value
