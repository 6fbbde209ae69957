"""What a run of workflows against a server is told."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar, cast

from live.agents.server import Patience
from live.profile import without_costs
from policies import registry
from policies.api import CandidateDrafter, Gate, HostInfo, Policy, ReusePolicy
from policies.branch_hosting.recorded import RecordedChoices
from policies.branching import BranchingConfig
from policies.candidates.none import NoCandidates
from policies.costs import Profile, load_profile
from policies.gates.never import Never
from policies.views import Slowdown
from traces.errors import InputError
from traces.schema import Workload

P = TypeVar("P", bound=Policy[Any])
_CAPACITY_TOKENS = 1 << 20


@dataclass(frozen=True)
class AgentSettings:
    """Options of a run.

    workload      an embedded workload, or a file of one
    server        address of a server that speaks the OpenAI API
    model         its name there; "": the only one that is served
    workflows     how many to run, drawn from the workload; 0: all of it
    concurrency   workflows at once
    scale         tokens of a prompt in the workload to one word here
    output_scale  tokens of an answer in the workload to one that is asked for; 0: as `scale`
    time_scale    factor on the durations of tools, waits and drafting
    gate, candidate, reuse   policies by name; *_options: theirs
    branching     of the controller (`BranchingConfig`); fills have low priority unless it says otherwise
    seed          of the draw of workflows, their order, policies' draws and waits before retries
    profile       a profile file, for gates that price fills
    store         file of results that outlive the run; None: in memory
    slots         sequences that the server runs at once (`max_num_seqs`)
    kv_tokens     KV tokens that it holds, of which fills may reserve `branching.kv_share`
    poll_s        time between looks at its metrics
    signals       name the workflow, agent and stage of every request in `vllm_xargs`, for policies inside the server
    patience      retries and deadline of canonical requests; a fill is tried once
    policy_path   folder of the user's own policies
    """

    workload: str
    server: str
    model: str = ""
    workflows: int = 0
    concurrency: int = 4
    scale: float = 16.0
    output_scale: float = 0.0
    time_scale: float = 1.0
    seed: int = 0
    gate: str = "never"
    gate_options: Mapping[str, Any] = field(default_factory=dict)
    candidate: str = "none"
    candidate_options: Mapping[str, Any] = field(default_factory=dict)
    reuse: str = "none"
    reuse_options: Mapping[str, Any] = field(default_factory=dict)
    branching: BranchingConfig = field(default_factory=lambda: BranchingConfig(priority="low"))
    profile: Path | None = None
    store: Path | None = None
    slots: int = 8
    kv_tokens: int = _CAPACITY_TOKENS
    poll_s: float = 0.2
    signals: bool = False
    patience: Patience = field(default_factory=Patience)
    policy_path: Path | None = None

    def __post_init__(self) -> None:
        for name, least in (("workflows", 0), ("concurrency", 1), ("slots", 1), ("kv_tokens", 1)):
            if getattr(self, name) < least:
                raise InputError(f"{name}={getattr(self, name)}, allowed: a whole number of at least {least}")
        for name, low, high in (
            ("scale", 1e-3, 1e6), ("poll_s", 1e-3, 1e6), ("output_scale", 0.0, 1e6), ("time_scale", 0.0, 1e3),
        ):  # fmt: skip
            value = getattr(self, name)
            if not low <= value <= high or 0 < value < 1e-6:
                raise InputError(f"{name}={value}, allowed: {low:g} to {high:g}")

    @property
    def asks(self) -> str:
        """What answers depend on beside the prompt's identity, and on the model."""
        return f"greedy, scale {self.scale:g}, output scale {self.output_scale or self.scale:g}"

    def load_gate(self) -> Gate[Any]:
        """Return the gate. Raises InputError for a name, an option or a need that cannot be met here."""
        return cast("Gate[Any]", self._load("gates", self.gate, self.gate_options))

    def load_candidate(self) -> CandidateDrafter[Any]:
        """Return the candidate drafter. Raises InputError as `load_gate` does."""
        return cast("CandidateDrafter[Any]", self._load("candidates", self.candidate, self.candidate_options))

    def load_reuse(self) -> ReusePolicy[Any]:
        """Return the reuse policy. Raises InputError as `load_gate` does."""
        return cast("ReusePolicy[Any]", self._load("reuse", self.reuse, self.reuse_options))

    def check(self) -> None:
        """Raise InputError for policies that are not there, and for what would do nothing."""
        gate, candidate, reuse = self.load_gate(), self.load_candidate(), self.load_reuse()
        if not isinstance(gate, Never) and isinstance(candidate, NoCandidates):
            raise InputError(f"gate={self.gate}: needs a candidate drafter to fill anything (--candidate)")
        if self.store is not None and not reuse.active():
            raise InputError(f"store={self.store}: nothing is reused without a reuse policy (--reuse)")

    def host_info(self, workload: Workload, needs: frozenset[str]) -> HostInfo:
        """Return what policies are told; recorded choices only where they declare the need."""
        profile: Profile
        slowdown: Slowdown | None = None
        if self.profile is None:
            profile, slowdown = without_costs(1 << 20, 1), _Unpriced((0,), (0,), ((1.0,),))
        else:
            profile = load_profile(self.profile)
        oracle = RecordedChoices(workload) if "oracle" in needs and workload.branches is not None else None
        return HostInfo(
            profile=profile,
            block_tokens=16,
            capacity_tokens=self.kv_tokens,
            max_num_seqs=self.slots,
            agents=workload.agents,
            seed=self.seed,
            slowdown=slowdown,
            branch_oracle=oracle,
        )

    def _load(self, family: str, name: str, options: Mapping[str, Any]) -> Policy[Any]:
        policy = registry.load(family, name, options, self.policy_path)
        unmet = policy.needs - {"oracle"}  # a trace that is replayed knows its choices
        if unmet:
            raise InputError(
                f"{name} needs {', '.join(sorted(unmet))}, which no server tells the workflows it serves"
            )
        return policy


class _Unpriced(Slowdown):
    """Stands where nobody measured what a fill costs: a gate that looks at it is refused, when it makes its state."""

    def __bool__(self) -> bool:
        return bool(self.at(0, 0))

    def at(self, fills: float, fill_kv_tokens: float) -> float:
        """Raises InputError."""
        raise InputError("a gate that prices fills needs a profile of the server's engine (--profile FILE)")
