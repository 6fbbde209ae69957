"""Does this installation work? Every check says what it looked at; one that fails says what to do."""

from __future__ import annotations

import importlib
import importlib.metadata
import importlib.util
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

from experiments import identity
from experiments.store import Store
from traces.errors import InputError

PACKAGES = ("traces", "policies", "kernels", "sim", "live", "calibration", "experiments")
EXTRAS = {
    "ray": ("ray", "executor=ray"),
    "slurm": ("submitit", "executor=slurm"),
    "kernels": ("torch", "GPU kernels"),
    "tokenizers": ("tiktoken", "importers that count tokens of text"),
}
_ABSENT = "absent"


def doctor(root: Path) -> int:
    """Print one line a check; return 0 when nothing is broken, else 1."""
    checks: dict[str, Callable[[], Iterator[str]]] = {
        "python": _python,
        "versions": _versions,
        "packages": _packages,
        "profiles": _profiles,
        "workloads": _workloads,
        "policies": _policies,
        "store": lambda: _store(root),
    }
    broken = 0
    for name, check in checks.items():
        try:
            for said in check():
                print(f"ok       {name}: {said}")
        except InputError as e:
            broken += 1
            print(f"BROKEN   {name}: {e}")
        except Exception as e:
            broken += 1
            print(f"BROKEN   {name}: {type(e).__name__}: {' '.join(str(e).split())}")
    for extra, (module, use) in EXTRAS.items():
        there = importlib.util.find_spec(module) is not None
        print(f"{'ok' if there else _ABSENT:<8} extra {extra}: {module}, for {use}")
    return 1 if broken else 0


def _python() -> Iterator[str]:
    yield f"{sys.version.split()[0]} at {sys.executable}"


def _versions() -> Iterator[str]:
    found = identity.versions()
    absent = [name for name, version in found.items() if version == _ABSENT and name != "foreserve"]
    if absent:
        raise InputError(f"not installed: {', '.join(absent)}; pip install {' '.join(absent)}")
    yield ", ".join(f"{name} {version}" for name, version in found.items())


def _packages() -> Iterator[str]:
    """Top-level names are common words: another distribution may own one, and shadow ours."""
    owners = importlib.metadata.packages_distributions()
    there = [name for name in PACKAGES if (identity.ROOT / name / "__init__.py").is_file()]
    for name in there:
        spec = importlib.util.find_spec(name)
        origin = Path(spec.origin).resolve() if spec is not None and spec.origin else None
        if origin is None or identity.ROOT not in origin.parents:
            raise InputError(
                f"import {name} finds {origin}, not {identity.ROOT / name}; remove the other one"
            )
        others = sorted(set(owners.get(name, [])) - {"foreserve"})
        if others:
            raise InputError(f"the name {name} also belongs to {', '.join(others)}; uninstall it")
    yield f"{', '.join(there)} have one owner, {identity.ROOT}"


def _profiles() -> Iterator[str]:
    from calibration import catalog

    names = catalog.names()
    if not names:
        raise InputError("no profile is there; run python -m calibration build")
    for name in names:
        if catalog.open(name).name != name:
            raise InputError(f"profile {name}: the file's name is not that of the profile in it")
    yield f"{len(names)} files parse"


def _workloads() -> Iterator[str]:
    from traces import workloads

    names = workloads.names()
    if not names:
        raise InputError("no embedded workload is there: the installation lacks its data files")
    for name in names:
        workload = workloads.open(name)
        yield f"{name}: {workload.n_workflows} workflows, {workload.n_requests} requests"


def _policies() -> Iterator[str]:
    from policies import registry
    from policies.api import FAMILIES

    count = 0
    for family in FAMILIES:
        for name in registry.names(family):
            registry.find(family, name)
            count += 1
    yield f"{count} policies of {len(FAMILIES)} families import"


def _store(root: Path) -> Iterator[str]:
    if root.exists():
        store = Store(root)
        store.create()
        with tempfile.NamedTemporaryFile(dir=store.tmp):
            pass
        yield f"{root} is writable, {len(store.run_ids())} complete runs"
        return
    parent = next(p for p in root.resolve().parents if p.exists())
    try:
        with tempfile.NamedTemporaryFile(dir=parent):
            pass
    except OSError as e:
        raise InputError(f"{parent}: {e.strerror}; choose another place with store=DIR") from None
    yield f"{root} does not exist yet; {parent} is writable"
