"""Draft the recorded tokens: the most that any drafter of so many tokens can gain."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from policies.api import Draft, Drafter, HostInfo, RequestView
from policies.views import Oracle
from traces.errors import InputError


@dataclass(slots=True)
class Truth:
    """The oracle, the draws, and (stage, tokens emitted) of each running request."""

    host: HostInfo
    oracle: Oracle
    at: dict[int, tuple[int, int]] = field(default_factory=dict)


@dataclass(frozen=True)
class OracleDrafts(Drafter[Truth]):
    """Knows what comes; with accuracy below 1 some tokens are wrong, the same ones in every run.

    In a trace without token ids its tokens are zeros, and the host's acceptance process decides as for any drafter.

    k          tokens drafted a step
    accuracy   share of tokens that are right
    """

    label = "oracle drafts"
    needs = frozenset({"oracle"})
    on_cpu = False

    k: int = 8
    accuracy: float = 1.0

    def __post_init__(self) -> None:
        if self.k < 1 or not 0 <= self.accuracy <= 1:
            raise InputError(f"k={self.k}, accuracy={self.accuracy}: expected at least 1, and 0..1")

    def new_state(self, host: HostInfo) -> Truth:
        """Return the host's oracle."""
        assert host.oracle is not None
        return Truth(host, host.oracle)

    def begin(self, state: Truth, request: RequestView, prompt_ids: NDArray[np.uint32]) -> None:
        """Start at the first token. Mutates state."""
        state.at[request.request] = (request.stage, 0)

    def commit(
        self, state: Truth, request: int, tokens: NDArray[np.uint32], blocks: NDArray[np.int8] | None = None
    ) -> None:
        """Go on by so many tokens. Mutates state."""
        stage, position = state.at[request]
        state.at[request] = (stage, position + len(tokens))

    def finish(self, state: Truth, request: int) -> None:
        """Forget the request. Mutates state."""
        del state.at[request]

    def propose(self, state: Truth, request: int, limit: int) -> Draft:
        """Return the next tokens; a wrong one is another number than the right one."""
        stage, position = state.at[request]
        tokens = state.oracle.output_tokens(stage, position, max(min(self.k, limit), 0)).copy()
        n = len(tokens)
        if self.accuracy < 1:
            for i in range(n):
                if state.host.draw("oracle draft", stage, position + i) >= self.accuracy:
                    tokens[i] ^= np.uint32(1)
        confidence = np.full(n, self.accuracy, dtype=np.float64).cumprod().astype(np.float32)
        return Draft(tokens, confidence, n, int(n > 0), int(n > 0))
