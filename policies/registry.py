"""Policies by name: the file's name is the policy's name. Nothing is imported before it is asked for.

Three places hold policies: this package; the folder a user names with `policy_path=` on the command line
(`<name>.py`, or `<family>/<name>.py`), never in a config file, since a policy is code; and installed packages
with entry points `<family>.<name>` in the group `foreserve.policies`. A name lives in one place only.
"""

from __future__ import annotations

import hashlib
import importlib
import inspect
import pkgutil
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields
from importlib.metadata import EntryPoint, entry_points
from pathlib import Path
from typing import Any

from policies import _options, _userfile
from policies.api import (
    FAMILIES,
    OPTION,
    Bucketer,
    Budget,
    CandidateDrafter,
    Drafter,
    Evictor,
    Gate,
    Policy,
    Predictor,
    Prefetcher,
    ReusePolicy,
    Router,
)
from traces.errors import InputError, nearest

GROUP = "foreserve.policies"
SIMPLEST: dict[str, str] = {
    "gates": "never", "candidates": "none", "reuse": "none", "drafters": "none", "budgets": "none",
    "evictors": "lru", "prefetchers": "none", "predictors": "none", "bucketers": "eager",
    "routers": "round_robin",
}  # fmt: skip


def names(family: str, policy_path: Path | None = None) -> list[str]:
    """Return the sorted names of a family's policies: built in, installed, and in the user's folder."""
    found = set(_built_in(family)) | set(_installed(family))
    if policy_path is not None:
        found |= set(_userfile.names(family, policy_path))
    return sorted(found)


def options(family: str, name: str, policy_path: Path | None = None) -> dict[str, tuple[Any, Any, str]]:
    """Return {option: (type, default, doc)} of a policy, in the order of its dataclass fields.

    The default is `dataclasses.MISSING` where the option must be given. The doc is the field's
    `metadata["doc"]`, or the line of the class docstring that starts with the option's name.
    """
    return _options.describe(find(family, name, policy_path))


def find(family: str, name: str, policy_path: Path | None = None) -> type[Policy[Any]]:
    """Return the policy's class. Raises InputError with the nearest name when there is none."""
    built_in = name in _built_in(family)
    user = _userfile.locate(family, name, policy_path) if policy_path is not None else None
    if built_in and user is not None and _userfile.holds(user, family):
        raise InputError(
            f"{user}: {OPTION[family]} {name!r} is the name of a built-in policy; rename the file"
        )
    if built_in:
        return _single(importlib.import_module(f"policies.{family}.{name}"), family)
    if user is not None:
        return _single(_userfile.load(user, family, name), family)
    point = _installed(family).get(name)
    if point is None:
        where = f" (looked in {policy_path} too)" if policy_path is not None else ""
        raise InputError(nearest(name, names(family, policy_path), what=OPTION[family]) + where)
    try:
        target = point.load()
    except Exception as e:
        raise InputError(f"entry point {family}.{name} = {point.value}: {type(e).__name__}: {e}") from e
    if inspect.isclass(target) and issubclass(target, FAMILIES[family]):
        return target
    if inspect.ismodule(target):
        return _single(target, family)
    raise InputError(
        f"entry point {family}.{name} = {point.value}: neither a {FAMILIES[family].__name__} nor a module"
    )


def load(
    family: str,
    name: str,
    options: Mapping[str, object] | None = None,
    policy_path: Path | None = None,
) -> Policy[Any]:
    """Return the policy with its options set; values may be texts of a command line.

    Raises InputError for an unknown name or option and for a value that does not fit: what is allowed.
    """
    cls = find(family, name, policy_path)
    return _options.build(cls, options or {}, f"{OPTION[family]}={name}", OPTION[family])


def name_of(policy: Policy[Any]) -> str:
    """Return the policy's name: the last part of its module's name."""
    return type(policy).__module__.rpartition(".")[2]


def describe(policy: Policy[Any]) -> str:
    """Return `name(option=value, ...)`, every option written out.

    >>> describe(load("routers", "prefix_aware", {"max_extra_requests": "8"}))
    'prefix_aware(max_extra_requests=8, max_load_ratio=1.5)'
    """
    values = ", ".join(f"{f.name}={getattr(policy, f.name)!r}" for f in fields(policy))
    return f"{name_of(policy)}({values})" if values else name_of(policy)


def source_digest(policy: Policy[Any]) -> str:
    """Return a hex digest of the sources of the policy's class and its bases, and of the files it reads."""
    h = hashlib.blake2b(digest_size=16)
    for cls in type(policy).__mro__:
        path = getattr(sys.modules.get(cls.__module__), "__file__", None)
        if path is not None and issubclass(cls, Policy):
            h.update(cls.__qualname__.encode() + b"\0" + Path(path).read_bytes() + b"\0")
    for file in policy.files():
        h.update(hashlib.blake2b(file.read_bytes()).digest())
    return h.hexdigest()


def _simplest(family: str) -> Callable[[], Any]:
    return lambda: load(family, SIMPLEST[family])


@dataclass(frozen=True)
class PolicySet:
    """One policy of every family, the simplest by default. The fields are the command line's options."""

    evictor: Evictor[Any] = field(default_factory=_simplest("evictors"))
    prefetcher: Prefetcher[Any] = field(default_factory=_simplest("prefetchers"))
    predictor: Predictor[Any] = field(default_factory=_simplest("predictors"))
    drafter: Drafter[Any] = field(default_factory=_simplest("drafters"))
    budget: Budget[Any] = field(default_factory=_simplest("budgets"))
    bucketer: Bucketer[Any] = field(default_factory=_simplest("bucketers"))
    router: Router[Any] = field(default_factory=_simplest("routers"))
    gate: Gate[Any] = field(default_factory=_simplest("gates"))
    candidate: CandidateDrafter[Any] = field(default_factory=_simplest("candidates"))
    reuse: ReusePolicy[Any] = field(default_factory=_simplest("reuse"))

    def needs(self) -> frozenset[str]:
        """Return what the host must be able to give: the union of the ten policies' needs."""
        return frozenset().union(*(getattr(self, f.name).needs for f in fields(self)))


def _built_in(family: str) -> list[str]:
    if family not in FAMILIES:
        raise InputError(nearest(family, FAMILIES, what="policy family"))
    folder = importlib.import_module(f"policies.{family}")
    return [m.name for m in pkgutil.iter_modules(folder.__path__) if not m.name.startswith("_")]


def _installed(family: str) -> dict[str, EntryPoint]:
    points = (p for p in entry_points(group=GROUP) if p.name.startswith(f"{family}."))
    return {p.name.removeprefix(f"{family}."): p for p in points}


def _single(module: Any, family: str) -> type[Policy[Any]]:
    base = FAMILIES[family]
    found = [
        cls
        for cls in vars(module).values()
        if inspect.isclass(cls)
        and issubclass(cls, base)
        and cls.__module__ == module.__name__
        and not inspect.isabstract(cls)
        and not cls.__name__.startswith("_")
    ]
    if len(found) != 1:
        got = ", ".join(c.__name__ for c in found) or "none"
        raise InputError(
            f"{module.__file__}: expected one concrete subclass of {base.__name__}, found {got}"
            + _abstract(module, base)
        )
    cls: type[Policy[Any]] = found[0]
    if "__dataclass_fields__" not in vars(cls):
        raise InputError(
            f"{module.__file__}: class {cls.__name__} lacks the decorator @dataclass(frozen=True)"
        )
    return cls


def _abstract(module: Any, base: type[Policy[Any]]) -> str:
    for cls in vars(module).values():
        if (
            inspect.isclass(cls)
            and issubclass(cls, base)
            and cls.__module__ == module.__name__
            and inspect.isabstract(cls)
        ):
            return f" ({cls.__name__} lacks {', '.join(sorted(cls.__abstractmethods__))})"
    return ""
