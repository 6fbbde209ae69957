"""Conformance laws: what every policy of a family must keep, and what a user runs on their own.

`check(policy, seeds)` drives the policy with a small host of its family and raises AssertionError in words.
From the command line: `python -m policies check policy_path=DIR evictor=NAME`.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable
from typing import Any

from policies import _laws_branching, _laws_engine, _laws_workflow
from policies._laws_evictors import check_evictor
from policies._toy_tree import ToyOracle
from policies.api import FAMILIES, HostInfo, Policy
from policies.costs import Profile
from policies.registry import describe

NEEDS = frozenset({"oracle", "output_length"})

_CHECKS: dict[str, Callable[[Any, HostInfo, Iterable[int]], None]] = {
    "evictors": check_evictor,
    "drafters": _laws_engine.check_drafter,
    "budgets": _laws_engine.check_budget,
    "bucketers": _laws_engine.check_bucketer,
    "prefetchers": _laws_engine.check_prefetcher,
    "routers": _laws_workflow.check_router,
    "gates": _laws_branching.check_gate,
    "candidates": _laws_branching.check_candidates,
    "reuse": _laws_branching.check_reuse,
    "predictors": _laws_workflow.check_predictor,
}


def check(policy: Policy[Any], seeds: Iterable[int] = range(3)) -> None:
    """Raise AssertionError, with the policy's name and the law, when the policy breaks a law of its family.

    Any other exception of the policy is reported the same way. Does not mutate the policy, and says so if it
    does.
    """
    name = describe(policy)
    try:
        _check_class(policy)
        before, shared = _fields(policy), _class_values(policy)
        host = toy_host()
        if policy.needs:
            host = dataclasses.replace(
                host, oracle=ToyOracle(0, 100), branch_oracle=_laws_branching.ToyBranchOracle()
            )
        _check_states(policy, host)
        _CHECKS[policy.family](policy, host, list(seeds))
        assert _fields(policy) == before, "a method changed a field of the policy"
        assert _class_values(policy) == shared, (
            "a method changed a class attribute; keep what is learnt in the state"
        )
    except AssertionError as e:
        raise AssertionError(f"{name}: {e}") from e
    except Exception as e:
        raise AssertionError(f"{name}: {type(e).__name__}: {e}") from e


def toy_host(seed: int = 0) -> HostInfo:
    """Return a small host with a made-up profile (no measured number) and no oracle."""
    profile = Profile(
        identity={
            "gpu": "toy",
            "tp": 1,
            "model": "toy",
            "precision": "any",
            "engine": "toy",
            "timing": "made up",
        },
        linear_tokens=(1, 64, 1024),
        linear_ps=(10_000_000, 12_000_000, 90_000_000),
        kv_read_ps_per_token=50_000,
        attention_as_per_pair=2_000_000,
        per_seq_ps=1000,
        overhead_ps=1_000_000,
        overhead_per_seq_ps=10_000,
        kv_bytes_per_token=1024,
        weight_bytes=1 << 20,
        gpu_bytes=1 << 30,
        max_model_len=1 << 16,
        pcie_bytes_per_s=1 << 30,
        pcie_copy_overhead_ps=1_000_000,
    )
    return HostInfo(profile, block_tokens=16, capacity_tokens=4096, agents=("a", "b", "c"), seed=seed)


def _check_class(policy: Policy[Any]) -> None:
    cls = type(policy)
    assert FAMILIES.get(policy.family) is not None, f"family {policy.family!r} is none of {sorted(FAMILIES)}"
    assert isinstance(policy, FAMILIES[policy.family]), f"not a {FAMILIES[policy.family].__name__}"
    params = vars(cls).get("__dataclass_params__")
    assert params is not None, f"class {cls.__name__} lacks the decorator @dataclass(frozen=True)"
    assert params.frozen, f"class {cls.__name__}: the dataclass must be frozen"
    assert isinstance(policy.needs, frozenset), f"needs must be a frozenset, got {policy.needs!r}"
    assert policy.needs <= NEEDS, (
        f"needs {sorted(policy.needs - NEEDS)}, which no host has; allowed: {sorted(NEEDS)}"
    )
    assert isinstance(policy.label, str), f"label must be a text, got {policy.label!r}"


def _check_states(policy: Policy[Any], host: HostInfo) -> None:
    """Two states share nothing that can change."""
    a, b = policy.new_state(host), policy.new_state(host)
    if a is b:
        assert a is None or isinstance(a, int | float | str | bytes | tuple | frozenset), (
            f"new_state returned the same {type(a).__name__} twice; every call must make a new one"
        )


def _fields(policy: Policy[Any]) -> str:
    return repr([getattr(policy, f.name) for f in dataclasses.fields(policy)])


def _class_values(policy: Policy[Any]) -> str:
    values = {
        f"{cls.__qualname__}.{key}": repr(value)
        for cls in type(policy).__mro__
        if issubclass(cls, Policy)
        for key, value in vars(cls).items()
        if isinstance(value, int | float | str | list | dict | set | frozenset | tuple)
        and not key.startswith("__")
    }
    return repr(sorted(values.items()))
