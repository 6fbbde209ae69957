"""What the eviction host is told when the engine starts (`kv_connector_extra_config`)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any, TypeVar, cast

from live.profile import without_costs
from policies.api import Evictor, Policy, Predictor, Prefetcher
from policies.costs import Profile, load_profile
from policies.registry import load
from traces.errors import InputError, nearest

P = TypeVar("P", bound=Policy[Any])
MODULE = "live.vllm.evictor"
CONNECTOR = "EvictionConnector"
HOST_WRITES = ("write_through", "write_through_selective", "write_back")
LOAD_BACKS = ("always", "predicted", "never")


@dataclass(frozen=True)
class EvictionSettings:
    """Options of the eviction host.

    evictor            name of the policy, or "stock": the engine's own order, watched and recorded
    evictor_options    its options, {name: value}
    predictor          forecasts made in the engine's process, from the requests it sees; "none": clients' only
    predictor_options  its options
    agents             names of agents, in the order that numbers and forecasts refer to
    profile            a profile file, for policies that price; without it every cost is 0
    policy_path        folder of the user's own policies
    log_dir            where the run's tables go when the engine shuts down; "" records nothing
    call_ms_max        a policy that takes longer three times is dropped; 0: however slow it is
    seed               of the policy's own draws
    host_blocks        KV blocks of host memory behind the pool; 0: no host tier
    host_evictor       orders what the host holds; host_evictor_options: its options
    host_write         write_through (copy what is computed), write_through_selective (what is hit), write_back (what
                       leaves the pool, with what is missing above it)
    load_back          always, predicted (when cheaper than computing, by the profile), never
    min_load_tokens    less than this is not loaded
    pcie_bytes_per_s   bounds prefetching and predicts loads; 0: prefetching is not bounded by the link
    prefetcher         what comes back before it is asked for; prefetcher_options: its options
    """

    evictor: str = "lru"
    evictor_options: Mapping[str, Any] = field(default_factory=dict)
    predictor: str = "none"
    predictor_options: Mapping[str, Any] = field(default_factory=dict)
    agents: tuple[str, ...] = ()
    profile: str = ""
    policy_path: str = ""
    log_dir: str = ""
    call_ms_max: float = 100.0
    seed: int = 0
    host_blocks: int = 0
    host_evictor: str = "lru"
    host_evictor_options: Mapping[str, Any] = field(default_factory=dict)
    host_write: str = "write_through"
    load_back: str = "always"
    min_load_tokens: int = 1
    pcie_bytes_per_s: int = 0
    prefetcher: str = "none"
    prefetcher_options: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for name, allowed in (("host_write", HOST_WRITES), ("load_back", LOAD_BACKS)):
            if getattr(self, name) not in allowed:
                raise InputError(nearest(getattr(self, name), allowed, what=name))
        for name in ("host_blocks", "min_load_tokens", "pcie_bytes_per_s"):
            if getattr(self, name) < 0:
                raise InputError(f"{name}={getattr(self, name)}, allowed: a whole number of at least 0")

    @property
    def stock(self) -> bool:
        """Whether the engine keeps its own order."""
        return self.evictor == "stock"

    def load_evictor(self) -> Evictor[Any]:
        """Return the policy. Raises InputError for a name, an option or a need that cannot be met here."""
        name = "lru" if self.stock else self.evictor
        policy = cast(
            "Evictor[Any]", load("evictors", name, {} if self.stock else self.evictor_options, self._path())
        )
        return _servable(policy, f"evictor={name}")

    def load_predictor(self) -> Predictor[Any]:
        """Return the predictor. Raises InputError as `load_evictor` does."""
        policy = cast(
            "Predictor[Any]", load("predictors", self.predictor, self.predictor_options, self._path())
        )
        if policy.reads_text:
            raise InputError(
                f"predictor={self.predictor} reads invocations' text, which this host does not give"
            )
        return _servable(policy, f"predictor={self.predictor}")

    def load_host_evictor(self) -> Evictor[Any]:
        """Return the host tier's policy. Raises InputError as `load_evictor` does."""
        policy = load("evictors", self.host_evictor, self.host_evictor_options, self._path())
        return _servable(cast("Evictor[Any]", policy), f"host_evictor={self.host_evictor}")

    def load_prefetcher(self) -> Prefetcher[Any]:
        """Return the prefetcher. Raises InputError as `load_evictor` does, and where there is no host tier."""
        policy = cast(
            "Prefetcher[Any]", load("prefetchers", self.prefetcher, self.prefetcher_options, self._path())
        )
        if policy.active() and not self.host_blocks:
            raise InputError(f"prefetcher={self.prefetcher} needs a host tier: host_blocks is 0")
        return _servable(policy, f"prefetcher={self.prefetcher}")

    def load_profile(self, max_model_len: int, kv_bytes_per_token: int) -> Profile:
        """Return the profile named, or one without costs."""
        if self.profile:
            return load_profile(Path(self.profile))
        return without_costs(max_model_len, kv_bytes_per_token)

    def transfer_config(self) -> dict[str, Any]:
        """Return vLLM's `kv_transfer_config` that loads this host with these settings."""
        given = {
            f.name: list(value) if isinstance(value, tuple) else value
            for f in fields(self)
            if (value := getattr(self, f.name)) != f.default
        }
        return {
            "kv_connector": CONNECTOR,
            "kv_connector_module_path": MODULE,
            "kv_role": "kv_both",
            "kv_connector_extra_config": given,
            # A slot of host memory that does not hold what it should is computed again.
            **({"kv_load_failure_policy": "recompute"} if self.host_blocks else {}),
        }

    def _path(self) -> Path | None:
        return Path(self.policy_path) if self.policy_path else None


def parse_settings(given: Mapping[str, Any]) -> EvictionSettings:
    """Return the settings in `kv_connector_extra_config`.

    Raises InputError for an unknown option, with the nearest name, and for a value of another type.

    >>> parse_settings({"evictor": "lifecycle", "agents": ["planner", "coder"]}).agents
    ('planner', 'coder')
    """
    kinds = {f.name: f.type for f in fields(EvictionSettings)}
    values: dict[str, Any] = {}
    for name, value in given.items():
        if name not in kinds:
            raise InputError(nearest(name, kinds, what="option of kv_connector_extra_config"))
        values[name] = _typed(name, value, str(kinds[name]))
    return EvictionSettings(**values)


def _typed(name: str, value: Any, kind: str) -> Any:
    sound: bool
    if kind == "str":
        sound = isinstance(value, str)
    elif kind == "int":
        sound = isinstance(value, int) and not isinstance(value, bool)
    elif kind == "float":
        sound = isinstance(value, int | float) and not isinstance(value, bool) and value >= 0
    elif kind.startswith("tuple"):
        sound = isinstance(value, list | tuple) and all(isinstance(v, str) for v in value)
        value = tuple(value) if sound else value
    else:
        sound = isinstance(value, Mapping)
    if not sound:
        expected = {"tuple[str, ...]": "a list of names", "float": "a number of at least 0"}.get(kind, kind)
        raise InputError(f"kv_connector_extra_config: field {name!r}: got {value!r}, allowed: {expected}")
    return value


def _servable(policy: P, what: str) -> P:
    if policy.needs:
        raise InputError(f"{what} needs {', '.join(sorted(policy.needs))}, which no live engine can give")
    return policy
