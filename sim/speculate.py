"""Token-level speculation on one replica: draft, divide the budget, verify, roll back.

The drafter proposes for each decoding request, the budget divides the batch's draft tokens, and the step is
priced at its verification width. Accepted tokens are committed when the step ends; the rejected tail leaves
no KV.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from policies.api import BatchView, Budget, Drafter, HostInfo, Profile, Proposals, RequestView
from sim.accept import Acceptance
from sim.batch import DecodeBatch
from sim.clock import PS_PER_NS
from sim.request import Request
from traces.transcript import applications


class Speculator:
    """Drives one replica's drafter and budget. Every method but `counts` mutates."""

    def __init__(
        self,
        drafter: Drafter[Any],
        budget: Budget[Any],
        host: HostInfo,
        acceptance: Acceptance,
        profile: Profile,
        block_tokens: int,
    ) -> None:
        self._drafter = drafter
        self._budget = budget
        self._drafter_state = drafter.new_state(host)
        self._budget_state = budget.new_state(host)
        self._acceptance = acceptance
        self._profile = profile
        self._block_tokens = block_tokens
        self._applications = applications(host.agents)
        self._step: list[tuple[Request, int, int]] = []
        self._rate: dict[int, float] = {}

    def begin(self, request: Request) -> None:
        """A request starts decoding (again, after a preemption)."""
        if request.preemptions == 0:
            view = RequestView(
                request.stage,
                request.stage,
                request.workflow,
                self._applications[request.agent] if request.agent >= 0 else -1,
                request.released_ps // PS_PER_NS,
                request.prompt_tokens,
                query=request.workflow,
            )
            self._drafter.begin(self._drafter_state, view, self._acceptance.prompt(request.stage))
            first = self._acceptance.emitted(request.stage, 0, request.generated)
            blocks = self._acceptance.blocks(request.stage, 0, len(first))
            self._drafter.commit(self._drafter_state, request.stage, first, blocks)

    def finish(self, request: Request) -> None:
        """A request ended."""
        if request.output_tokens > 1:
            self._drafter.finish(self._drafter_state, request.stage)
            self._rate.pop(request.stage, None)

    def draft(
        self, batch: DecodeBatch, decoding: list[Request], spare_tokens: int, spare_blocks: int, now_ps: int
    ) -> tuple[int, int, int]:
        """Draft for the step about to run.

        Returns (tokens drafted in all, drafting cost in ps, new tokens a sequence if equal for all, else 0).
        """
        view = BatchView(now_ps // PS_PER_NS, batch.seqs, batch.context_tokens, 0)
        limit = self._budget.limit(self._budget_state, view)
        drafts, usable = [], []
        for request in decoding:
            left = request.output_tokens - request.generated - (batch.step - request.join_step) - 1
            draft = self._drafter.propose(self._drafter_state, request.stage, max(min(limit, left), 0))
            drafts.append(draft)
            usable.append(min(len(draft.tokens), max(left, 0)))
        proposals = Proposals(
            request=np.array([r.stage for r in decoding], dtype=np.int32),
            length=np.array(usable, dtype=np.int32),
            drafts=drafts,
            acceptance=np.array([self._rate.get(r.stage, 0.5) for r in decoding], dtype=np.float32),
        )
        granted = self._budget.allocate(self._budget_state, proposals, view)
        self._step = []
        total = 0
        for i, request in enumerate(decoding):
            k = min(int(granted[i]), usable[i], spare_tokens - total)
            kv = request.computed_tokens + batch.step - request.join_step + 1
            blocks = -(-(kv + k) // self._block_tokens) - -(-kv // self._block_tokens)
            if k <= 0 or blocks > spare_blocks:
                k = blocks = 0
            spare_blocks -= blocks
            total += k
            position = request.generated + batch.step - request.join_step
            accepted = self._acceptance.prefix(request.stage, position, drafts[i], k) if k else 0
            self._step.append((request, k, accepted))
        widths = {k for _, k, _ in self._step}
        cost = self._drafter.cost_ps(self._profile, batch.seqs, sum(len(d.tokens) for d in drafts))
        return total, cost, 1 + widths.pop() if len(widths) == 1 else 0

    def counts(self) -> tuple[int, int]:
        """Return (drafted, accepted) tokens of the step in progress."""
        return sum(k for _, k, _ in self._step), sum(a for _, _, a in self._step)

    def verify(self, batch: DecodeBatch) -> list[tuple[Request, int]]:
        """Return (request, accepted tokens beyond the step's own) of the ended step; tell the policies."""
        step, self._step = self._step, []
        if step:
            self._budget.observe(
                self._budget_state,
                np.array([r.stage for r, _, _ in step], dtype=np.int32),
                np.array([k for _, k, _ in step], dtype=np.int32),
                np.array([a for _, _, a in step], dtype=np.int32),
            )
        out = []
        for request, k, accepted in step:
            request.drafted_tokens += k
            request.accepted_tokens += accepted
            if k:
                old = self._rate.get(request.stage, 0.5)
                self._rate[request.stage] = 0.9 * old + 0.1 * accepted / k
            position = request.generated + batch.step - request.join_step - 1
            tokens = self._acceptance.emitted(request.stage, position, accepted + 1)
            blocks = self._acceptance.blocks(request.stage, position, len(tokens))
            self._drafter.commit(self._drafter_state, request.stage, tokens, blocks)
            out.append((request, accepted))
        return out
