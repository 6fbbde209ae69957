"""What there is to choose from. Imports as little as it can: it is asked often."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from pathlib import Path
from typing import Any

from experiments.overrides import CONF, FAMILY, known, names
from experiments.store import Store
from traces.errors import InputError

KINDS = ("all", "experiments", "sweeps", "policies", "workloads", "profiles", "options", "runs")


def show(what: str, policy_path: str | None, root: Path) -> int:
    """Print one kind of thing, or all but options and runs; return the exit status."""
    folder = None
    if what.startswith("policy_path="):
        what, policy_path = "policies", what
    if policy_path is not None:
        name, _, value = policy_path.partition("=")
        if name != "policy_path" or not Path(value).is_dir():
            raise InputError(f"{policy_path}: expected policy_path=DIR, a folder that exists")
        folder = Path(value)
    known(what, [*KINDS, *FAMILY, *FAMILY.values()], "kind to list")
    printers: dict[str, Callable[[], None]] = {
        "experiments": lambda: _configs("experiment", "experiment="),
        "sweeps": lambda: _configs("sweep", "+sweep="),
        "policies": lambda: _policies(folder, list(FAMILY)),
        "workloads": _workloads,
        "profiles": _profiles,
        "options": _options,
        "runs": lambda: _runs(Store(root)),
    }
    options = [o for o, f in FAMILY.items() if what in (o, f)]
    if options:
        _policies(folder, options)
    elif what == "all":
        for name in ("experiments", "sweeps", "policies", "workloads", "profiles"):
            print(f"{name}:")
            (_profile_table if name == "profiles" else printers[name])()
            print()
        print("more: list options, list runs")
    else:
        printers[what]()
    return 0


def _configs(group: str, word: str) -> None:
    for name in names(group):
        print(f"  {word}{name:<14} {_first_comment(CONF / group / f'{name}.yaml')}")


def _first_comment(path: Path) -> str:
    for line in path.read_text(encoding="utf-8").splitlines():
        if line.startswith("#") and "@package" not in line:
            return line.lstrip("# ")
    return ""


def _policies(policy_path: Path | None, options: list[str]) -> None:
    from policies import registry

    for option in options:
        for name in registry.names(FAMILY[option], policy_path):
            policy = registry.find(FAMILY[option], name, policy_path)
            said = " ".join(filter(None, [policy.label and f"({policy.label})", _needs(policy.needs)]))
            print(f"  {f'{option}={name}':<24} {_summary(policy)} {said}".rstrip())
            for field, (kind, default, doc) in registry.options(FAMILY[option], name, policy_path).items():
                print(f"      {option}.{field}={_default(default)}  {_kind(kind)}{f': {doc}' if doc else ''}")


def _summary(policy: type[Any]) -> str:
    return (policy.__doc__ or "").strip().splitlines()[0] if policy.__doc__ else ""


def _needs(needs: frozenset[str]) -> str:
    return f"[needs {', '.join(sorted(needs))}]" if needs else ""


def _default(value: Any) -> str:
    if value is dataclasses.MISSING:
        return "?"
    if value is None:
        return "null"
    return str(value).lower() if isinstance(value, bool) else str(value)


def _kind(kind: Any) -> str:
    return kind.__name__ if isinstance(kind, type) else str(kind)


def _workloads() -> None:
    from traces import workloads

    for name in workloads.names():
        about = workloads.provenance(name)
        said = [f"{key} {about[key]}" for key in ("workflows", "requests", "licence") if key in about]
        source = about.get("source")
        print(f"  workload={name:<12} {', '.join(said)}{f'; {source}' if isinstance(source, str) else ''}")
    print("  workload=FILE         any format that `python -m traces describe FILE` reads")


def _profiles() -> None:
    from calibration import catalog

    for name in catalog.names():
        print(f"  profile={name}")
    _roofline()


def _profile_table() -> None:
    from calibration import catalog

    grouped: dict[tuple[str, str, str], list[str]] = {}
    for name in catalog.names():
        part = catalog.parts(name)
        grouped.setdefault((part["gpu"], part["model"], part["engine"]), []).append(
            f"x{part['tp']} {part['precision']}"
        )
    for (gpu, model, engine), cells in grouped.items():
        print(f"  {gpu:<9} {model:<14} {engine:<5} {', '.join(cells)}")
    print("  profile=H200x1--Qwen3-32B--bf16--vllm is the first part of a row, model, precision, engine")
    _roofline()


def _roofline() -> None:
    from calibration.gpus import GPUS
    from calibration.models import MODELS

    print(
        "  gpu= tp= model= precision=  replace parts of the profile; a cell not listed is priced by a roofline and"
    )
    print("                        says so: gpu=H100 tp=8, or model=CONFIG.json for any dense or MoE model,")
    print("                        gpu=DATASHEET.json for any GPU; kv_precision=fp8 halves the KV cache")
    print(f"                        GPUs {', '.join(GPUS)}; models {', '.join(MODELS)}")


def _options() -> None:
    from experiments import typed
    from experiments.settings import OPTIONS, Settings

    defaults = typed.flat(Settings())
    for name, hint in OPTIONS.items():
        value = list(defaults[name]) if isinstance(defaults[name], tuple) else defaults[name]
        print(f"  {name}={_default(value)}  {_kind(hint)}")


def _runs(store: Store) -> None:
    for name in store.experiment_names():
        plan = store.plan(name)
        runs = [*plan.runs.values(), *plan.draws.values()]
        there = sum(store.has(run) for run in runs)
        print(f"  {name}  {there}/{len(runs)} runs  {plan.command}")
    print(f"  {len(store.run_ids())} complete runs in {store.root}")
