"""AgentSpec's structure-isolated drafting: draft from what the same agent wrote for the same query in such a block."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from policies._draft_pool import History, Run, SuffixPool
from policies._draft_reader import NOTHING, Reader
from policies.api import Draft, Drafter, HostInfo, Profile, RequestView
from traces.errors import InputError
from traces.structure import OUTSIDE, Blocks, parse_structure

_PROMPT = -1  # the block of prompts, which no text is in
Key = tuple[int, int, int]


@dataclass(slots=True)
class _Request:
    """A running request: whose it is, its automaton, the segment it writes, and the end of its text."""

    agent: int
    query: int
    blocks: Blocks | None
    block: int
    segment: Run
    tail: NDArray[np.uint32]


@dataclass(slots=True)
class StructuredState:
    """The caches by (agent, query, block), the running requests, and the last prompt of each (agent, query)."""

    pool: SuffixPool
    own: Reader
    other: Reader
    token_text: Callable[[int], str] | None
    caches: dict[Key, History] = field(default_factory=dict)
    requests: dict[int, _Request] = field(default_factory=dict)
    prompts: dict[Key, NDArray[np.uint32]] = field(default_factory=dict)
    trim_at_tokens: int = 0


@dataclass(frozen=True)
class Structured(Drafter[StructuredState]):
    """AgentSpec (S), section 4.1 and algorithm 1; by_block=false is its variant N, without semantic structure.

    A request's block comes from its `structure` where the host knows the text of tokens, else from the host, with
    the tokens. Its tail, within the block's segment, is looked up in what the same agent wrote for the same query in
    blocks of this kind; the places of its longest suffix that occurred are the candidates (`_draft_paths.consensus`).

    match_min   tokens that must match
    match_max   tokens that are looked at
    longest     most tokens drafted
    factor      tokens drafted at most for each token that matched, as SuffixDecoding does; 0: no such limit
    by_agent    agents share no history (the agent_id of AgentSpec is an application; agents of a trace are its roles)
    by_query    queries share no history
    by_block    kinds of blocks share no history
    history     generated: what was written; with_prompt: the agent's prompts for the query too, where they match longer
    history_tokens  tokens remembered, about 75 bytes each; at the limit the older half is forgotten
    ns_per_seq  what a look-up and its update cost a sequence and step, in ns: ours, compiled, with a million tokens of
                history at batch 256 on one core (`bench policies part=drafters`)
    """

    label = "structure-isolated drafting"
    source = "AgentSpec, section 4.1"

    match_min: int = 2
    match_max: int = 24
    longest: int = 32
    factor: float = 0.0
    by_agent: bool = True
    by_query: bool = True
    by_block: bool = True
    history: Literal["generated", "with_prompt"] = "generated"
    history_tokens: int = 2_000_000
    ns_per_seq: int = 5_500

    def __post_init__(self) -> None:
        if not 1 <= self.match_min <= self.match_max or self.longest < 1:
            raise InputError(
                f"match_min={self.match_min}, match_max={self.match_max}, longest={self.longest}: expected "
                "1 <= match_min <= match_max and longest of at least 1"
            )
        if self.history_tokens < 1 or self.ns_per_seq < 0 or self.factor < 0:
            raise InputError(
                f"history_tokens={self.history_tokens}, ns_per_seq={self.ns_per_seq}, factor={self.factor}: expected "
                "at least 1, 0 and 0"
            )

    def new_state(self, host: HostInfo) -> StructuredState:
        """Return empty caches."""
        return self.state_with(SuffixPool(self.match_max + self.longest), host)

    def state_with(self, pool: SuffixPool, host: HostInfo) -> StructuredState:
        """Return empty caches that live in `pool`, compiled or not."""
        own, other = (Reader(self.longest, fast=pool.fast) for _ in range(2))
        return StructuredState(pool, own, other, host.token_text, trim_at_tokens=self.history_tokens)

    def begin(self, state: StructuredState, request: RequestView, prompt_ids: NDArray[np.uint32]) -> None:
        """Start outside all blocks. Mutates state. Raises InputError for a malformed `structure`."""
        blocks = None
        if self.by_block and request.structure and state.token_text is not None:
            blocks = Blocks(parse_structure(request.structure))
        agent = request.agent if self.by_agent else 0
        query = request.query if request.query >= 0 else request.workflow
        query = query if self.by_query else 0
        if state.pool.tokens > state.trim_at_tokens:
            self._trim(state)
        tail = prompt_ids[:0]
        if self.history == "with_prompt" and len(prompt_ids):
            self._remember(state, (agent, query, _PROMPT), prompt_ids)
            tail = prompt_ids[-self.match_max :]
        segment = state.pool.sequence(self._cache(state, (agent, query, OUTSIDE)))
        state.requests[request.request] = _Request(agent, query, blocks, OUTSIDE, segment, tail)

    def commit(
        self,
        state: StructuredState,
        request: int,
        tokens: NDArray[np.uint32],
        blocks: NDArray[np.int8] | None = None,
    ) -> None:
        """Add the tokens to the block they are in; one that opens or closes a block is its last. Mutates state."""
        self.commit_batch(state, [request], [tokens], [blocks])

    def commit_batch(
        self,
        state: StructuredState,
        requests: Sequence[int],
        tokens: Sequence[NDArray[np.uint32]],
        blocks: Sequence[NDArray[np.int8] | None],
    ) -> None:
        """Do so for several requests at once. Mutates state."""
        cursors: list[int] = []
        parts: list[NDArray[np.uint32]] = []
        for request, new, told in zip(requests, tokens, blocks, strict=True):
            r = state.requests[request]
            start = 0
            for i, block in self._changes(state, r, new, told):
                cursors.append(r.segment.cursor)
                parts.append(new[start:i])
                state.pool.append_parts(cursors, parts)  # before the sequence's number is another's
                cursors, parts, start = [], [], i
                state.pool.close(r.segment)
                r.block = block
                r.segment = state.pool.sequence(self._cache(state, (r.agent, r.query, block)))
            cursors.append(r.segment.cursor)
            parts.append(new[start:] if start else new)
            if self.history == "with_prompt":
                r.tail = np.concatenate((r.tail, new))[-self.match_max :]
        state.pool.append_parts(cursors, parts)

    def finish(self, state: StructuredState, request: int) -> None:
        """End the segment, whatever is open; its tokens stay. Mutates state."""
        state.pool.close(state.requests.pop(request).segment)

    def propose(self, state: StructuredState, request: int, limit: int) -> Draft:
        """Return what followed the latest of the matches that agree, to the end of its segment at most."""
        return self.propose_batch(state, [request], limit)[0]

    def propose_batch(self, state: StructuredState, requests: Sequence[int], limit: int) -> list[Draft]:
        """Do so for several requests at once."""
        limit = min(limit, self.longest)
        if limit < 1:
            return [NOTHING] * len(requests)
        running = [state.requests[request] for request in requests]
        permille = round(1000 * self.factor)
        segments = [r.segment for r in running]
        drafts = state.own.consensus(state.pool, segments, self.match_min, self.match_max, limit, permille)
        if self.history == "with_prompt":
            for i, r in enumerate(running):
                prompt = state.caches.get((r.agent, r.query, _PROMPT))
                if prompt is not None and prompt.root >= 0:
                    matched = state.other.consensus_after(
                        state.pool, prompt, r.tail, self.match_min, limit, permille
                    )
                    if matched > state.own.matched(i):
                        drafts[i] = state.other.draft()
        return drafts

    def cost_ps(self, profile: Profile, seqs: int, drafted_tokens: int, context_tokens: int = 0) -> int:
        """Return the lookups of all sequences, one after another on the host."""
        return self.ns_per_seq * 1000 * seqs

    def _changes(
        self, state: StructuredState, r: _Request, tokens: NDArray[np.uint32], told: NDArray[np.int8] | None
    ) -> list[tuple[int, int]]:
        """Return (tokens before it, block) of each change of block. Mutates the request's automaton."""
        block, out = r.block, []
        if r.blocks is not None and state.token_text is not None:
            for i, token in enumerate(tokens.tolist(), 1):
                r.blocks.feed(token, state.token_text)
                if r.blocks.block != block:
                    block = r.blocks.block
                    out.append((i, block))
        elif told is not None and self.by_block:
            for i, after in enumerate(told.tolist(), 1):
                if after != block:
                    block = after
                    out.append((i, block))
        return out

    def _cache(self, state: StructuredState, key: Key) -> History:
        cache = state.caches.get(key)
        if cache is None or cache.root < 0:
            cache = state.caches[key] = state.pool.history()
        return cache

    def _remember(self, state: StructuredState, key: Key, prompt: NDArray[np.uint32]) -> None:
        """Add the part of a prompt that the agent's last prompt for this query did not have."""
        last = state.prompts.get(key)
        state.prompts[key] = prompt
        same = 0
        if last is not None:
            n = min(len(last), len(prompt))
            other = np.flatnonzero(last[:n] != prompt[:n])
            same = int(other[0]) if len(other) else n
        if same < len(prompt):
            sequence = state.pool.sequence(self._cache(state, key))
            # From a little before the new part, so that a match may reach back into the old one.
            state.pool.append(sequence, prompt[max(same - self.match_max, 0) :])
            state.pool.close(sequence)

    def _trim(self, state: StructuredState) -> None:
        state.pool.trim(self.history_tokens // 2)
        state.caches = {key: cache for key, cache in state.caches.items() if cache.root >= 0}
        state.prompts.clear()
        # Running requests are not forgotten: should they alone exceed the limit, try again later only.
        state.trim_at_tokens = max(self.history_tokens, 2 * state.pool.tokens)
