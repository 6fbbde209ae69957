"""What a run is given: the workload in the order its workflows start, the profile, the KV capacity."""

from __future__ import annotations

import functools
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from experiments.settings import Settings
from policies.costs import Profile
from sim.config import LoadConfig
from traces.errors import InputError
from traces.schema import Workload


@dataclass(frozen=True)
class WorkloadRef:
    """Where a workload is: an embedded name or a file, and the importer if one was named."""

    name: str
    format: str | None = None


@functools.lru_cache(maxsize=4)
def open_workload(ref: WorkloadRef) -> Workload:
    """Return the workload; raises InputError for an unknown name, a missing file or a malformed one."""
    from traces import workloads

    if ref.name in workloads.names() and ref.format is None:
        return workloads.open(ref.name)
    path = Path(ref.name)
    if path.exists():
        from traces import formats

        return formats.load(path, ref.format)
    if path.suffix or len(path.parts) > 1:
        raise InputError(f"workload={ref.name}: no such file; embedded: {', '.join(workloads.names())}")
    return workloads.open(ref.name)  # raises, with the nearest name


@functools.lru_cache(maxsize=2)
def prepared(ref: WorkloadRef, load: LoadConfig, seed: int) -> Workload:
    """Return the workflows that a run starts, in their order.

    Recorded arrivals are replayed as they are (`load.workflows` then takes the first ones). In a closed loop
    and under drawn arrivals the seed draws the order, and more workflows than the trace holds are copies
    whose private tokens are re-keyed, so that no reuse is invented.
    """
    from traces import resample

    workload = open_workload(ref)
    held = workload.n_workflows
    if held == 0:
        raise InputError(f"workload={ref.name}: holds no workflow")
    if load.loop == "open" and load.rate_per_s is None:
        if workload.workflow_arrival_ns is None:
            raise InputError(
                f"workload={ref.name}: no arrival times; give load.rate_per_s or load.loop=closed"
            )
        if load.workflows is None or load.workflows == held:
            return workload
        if load.workflows > held:
            raise InputError(
                f"load.workflows={load.workflows}: {ref.name} records the arrivals of {held} workflows; "
                "give load.rate_per_s to draw more"
            )
        first = np.sort(np.argsort(workload.workflow_arrival_ns, kind="stable")[: load.workflows])
        return resample.subset(workload, first.tolist())
    return resample.resample(workload, load.workflows or held, seed)


def seeds_matter(load: LoadConfig) -> bool:
    """Say whether the load draws anything: recorded arrivals draw nothing."""
    return not (load.loop == "open" and load.rate_per_s is None)


def open_profile(chosen: Settings) -> Profile:
    """Return the profile that the options name; raises InputError with the nearest name.

    `model` may be a config.json, for a roofline profile. gpu, tp, model and precision replace those parts of
    the named profile's identity.
    """
    from calibration import catalog

    parts = {k: v for k in ("gpu", "tp", "model", "precision") if (v := getattr(chosen, k)) is not None}
    if chosen.model is not None and (chosen.model.endswith(".json") or Path(chosen.model).is_file()):
        return _roofline(Path(chosen.model), chosen)
    if chosen.profile is None and "model" not in parts:
        raise InputError("profile=null: name a profile (`python -m experiments list profiles`), or a model")
    if not parts:
        return catalog.open(str(chosen.profile))
    identity: dict[str, Any] = {"gpu": "H200", "tp": 1, "precision": "bf16"}
    if chosen.profile is not None:
        identity = dict(catalog.open(chosen.profile).identity)
    identity |= parts
    wanted = {
        "gpu": str(identity["gpu"]),
        "tp": int(identity["tp"]),
        "model": str(identity["model"]).rsplit("/", 1)[-1],
        "precision": str(identity["precision"]),
    }
    found = catalog.find(**wanted)
    if not found:
        said = " ".join(f"{k}={v}" for k, v in wanted.items())
        close = catalog.find(model=wanted["model"])
        raise InputError(f"no profile for {said}; this model has {', '.join(close)}")
    return catalog.open(found[0])


def _roofline(path: Path, chosen: Settings) -> Profile:
    from calibration import roofline

    return roofline.profile(
        path, gpu=chosen.gpu or "H200", tp=chosen.tp or 1, precision=chosen.precision or "bf16"
    )
