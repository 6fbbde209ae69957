"""Prompt lookup: draft what followed the earliest place of the last tokens, vLLM's `ngram` method."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from policies.api import Draft, Drafter, HostInfo, Profile, RequestView
from traces.errors import InputError

_NOTHING = Draft(tokens=np.zeros(0, dtype=np.uint32), confidence=np.zeros(0, dtype=np.float32))


@dataclass(slots=True)
class _Text:
    """A request's tokens, and where each n-gram ended first, by its tokens."""

    tokens: list[int] = field(default_factory=list)
    ends: dict[tuple[int, ...], int] = field(default_factory=dict)


@dataclass(frozen=True)
class NGram(Drafter[dict[int, _Text]]):
    """Looks the longest n-gram up, longest first, and drafts what followed its earliest place (Saxena 2023).

    k           most tokens drafted
    n_max       longest n-gram
    n_min       shortest n-gram, none: n_max, as vLLM sets it when only the maximum is given
    history     with_prompt: in the prompt and what was generated (vLLM); generated: in the latter alone
    ps_per_token  what a search costs a token of context, in ps; vLLM's compiled one took 1,100 to 1,200
    """

    label = "n-gram lookup"
    source = "Saxena 2023; vLLM v1 ngram"

    k: int = 5
    n_max: int = 4
    n_min: int | None = None
    history: Literal["with_prompt", "generated"] = "with_prompt"
    ps_per_token: int = 1_200

    def __post_init__(self) -> None:
        if self.k < 1 or self.n_max < 1 or not 1 <= self._shortest <= self.n_max or self.ps_per_token < 0:
            raise InputError(
                f"k={self.k}, n_min={self.n_min}, n_max={self.n_max}: k and 1 <= n_min <= n_max are at least 1"
            )

    @property
    def _shortest(self) -> int:
        return self.n_max if self.n_min is None else self.n_min

    def new_state(self, host: HostInfo) -> dict[int, _Text]:
        """Return no texts; memory is that of the running requests alone, about 120 bytes a token and length n."""
        return {}

    def begin(self, state: dict[int, _Text], request: RequestView, prompt_ids: NDArray[np.uint32]) -> None:
        """Start with the prompt, or with nothing. Mutates state."""
        state[request.request] = text = _Text()
        if self.history == "with_prompt":
            self._add(text, prompt_ids)

    def commit(
        self,
        state: dict[int, _Text],
        request: int,
        tokens: NDArray[np.uint32],
        blocks: NDArray[np.int8] | None = None,
    ) -> None:
        """Add the tokens. Mutates state."""
        self._add(state[request], tokens)

    def finish(self, state: dict[int, _Text], request: int) -> None:
        """Forget the request. Mutates state."""
        del state[request]

    def propose(self, state: dict[int, _Text], request: int, limit: int) -> Draft:
        """Return what followed the earliest place of the longest n-gram at the end that occurred before."""
        text = state[request]
        end = len(text.tokens)
        for n in range(min(self.n_max, end - 1), self._shortest - 1, -1):
            first = text.ends[tuple(text.tokens[end - n :])]
            if first < end:
                found = text.tokens[first : first + min(self.k, limit)]
                break
        else:
            return _NOTHING
        n = len(found)
        return Draft(np.array(found, dtype=np.uint32), np.ones(n, dtype=np.float32), n, 1, 1)

    def cost_ps(self, profile: Profile, seqs: int, drafted_tokens: int, context_tokens: int = 0) -> int:
        """Return the search through all contexts, which the target does anew every step."""
        return self.ps_per_token * context_tokens

    def _add(self, text: _Text, new: NDArray[np.uint32]) -> None:
        tokens, ends = text.tokens, text.ends
        for token in new.tolist():
            tokens.append(token)
            end = len(tokens)
            for n in range(self._shortest, min(self.n_max, end) + 1):
                ends.setdefault(tuple(tokens[end - n :]), end)
