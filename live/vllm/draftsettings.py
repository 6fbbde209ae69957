"""What the drafter host is told when the engine starts (`additional_config["foreserve_drafting"]`)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, cast

from policies.api import Budget, Drafter
from policies.costs import Profile, load_profile
from policies.registry import load
from traces.errors import InputError, nearest

KEY = "foreserve_drafting"
PROPOSER = "live.vllm.proposer.PolicyProposer"
_STEP_PS = 1_000_000


@dataclass(frozen=True)
class DraftSettings:
    """Options of the drafter host.

    drafter, budget     names of the policies; drafter_options, budget_options: theirs
    agents              names of agents, as requests refer to them; "APPLICATION/ROLE" shares an application's history
    tokens_max          most tokens drafted for a request in a step (vLLM's num_speculative_tokens)
    profile             a profile file, for budgets that price; without it every step costs the same
    policy_path         folder of the user's own policies
    call_ms_max         a policy that takes longer three times is dropped; 0: however slow it is
    corrupt_every       every so many drafted tokens one is replaced by another: outputs must not change; 0: none is
    keep_steps          keep what every step verified for every request, for comparisons; grows with the run
    seed                of the policies' own draws
    log_file            where counts and costs of the policies' calls go when the worker ends; "": nowhere
    """

    drafter: str = "ngram"
    drafter_options: Mapping[str, Any] = field(default_factory=dict)
    budget: str = "fixed_k"
    budget_options: Mapping[str, Any] = field(default_factory=dict)
    agents: tuple[str, ...] = ()
    tokens_max: int = 8
    profile: str = ""
    policy_path: str = ""
    call_ms_max: float = 100.0
    corrupt_every: int = 0
    keep_steps: bool = False
    seed: int = 0
    log_file: str = ""

    def __post_init__(self) -> None:
        if self.tokens_max < 1:
            raise InputError(f"tokens_max={self.tokens_max}, allowed: at least 1")
        if self.corrupt_every < 0:
            raise InputError(f"corrupt_every={self.corrupt_every}, allowed: at least 0")

    def load_drafter(self) -> Drafter[Any]:
        """Return the drafter. Raises InputError for one that needs what a live engine lacks, a model included."""
        policy = cast("Drafter[Any]", load("drafters", self.drafter, self.drafter_options, self._path()))
        if policy.needs:
            raise InputError(
                f"drafter={self.drafter} needs {', '.join(sorted(policy.needs))}: no live engine gives it"
            )
        if policy.acceptance():
            raise InputError(
                f"drafter={self.drafter} states its acceptance and drafts no tokens: simulator only"
            )
        return policy

    def load_budget(self) -> Budget[Any]:
        """Return the budget. Raises InputError as `load_drafter` does."""
        policy = cast("Budget[Any]", load("budgets", self.budget, self.budget_options, self._path()))
        if policy.needs:
            raise InputError(
                f"budget={self.budget} needs {', '.join(sorted(policy.needs))}: no live engine gives it"
            )
        return policy

    def load_profile(self, max_model_len: int) -> Profile:
        """Return the profile named, or one whose steps all cost the same."""
        if self.profile:
            return load_profile(Path(self.profile))
        return Profile(
            identity={
                "gpu": "any", "tp": 1, "model": "any", "precision": "any", "engine": "vllm", "timing": "none",
            },
            linear_tokens=(1,), linear_ps=(_STEP_PS,), kv_read_ps_per_token=0, attention_as_per_pair=0,
            per_seq_ps=0, overhead_ps=0, overhead_per_seq_ps=0, kv_bytes_per_token=1000, weight_bytes=1,
            gpu_bytes=1, max_model_len=max_model_len, pcie_bytes_per_s=1, pcie_copy_overhead_ps=0,
        )  # fmt: skip

    def engine_arguments(self) -> dict[str, Any]:
        """Return vLLM's arguments that load this host: for `LLM(...)`, on the device that the platform has."""
        return {
            "speculative_config": {
                "method": "custom_class", "model": PROPOSER, "num_speculative_tokens": self.tokens_max,
            },
            "additional_config": {KEY: asdict(self)},
        }  # fmt: skip

    def _path(self) -> Path | None:
        return Path(self.policy_path) if self.policy_path else None


def parse_draft_settings(given: Mapping[str, Any]) -> DraftSettings:
    """Return the settings in `additional_config`. Raises InputError for an unknown option, with the nearest name.

    >>> parse_draft_settings({"drafter": "suffix", "agents": ["a/x"]}).agents
    ('a/x',)
    """
    known = DraftSettings.__dataclass_fields__
    for name in given:
        if name not in known:
            raise InputError(nearest(name, known, what=f"option of {KEY}"))
    values: dict[str, Any] = {k: tuple(v) if k == "agents" else v for k, v in given.items()}
    return DraftSettings(**values)
