"""Toy drafters and budgets for tests of the engine: right, wrong, or a mixture, and all they are told is kept."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np

from policies.api import BatchView, Budget, Draft, Drafter, HostInfo, Proposals, RequestView
from traces.schema import Workload


@dataclass
class Told:
    """What a drafter was told: requests begun and finished, prompts, tokens and blocks of each request."""

    begun: list[int] = field(default_factory=list)
    finished: list[int] = field(default_factory=list)
    views: dict[int, RequestView] = field(default_factory=dict)
    prompts: dict[int, list[int]] = field(default_factory=dict)
    tokens: dict[int, list[int]] = field(default_factory=dict)
    blocks: dict[int, list[int]] = field(default_factory=dict)
    proposed: int = 0


@dataclass(frozen=True)
class Knowing(Drafter[Told]):
    """Drafts `length` tokens, of which the first `right` agree with `truth`; a draft's length may vary by position."""

    truth: dict[int, list[int]] = field(default_factory=dict, hash=False, compare=False)
    length: int = 4
    right: int = 2
    ragged: bool = False
    process: tuple[float, ...] = ()
    cost: int = 0
    told: list[Told] = field(default_factory=list, hash=False, compare=False)

    def new_state(self, host: HostInfo) -> Told:
        state = Told()
        self.told.append(state)
        return state

    def acceptance(self) -> tuple[float, ...]:
        return self.process

    def begin(self, state: Told, request: RequestView, prompt_ids: np.ndarray) -> None:
        state.begun.append(request.request)
        state.views[request.request] = request
        state.prompts[request.request] = prompt_ids.tolist()
        state.tokens[request.request] = []
        state.blocks[request.request] = []

    def propose(self, state: Told, request: int, limit: int) -> Draft:
        at = len(state.tokens[request])
        n = min(limit, (self.length + at + request) % (self.length + 1) if self.ragged else self.length)
        truth = self.truth.get(request, [])
        tokens = [t if i < self.right else t ^ 1 for i, t in enumerate(truth[at : at + n])]
        tokens += [7] * (n - len(tokens))
        state.proposed += n
        return Draft(np.array(tokens, dtype=np.uint32), np.full(n, 0.5, dtype=np.float32))

    def commit(self, state: Told, request: int, tokens: np.ndarray, blocks: np.ndarray | None = None) -> None:
        state.tokens[request] += tokens.tolist()
        state.blocks[request] += [-1] * len(tokens) if blocks is None else blocks.tolist()

    def finish(self, state: Told, request: int) -> None:
        state.finished.append(request)

    def cost_ps(self, profile: Any, seqs: int, drafted_tokens: int, context_tokens: int = 0) -> int:
        return self.cost * drafted_tokens


@dataclass(frozen=True)
class Most(Budget[None]):
    """Lets each request draft `tokens`."""

    tokens: int = 4

    def new_state(self, host: HostInfo) -> None:
        return None

    def limit(self, state: None, batch: BatchView) -> int:
        return self.tokens

    def allocate(self, state: None, proposals: Proposals, batch: BatchView) -> np.ndarray:
        return np.minimum(proposals.length, self.tokens).astype(np.int32)


def truth(workload: Workload) -> dict[int, list[int]]:
    """Return the output ids of every stage."""
    assert workload.output_ptr is not None
    assert workload.output_ids is not None
    return {
        s: workload.output_ids[workload.output_ptr[s] : workload.output_ptr[s + 1]].tolist()
        for s in range(workload.n_stages)
    }
