"""Token-level speculation on one replica: draft, divide the budget, verify, roll back.

The drafter proposes for each decoding request, the budget divides the batch's draft tokens, and the step is priced at
its verification width: all new tokens through the linear layers, attention of 1 + k queries a sequence in the regime
asked for. KV of a draft is allocated before the step; what its rejected tail took is free again after it. A draft that
finds no block, or no room in the token budget, is dropped: it never preempts. Tokens drafted past a request's end are
verified in vain, as an engine does that cannot know the end.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from policies.api import BatchView, Budget, Drafter, HostInfo, Profile, Proposals, RequestView
from policies.costs import VERIFY_REGIMES
from sim.accept import Acceptance
from sim.batch import DecodeBatch
from sim.clock import PS_PER_NS
from sim.request import Request
from traces.transcript import applications

_PRIOR_RATE = 0.5  # share of a draft that is accepted, before a request has been seen to accept any
_KEPT = 0.9  # weight of the past in its moving average


class Drafted(NamedTuple):
    """What drafting makes of the step about to run.

    tokens         drafted tokens to verify
    cost_ps        what drafting adds to the step
    width          new tokens a sequence where all have as many, else 0
    read_tokens    KV tokens that attention reads beyond those of plain decoding
    blocks         KV blocks the drafts need
    widest         new tokens of the sequence that has most
    """

    tokens: int = 0
    cost_ps: int = 0
    width: int = 1
    read_tokens: int = 0
    blocks: int = 0
    widest: int = 1


class Speculator:
    """Drives one replica's drafter and budget. Every method but `counts` mutates.

    draft_ps        time spent drafting so far
    read_tokens     KV tokens that verification has read beyond plain decoding, under each regime of `VERIFY_REGIMES`
    drafting_steps  steps that verified a draft
    """

    def __init__(
        self,
        drafter: Drafter[Any],
        budget: Budget[Any],
        host: HostInfo,
        acceptance: Acceptance,
        profile: Profile,
        block_tokens: int,
        *,
        regime: str = "profile",
        max_len: int | None = None,
    ) -> None:
        self._drafter = drafter
        self._budget = budget
        self._drafter_state = drafter.new_state(host)
        self._budget_state = budget.new_state(host)
        self._acceptance = acceptance
        self._profile = profile
        self._block_tokens = block_tokens
        self._max_len = max_len or profile.max_model_len
        self._applications = applications(host.agents)
        named = profile.verify.get("regime") if regime == "profile" else regime
        self._regime = VERIFY_REGIMES.index(named) if named in VERIFY_REGIMES else None
        self._group = int(profile.verify.get("group", 1))
        self._rows = int(profile.verify.get("packed_rows", 64))
        self._growth = int(profile.verify.get("growth_permille", 0))
        self._step: list[tuple[Request, int, int, int]] = []  # request, version, drafted, accepted
        self._held_blocks = 0
        self._knows_length = "output_length" in drafter.needs
        self._told: dict[int, int] = {}  # output tokens the drafter has been told, by request
        self._rate: dict[int, float] = {}
        self.draft_ps = 0
        self.read_tokens = [0, 0]
        self.drafting_steps = 0

    @property
    def on_cpu(self) -> bool:
        """Whether drafting holds up scheduling ahead."""
        return self._drafter.on_cpu

    @property
    def drops_last_block(self) -> bool:
        """Whether a cached prefix is shortened by its last block.

        A draft model that reads the target's hidden states needs those of the tokens just before its first one, so
        vLLM recomputes the last cached block of a prompt.
        """
        return bool(self._drafter.acceptance())

    def begin(self, request: Request) -> None:
        """A request starts decoding, or goes on after a preemption: its prefill emitted a token."""
        key = request.stage
        told = self._told.get(key)
        if told is None:
            view = RequestView(
                key,
                request.stage,
                request.workflow,
                self._applications[request.agent] if request.agent >= 0 else -1,
                request.released_ps // PS_PER_NS,
                request.prompt_tokens,
                query=request.workflow,
                output_length_tokens=request.output_tokens if self._knows_length else -1,
            )
            self._drafter.begin(self._drafter_state, view, self._acceptance.prompt(request.stage))
            told = 0
        self._commit(request, told, request.generated - told)

    def _commit(self, request: Request, position: int, count: int) -> None:
        stage = request.stage
        if position != self._told.get(stage, 0):  # whatever was drafted, each recorded token is emitted once
            raise AssertionError(f"stage {stage}: token {position} follows token {self._told.get(stage, 0)}")
        tokens = self._acceptance.emitted(stage, position, count)
        self._drafter.commit(
            self._drafter_state, stage, tokens, self._acceptance.blocks(stage, position, count)
        )
        self._told[stage] = position + count

    def finish(self, request: Request) -> None:
        """A request ended, perhaps with a token that its prefill emitted after a preemption."""
        told = self._told.get(request.stage)
        if told is not None:
            if told < request.generated:
                self._commit(request, told, request.generated - told)
            del self._told[request.stage]
            self._drafter.finish(self._drafter_state, request.stage)
            self._rate.pop(request.stage, None)

    def draft(
        self, batch: DecodeBatch, decoding: list[Request], spare_tokens: int, spare_blocks: int, now_ps: int
    ) -> Drafted:
        """Draft for the step about to run."""
        view = BatchView(now_ps // PS_PER_NS, batch.seqs, batch.context_tokens, 0)
        limit = self._budget.limit(self._budget_state, view)
        stages = [r.stage for r in decoding]
        rates = self._rate
        proposals = Proposals(
            request=np.array(stages, dtype=np.int32),
            length=np.zeros(len(decoding), dtype=np.int32),
            drafts=self._drafter.propose_batch(self._drafter_state, stages, limit),
            acceptance=np.array([rates.get(s, _PRIOR_RATE) for s in stages], dtype=np.float32),
        )
        drafts = proposals.drafts
        proposed = [len(d.tokens) for d in drafts]
        proposals.length[:] = proposed
        granted = self._budget.allocate(self._budget_state, proposals, view).tolist()
        size, step = self._block_tokens, batch.step
        entries = []
        total = blocks = packed = grown = 0
        widths = {0} if len(decoding) < batch.seqs else set()  # fills decode without drafts
        for request, draft, k in zip(decoding, drafts, granted, strict=True):
            accepted = 0
            if k:
                gained = step - request.join_step
                kv = request.computed_tokens + gained + 1
                k = min(k, len(draft.tokens), spare_tokens - total, self._max_len - kv)
                more = -(-(kv + k) // size) - -(-kv // size)
                if k <= 0 or blocks + more > spare_blocks:
                    k = 0
                else:
                    total += k
                    blocks += more
                    packed += (kv + k) * -(-(1 + k) * self._group // self._rows) - kv
                    grown += (kv + k) * (1000 + self._growth * k) // 1000 - kv
                    position = request.generated + gained
                    accepted = self._acceptance.prefix(request.stage, position, draft, k)
                    accepted = min(accepted, request.output_tokens - position - 1)
            widths.add(k)
            entries.append((request, request.version, k, accepted))
        self._step = entries
        self._held_blocks = blocks
        cost_ps = self._drafter.cost_ps(self._profile, batch.seqs, sum(proposed), batch.context_tokens)
        self.draft_ps += cost_ps
        self.drafting_steps += total > 0
        self.read_tokens[0] += packed
        self.read_tokens[1] += grown
        read = total if self._regime is None else (packed, grown)[self._regime]
        widest = 1 + max(widths)
        return Drafted(total, cost_ps, widest if len(widths) == 1 else 0, read, blocks, widest)

    def counts(self) -> tuple[int, int]:
        """Return (drafted, accepted) tokens of the step in progress."""
        return sum(e[2] for e in self._step), sum(e[3] for e in self._step)

    def verify(self, batch: DecodeBatch) -> tuple[list[tuple[Request, int]], int]:
        """Return (request, accepted tokens beyond the step's own) where there are any, and the blocks to give back.

        Of the step that ended; tells the policies. Requests that left the batch during it have lost their draft.
        """
        step, self._step = self._step, []
        blocks, self._held_blocks = self._held_blocks, 0
        step = [e for e in step if e[0].join_step >= 0 and e[0].version == e[1]]
        if step:
            self._budget.observe(
                self._budget_state,
                np.array([e[0].stage for e in step], dtype=np.int32),
                np.array([e[2] for e in step], dtype=np.int32),
                np.array([e[3] for e in step], dtype=np.int32),
            )
        out, stages, tokens, open_blocks = [], [], [], []
        acceptance, told = self._acceptance, self._told
        for request, _, k, accepted in step:
            stage = request.stage
            if k:
                request.drafted_tokens += k
                request.accepted_tokens += accepted
                old = self._rate.get(stage, _PRIOR_RATE)
                self._rate[stage] = _KEPT * old + (1 - _KEPT) * accepted / k
                if accepted:
                    out.append((request, accepted))
            position = request.generated + batch.step - request.join_step - 1
            stages.append(stage)
            tokens.append(acceptance.emitted(stage, position, accepted + 1))
            open_blocks.append(acceptance.blocks(stage, position, accepted + 1))
            told[stage] = position + accepted + 1
        self._drafter.commit_batch(self._drafter_state, stages, tokens, open_blocks)
        return out, blocks
