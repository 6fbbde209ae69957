"""SuffixDecoding: draft the most frequent path below the best match, from this request's tree and from all answers'."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from policies._draft_paths import TIE
from policies._draft_pool import History, Run, SuffixPool
from policies._draft_reader import Reader
from policies.api import Draft, Drafter, HostInfo, Profile, RequestView
from traces.errors import InputError


@dataclass(slots=True)
class _Request:
    """A running request: its own tree, its answer in the tree of all, and the end of its text."""

    own: SuffixPool
    text: Run
    answer: Run | None
    tail: NDArray[np.uint32]


@dataclass(slots=True)
class SuffixState:
    """The tree of all answers, which of them are cached (oldest first), and the running requests."""

    every: SuffixPool
    answers: History
    reader: Reader
    other: Reader
    requests: dict[int, _Request] = field(default_factory=dict)
    cached: deque[Run] = field(default_factory=deque)


@dataclass(frozen=True)
class Suffix(Drafter[SuffixState]):
    """SuffixDecoding (Oliaro et al. 2025, section 4; options and defaults of its implementation for vLLM).

    longest     most tokens drafted (vLLM's num_speculative_tokens)
    depth       tokens of the longest string in a tree
    factor      tokens drafted at most, for each token that matched
    offset      and beyond that
    floor       a token is drafted while the path's estimated probability is at least this
    cached      answers in the tree of all; the oldest leave first; 0 keeps none
    history     with_prompt: a request's own tree holds its prompt; generated: its answer alone
    ns_per_seq  what look-ups and updates cost a sequence and step, in ns; the library that vLLM calls took 59,000 with
                100,000 tokens of history and 74,000 with a million, at batch 256 on one core of ours
    """

    label = "SuffixDecoding"
    source = "Oliaro et al. 2025"

    longest: int = 32
    depth: int = 24
    factor: float = 1.0
    offset: float = 0.0
    floor: float = 0.1
    cached: int = 10_000
    history: Literal["with_prompt", "generated"] = "with_prompt"
    ns_per_seq: int = 60_000

    def __post_init__(self) -> None:
        if self.longest < 1 or self.depth < 2 or self.cached < 0 or self.ns_per_seq < 0:
            raise InputError(
                f"longest={self.longest}, depth={self.depth}, cached={self.cached}, ns_per_seq={self.ns_per_seq}: "
                "expected at least 1, 2, 0, 0"
            )
        if not (self.factor >= 0 and 0 <= self.floor <= 1):
            raise InputError(
                f"factor={self.factor}, floor={self.floor}: expected factor >= 0 and floor in 0..1"
            )

    def new_state(self, host: HostInfo) -> SuffixState:
        """Return empty trees. Memory: about 75 bytes a token of the cached answers and of the running requests."""
        return self.state_with(SuffixPool(self.depth))

    def state_with(self, pool: SuffixPool) -> SuffixState:
        """Return empty trees; that of all answers lives in `pool`, compiled or not, and the others are like it."""
        mine, other = (Reader(self.longest, fast=pool.fast) for _ in range(2))
        return SuffixState(pool, pool.history(), mine, other)

    def begin(self, state: SuffixState, request: RequestView, prompt_ids: NDArray[np.uint32]) -> None:
        """Make the request's own tree, and room for its answer in the tree of all. Mutates state."""
        own = SuffixPool(self.depth, fast=state.every.fast)
        text = own.sequence(own.history())
        prompt = prompt_ids if self.history == "with_prompt" else prompt_ids[:0]
        own.append(text, prompt)
        answer = None
        if self.cached:
            answer = state.every.sequence(state.answers)
            state.cached.append(answer)
            if len(state.cached) > self.cached:
                oldest = state.cached.popleft()
                if oldest.growing:  # its request runs on, without a place in the tree of all
                    state.every.close(oldest, forgettable=True)
                state.every.forget(oldest)
        state.requests[request.request] = _Request(own, text, answer, prompt[-self.depth :])

    def commit(
        self,
        state: SuffixState,
        request: int,
        tokens: NDArray[np.uint32],
        blocks: NDArray[np.int8] | None = None,
    ) -> None:
        """Add the tokens to both trees. Mutates state."""
        r = state.requests[request]
        r.own.append(r.text, tokens)
        if r.answer is not None and r.answer.growing:
            state.every.append(r.answer, tokens)
        r.tail = np.concatenate((r.tail, tokens))[-self.depth :]

    def finish(self, state: SuffixState, request: int) -> None:
        """Drop the request's own tree; its answer stays. Mutates state."""
        r = state.requests.pop(request)
        if r.answer is not None and r.answer.growing:
            state.every.close(r.answer, forgettable=True)

    def propose(self, state: SuffixState, request: int, limit: int) -> Draft:
        """Return the path with the best score; the request's own tree wins a tie."""
        r = state.requests[request]
        limit = min(limit, self.longest)
        rule = (self.depth, limit, self.factor, self.offset, self.floor)
        mine = state.reader.frequent(r.own, r.text, r.tail, *rule)
        if self.cached:
            at: Run | History = state.answers
            if r.answer is not None and r.answer.growing and state.every.reach(r.answer) == self.depth:
                at = r.answer  # it holds the whole tail: no need to look it up
            if state.other.frequent(state.every, at, r.tail[1:], *rule) > mine + TIE:
                return state.other.draft()
        return state.reader.draft()

    def cost_ps(self, profile: Profile, seqs: int, drafted_tokens: int, context_tokens: int = 0) -> int:
        """Return the lookups of all sequences, one after another on the host."""
        return self.ns_per_seq * 1000 * seqs
