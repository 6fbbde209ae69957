"""From words to a plan: expand arms, axes and seeds, resolve what they name, and find which runs they are."""

from __future__ import annotations

import itertools
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from experiments import identity
from experiments.arm_names import arm_names
from experiments.compose import DEFAULT_EXPERIMENT, Composed, compose
from experiments.floor_load import with_rate
from experiments.inputs import WorkloadRef, open_profile, open_workload, prepared
from experiments.job import Job
from experiments.plan import Arm, Plan
from experiments.plan_notes import plan_notes
from experiments.policyspec import Choice, written
from experiments.settings import Settings, as_dict, changed
from policies.api import OPTION, Drafter, Policy
from policies.costs import Profile
from sim.run import SERVED
from traces.errors import InputError
from traces.schema import Workload

# Words that cannot change a result: left out of the command that reproduces it.
_NOT_RESULT = ("executor", "store")


@dataclass(frozen=True)
class Point:
    """One point of the axes, resolved."""

    axes: dict[str, Any]
    settings: Settings
    ref: WorkloadRef
    workload_digest: str
    profile: Profile
    profile_digest: str
    kv_blocks: int
    kv_source: str
    drawn: tuple[Profile, ...] = ()
    note: str = ""

    def under(self, draw: int) -> Point:
        """Return the point as it is under one draw of the profile."""
        profile = self.drawn[draw]
        return replace(self, profile=profile, profile_digest=identity.profile_digest(profile))


@dataclass(frozen=True)
class Combination:
    """One policy of every family, loaded. `written` is how tables and labels write each."""

    choices: tuple[Choice, ...]
    policies: dict[str, Policy[Any]]
    written: dict[str, str]
    needs: tuple[str, ...]


def build(words: Sequence[str], experiment: str = DEFAULT_EXPERIMENT) -> tuple[Plan, list[Job], Settings]:
    """Return the plan, its distinct jobs (also those that are in the store already) and the options.

    Raises InputError with one line for whatever cannot run, before anything is written.
    """
    composed = compose(words, experiment)
    points = [_point(composed, axes) for axes in _axes_points(composed.axes)]
    combinations = _combinations(composed)
    compared = [f for f in OPTION if len({c.written[f] for c in combinations}) > 1]
    names = arm_names([c.written for c in combinations], listed=_listed(composed))
    first = points[0]
    arms: list[Arm] = []
    runs: dict[tuple[str, int], str] = {}
    draws: dict[tuple[str, int], str] = {}
    jobs: dict[str, Job] = {}
    for point in points:
        under = [point.under(d) for d in range(len(point.drawn))]
        for combination, name in zip(combinations, names, strict=True):
            arm = _arm(point, combination, name, compared)
            if any(a.label == arm.label for a in arms):
                continue
            arms.append(arm)
            for seed in point.settings.seeds:
                job = _job(point, combination, arm, seed, composed, words)
                runs[arm.label, seed] = job.run_id
                jobs.setdefault(job.run_id, job)
            for draw, drawn in enumerate(under):
                seed = point.settings.seeds[draw % len(point.settings.seeds)]
                job = _job(drawn, combination, arm, seed, composed, words, draw)
                draws[arm.label, draw] = job.run_id
                jobs.setdefault(job.run_id, job)
    notes = plan_notes([(p.settings, p.ref, p.profile) for p in points], len(first.drawn))
    plan = Plan(
        name=first.settings.name,
        command=command(words),
        arms=tuple(arms),
        seeds=first.settings.seeds,
        runs=runs,
        workload=_workload(first.ref, first.settings.engine.block_tokens),
        profile=_profile(first),
        kv={"blocks": first.kv_blocks, "source": first.kv_source},
        config=as_dict(first.settings),
        changed=changed(first.settings),
        slo={"ttft_ms": first.settings.slo.ttft_ms, "tpot_ms": first.settings.slo.tpot_ms},
        notes=(*composed.notes, *notes, *(dict.fromkeys(p.note for p in points if p.note))),
        draws=draws,
    )
    # Jobs of one seed meet in a worker that has just prepared their workload.
    ordered = sorted(jobs.values(), key=lambda j: (j.workload.name, j.config.seed))
    return plan, ordered, first.settings


def command(words: Sequence[str]) -> str:
    """Return the command line that reproduces the results of these words.

    >>> command(["evictor=lru,sieve", "executor.jobs=2"])
    'python -m experiments run evictor=lru,sieve'
    """
    kept = [w for w in words if w.partition("=")[0].partition(".")[0] not in _NOT_RESULT]
    return shlex.join(["python", "-m", "experiments", "run", *kept])


def _axes_points(axes: Mapping[str, list[Any]]) -> list[dict[str, Any]]:
    points: list[dict[str, Any]] = []
    for values in itertools.product(*axes.values()):
        point = dict(zip(axes, values, strict=True))
        if point not in points:
            points.append(point)
    return points


def _point(composed: Composed, axes: dict[str, Any]) -> Point:
    from calibration import uncertainty
    from calibration.memory import kv_blocks

    chosen = composed.settings(axes)
    profile = open_profile(chosen)
    ref = WorkloadRef(chosen.workload, chosen.workload_format)
    capacity = kv_blocks(profile, chosen.engine)
    asked = chosen.load.utilisation
    chosen = with_rate(chosen, ref, profile, capacity.blocks)
    prepared(ref, chosen.load, chosen.seeds[0])  # what it refuses, it refuses before the first run
    return Point(
        axes=axes,
        settings=chosen,
        ref=ref,
        workload_digest=open_workload(ref).digest(),
        profile=profile,
        profile_digest=identity.profile_digest(profile),
        kv_blocks=capacity.blocks,
        kv_source=capacity.source_text,
        drawn=tuple(uncertainty.draw(profile, d) for d in range(chosen.profile_draws)),
        note=_load_note(asked, chosen, axes),
    )


def _load_note(asked: float | None, chosen: Settings, axes: Mapping[str, Any]) -> str:
    """Say which rate a load that was asked for as a share came to; nothing where it was not."""
    if asked is None:
        return ""
    at = ", ".join(f"{k}={_shown(v)}" for k, v in axes.items() if k != "load.utilisation")
    where = f" at {at}" if at else ""
    rate = f"{chosen.load.rate_per_s:g} workflows/s"
    return f"load.utilisation={asked:g}{where}: {rate}, that share of what the floor serves"


def _combinations(composed: Composed) -> list[Combination]:
    out: list[Combination] = []
    for choices in (c for arm in composed.arms for c in itertools.product(*arm.values())):
        policies = {c.family: c.load(composed.policy_path) for c in choices}
        words = {c.family: written(c, policies[c.family], composed.policy_path) for c in choices}
        needs = sorted(frozenset().union(*(p.needs for p in policies.values())))
        if all(c.written != words for c in out):
            out.append(Combination(choices, policies, words, tuple(needs)))
    return out


def _listed(composed: Composed) -> bool:
    """Say whether the config lists its arms one by one, and nothing has crossed them with more."""
    return len(composed.arms) > 1 and all(len(c) == 1 for arm in composed.arms for c in arm.values())


def _arm(point: Point, combination: Combination, name: str, compared: Sequence[str]) -> Arm:
    axes = ", ".join(f"{k}={_shown(v)}" for k, v in point.axes.items())
    overrides = [f"{OPTION[f]}={combination.written[f]}" for f in compared or ("evictors",)]
    return Arm(
        label=f"{name} @ {axes}" if axes else name,
        axes=point.axes,
        overrides=(*overrides, *(f"{k}={_shown(v)}" for k, v in point.axes.items())),
        policies=combination.written,
        name=name,
        needs=combination.needs,
    )


def _job(
    point: Point,
    combination: Combination,
    arm: Arm,
    seed: int,
    composed: Composed,
    words: Sequence[str],
    draw: int | None = None,
) -> Job:
    config = point.settings.sim(seed)
    blocks, blocks_source = _kv_beside(point, combination)
    run = identity.run_id(config, combination.policies, point.workload_digest, point.profile_digest, blocks)
    chosen = as_dict(replace(point.settings, seeds=(seed,)))
    for name in ("name", "seeds", "profile_draws", "slo"):
        del chosen[name]
    manifest = {
        "config": chosen,
        "seed": seed,
        "policies": arm.policies,
        "workload": {"name": Path(point.ref.name).name, "digest": point.workload_digest},
        "profile": _profile(point) | ({} if draw is None else {"draw": draw}),
        "kv": {"blocks": blocks, "source": blocks_source},
        "overrides": list(words),
        "versions": identity.versions(),
        "sources": identity.sources_digest(),
        "git": identity.git(),
    }
    return Job(
        run_id=run,
        label=arm.label if draw is None else f"{arm.label}, profile draw {draw}",
        config=config,
        choices=combination.choices,
        policy_path=composed.policy_path.resolve() if composed.policy_path else None,
        workload=point.ref,
        workload_digest=point.workload_digest,
        profile=point.profile,
        kv_blocks=blocks,
        store=Path(point.settings.store).resolve(),
        manifest=manifest,
    )


def _kv_beside(point: Point, combination: Combination) -> tuple[int, str]:
    """Return KV blocks and where their number is from: a draft model takes memory from the pool."""
    drafter = combination.policies["drafters"]
    assert isinstance(drafter, Drafter)
    weights, kv_bytes = drafter.memory_bytes(point.profile)
    if not (weights or kv_bytes):
        return point.kv_blocks, point.kv_source
    from calibration.memory import Beside, kv_blocks

    capacity = kv_blocks(point.profile, point.settings.engine, Beside(weights, kv_bytes))
    return capacity.blocks, capacity.source_text


def _workload(ref: WorkloadRef, block_tokens: int) -> dict[str, Any]:
    from traces.describe import describe

    workload: Workload = open_workload(ref)
    return {
        "name": workload.name,
        "digest": workload.digest(),
        "workflows": workload.n_workflows,
        "stages": workload.n_stages,
        "requests": workload.n_requests,
        "agents": list(workload.agents[:64]),
        "provenance": workload.provenance,
        "warnings": describe(workload, block_tokens)["warnings"],
    }


def _profile(point: Point) -> dict[str, Any]:
    p = point.profile
    said = {"notes": p.provenance["notes"]} if p.provenance.get("notes") else {}
    return {"name": p.name, "digest": point.profile_digest, "identity": p.identity, "error": p.error, **said}


def _shown(value: Any) -> str:
    if value is None:
        return "null"
    if isinstance(value, bool):
        return str(value).lower()
    return f"{value:g}" if isinstance(value, float) else str(value)


def check_host(plan: Plan, given: frozenset[str] = SERVED) -> None:
    """Raise InputError for an arm whose policies need what the simulator cannot give."""
    for arm in plan.arms:
        lacking = sorted(set(arm.needs) - given)
        if lacking:
            raise InputError(f"arm {arm.label!r} needs {', '.join(lacking)}, which the simulator cannot give")
