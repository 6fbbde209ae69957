"""A small language model sampled N times, candidates ranked by how often it names them (DynBranch section 3.2)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from policies._branch_ranking import Option, options, ranked
from policies.api import BranchView, Candidate, CandidateDrafter, HostInfo
from policies.costs import Profile, load_profile
from traces.errors import InputError

_KINDS = ("draft_lm", "retrieval", "entity")


@dataclass(frozen=True)
class DraftLMState:
    """What draws, and what one draft costs."""

    host: HostInfo
    cost_ns: int


@dataclass(frozen=True)
class DraftLM(CandidateDrafter[DraftLMState]):
    """Samples come from the model's measured distribution over options: the workload's scores of its kind.

    Where nobody measured a model, another ranker's scores stand in for it, and say nothing about models. Its cost is
    one batch of N short decodes of its own profile; the host says which device it runs on.

    kind            which of the workload's scores are the distribution (any scale; shares are taken); empty: the
                    first of draft_lm, retrieval and entity that the branch has
    samples         N
    sharpness       exponent on the shares: above 1 a more decided model, below 1 a flatter one
    profile         file of the drafter model's profile; without it drafting takes what the trace says
    prompt_tokens   prompt of a draft, prefilled once and shared by the samples
    output_tokens   tokens that one sample takes
    """

    kind: str = ""
    samples: int = 8
    sharpness: float = 1.0
    profile: str | None = None
    prompt_tokens: int = 1024
    output_tokens: int = 24

    label = "draft LM"
    source = "DynBranch sections 3.2 and 5.3"

    def __post_init__(self) -> None:
        for name in ("samples", "prompt_tokens", "output_tokens"):
            if getattr(self, name) < 1:
                raise InputError(f"candidate.{name}={getattr(self, name)}: expected at least 1")
        if not self.sharpness > 0:
            raise InputError(f"candidate.sharpness={self.sharpness}: expected above 0")

    def files(self) -> tuple[Path, ...]:
        """Return the drafter's profile."""
        return () if self.profile is None else (Path(self.profile),)

    def new_state(self, host: HostInfo) -> DraftLMState:
        """Read the drafter's profile, if one is named."""
        if self.profile is None:
            return DraftLMState(host, 0)
        return DraftLMState(host, self._batch_ns(load_profile(Path(self.profile))))

    def propose(self, state: DraftLMState, branch: BranchView, limit: int) -> Sequence[Candidate]:
        """Sample N times and rank by votes; what gets no vote is no candidate."""
        kind = self.kind or next((k for k in _KINDS if k in branch.scores), "")
        scores = branch.scores.get(kind, ())
        # Sorted: samples must not depend on the menu's order, which may tell what was taken.
        pairs = sorted((o, s) for o, s in zip(options(branch), scores, strict=False) if s > 0)
        # Rounded before they are compared with draws: pow differs in its last bits between machines.
        weights = [round((s / max(x for _, x in pairs)) ** self.sharpness, 9) for _, s in pairs]
        total = sum(weights)
        if total <= 0:
            return ()
        votes: dict[Option, int] = {}
        for n in range(self.samples):
            luck = state.host.draw("draft sample", branch.workflow, branch.stage, n) * total
            for (option, _), weight in zip(pairs, weights, strict=True):
                luck -= weight
                if luck < 0:
                    votes[option] = votes.get(option, 0) + 1
                    break
        return ranked(((o, n / self.samples) for o, n in votes.items()), limit)

    def cost_ns(self, state: DraftLMState, branch: BranchView, limit: int) -> int | None:
        """Return one prefill and N decodes in a batch, on the drafter's own profile."""
        return state.cost_ns if self.profile is not None else None

    def _batch_ns(self, profile: Profile) -> int:
        prefill = profile.step_ps(self.prompt_tokens, 1, 0) + profile.chunk_attention_ps(
            self.prompt_tokens, 0
        )
        context = self.samples * (self.prompt_tokens + self.output_tokens // 2)
        decode = profile.step_ps(self.samples, self.samples, context) * (self.output_tokens - 1)
        return (prefill + decode) // 1000
