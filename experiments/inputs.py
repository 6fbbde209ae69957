"""What a run is given: the workload in the order its workflows start, the profile, the KV capacity."""

from __future__ import annotations

import functools
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

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


def open_workload(ref: WorkloadRef) -> Workload:
    """Return the workload; raises InputError for an unknown name, a missing file or a malformed one."""
    return _open(ref, _stamp(ref))


def _stamp(ref: WorkloadRef) -> tuple[int, int]:
    """Return what changes when a file is written again, so that a cache never answers for an older one."""
    try:
        stat = Path(ref.name).stat()
    except OSError:
        return (0, 0)
    return (stat.st_mtime_ns, stat.st_size)


@functools.lru_cache(maxsize=4)
def _open(ref: WorkloadRef, stamp: tuple[int, int]) -> Workload:
    from traces import workloads

    del stamp

    if ref.name in workloads.names() and ref.format is None:
        return workloads.open(ref.name)
    path = Path(ref.name)
    if path.exists():
        from traces import formats

        return formats.load(path, ref.format)
    if path.suffix or len(path.parts) > 1:
        raise InputError(f"workload={ref.name}: no such file; embedded: {', '.join(workloads.names())}")
    return workloads.open(ref.name)  # raises, with the nearest name


def prepared(ref: WorkloadRef, load: LoadConfig, seed: int) -> Workload:
    """Return the workflows that a run starts, in their order.

    Recorded arrivals are replayed as they are (`load.workflows` then takes the first ones). In a closed loop
    and under drawn arrivals the seed draws the order, and more workflows than the trace holds are copies
    whose private tokens are re-keyed, so that no reuse is invented.
    """
    return _prepared(ref, _stamp(ref), load, seed)


@functools.lru_cache(maxsize=2)
def _prepared(ref: WorkloadRef, stamp: tuple[int, int], load: LoadConfig, seed: int) -> Workload:
    from traces import resample

    workload = _open(ref, stamp)
    if workload.n_workflows == 0:
        raise InputError(f"workload={ref.name}: holds no workflow")
    if load.request_tokens_max is not None:
        short = ~too_long(workload, load.request_tokens_max)
        if not short.any():
            raise InputError(
                f"load.request_tokens_max={load.request_tokens_max}: every workflow of {ref.name} has a longer request"
            )
        if not short.all():
            workload = resample.subset(workload, np.flatnonzero(short).tolist())
    held = workload.n_workflows
    if load.loop == "open" and load.rate_per_s is None:
        if load.replay:
            raise InputError(f"load.replay={load.replay}: recorded arrivals are replayed as they are")
        if workload.workflow_arrival_ns is None:
            raise InputError(
                f"workload={ref.name}: no arrival times; give load.rate_per_s or load.loop=closed"
            )
        if load.workflows is None or load.workflows == held:
            return workload
        if load.workflows > held:
            raise InputError(
                f"load.workflows={load.workflows}: {ref.name} records the arrivals of {held} workflows; "
                "load.workflows=null replays them all, load.rate_per_s draws more"
            )
        first = np.sort(np.argsort(workload.workflow_arrival_ns, kind="stable")[: load.workflows])
        return resample.subset(workload, first.tolist())
    drawn = resample.resample(workload, load.workflows or held, seed)
    return resample.replayed(drawn, load.replay, seed) if load.replay else drawn


def too_long(workload: Workload, tokens_max: int) -> NDArray[np.bool_]:
    """Return bool[workflows]: which have a request whose prompt and output exceed `tokens_max`."""
    longest = np.zeros(workload.n_workflows, dtype=np.int64)
    np.maximum.at(
        longest, workload.stage_workflow, workload.prompt_tokens.astype(np.int64) + workload.output_tokens
    )
    return longest > tokens_max


def seeds_matter(load: LoadConfig) -> bool:
    """Say whether the load draws anything: recorded arrivals draw nothing."""
    return not (load.loop == "open" and load.rate_per_s is None)


def open_profile(chosen: Settings) -> Profile:
    """Return the profile that the options name; InputError with the nearest name, or the arithmetic.

    gpu, tp, model and precision replace those parts of the named profile. `model` may be a config.json (or
    its folder) and `gpu` a datasheet file: those, and what no profile was made for, are priced by a roofline that
    says so. `kv_precision` is that of the KV cache, whatever the profile; `step_law` replaces its step cost.
    """
    from calibration.kv_precision import with_kv_precision
    from calibration.step_law import with_step_law

    profile = with_kv_precision(_named_profile(chosen), chosen.kv_precision)
    return with_step_law(profile, chosen.step_law.base_us, chosen.step_law.slope_us)


def _named_profile(chosen: Settings) -> Profile:
    from calibration import catalog, datasheet, roofline
    from calibration.gpus import GPUS
    from calibration.models import MODELS

    parts = {k: v for k in ("gpu", "tp", "model", "precision") if (v := getattr(chosen, k)) is not None}
    if chosen.profile is None and "model" not in parts:
        raise InputError("profile=null: name a profile (`python -m experiments list profiles`) or a model")
    if not parts:
        return catalog.open(str(chosen.profile))
    identity: dict[str, Any] = {"gpu": "H200", "tp": 1, "precision": None}
    if chosen.profile is not None:
        identity |= catalog.open(chosen.profile).identity
    identity |= parts
    gpu, tp, model = str(identity["gpu"]), int(identity["tp"]), str(identity["model"])
    if model.endswith(".json") or (Path(model) / "config.json").is_file():
        return roofline.profile(model, gpu=gpu, tp=tp, precision=chosen.precision)
    model = model.rsplit("/", 1)[-1]
    cells = [catalog.parts(n) for n in catalog.names()]
    if model in MODELS and model not in {c["model"] for c in cells}:
        return roofline.profile(model, gpu=gpu, tp=tp, precision=chosen.precision)
    if datasheet.is_file(gpu) or (model in MODELS and gpu in GPUS and gpu not in {c["gpu"] for c in cells}):
        precision = chosen.precision if "model" in parts else identity["precision"]
        return roofline.profile(model, gpu=gpu, tp=tp, precision=precision)
    found = catalog.find(gpu=gpu, model=model, precision=identity["precision"])
    exact = [n for n in found if catalog.parts(n)["tp"] == str(tp)]
    if exact:
        return catalog.open(exact[0])
    return roofline.profile(model, gpu=gpu, tp=tp, precision=identity["precision"])
