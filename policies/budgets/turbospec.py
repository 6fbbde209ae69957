"""The draft length with the best expected goodput, tokens per second, of the step to come (TurboSpec, SmartSpec)."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from policies.api import BatchView, Budget, HostInfo, Profile, Proposals
from traces.errors import InputError


@dataclass(slots=True)
class Seen:
    """The prices, accepted tokens and trials (both fading), and the steps since anything was drafted."""

    profile: Profile
    accepted: float
    trials: float
    idle: int = 0


@dataclass(frozen=True)
class TurboSpec(Budget[Seen]):
    """Takes the k that maximises sum_i (1 - a^(k_i + 1)) / (1 - a) / T, k_i = min(k, drafted); T from the profile.

    a, the probability that one more token is accepted, is a moving average over the batch's trials; a draft that ends
    in a rejection is one trial more than it has accepted tokens.

    k_max    longest draft
    memory   weight of the past, a step
    prior    a before anything was seen
    probe    where the best k is 0, a step in so many drafts one token all the same, to go on learning
    """

    label = "TurboSpec goodput"
    source = "Liu et al. 2024, 2406.14066"

    k_max: int = 8
    memory: float = 0.9
    prior: float = 0.7
    probe: int = 32

    def __post_init__(self) -> None:
        if self.k_max < 0 or self.probe < 1 or not (0 <= self.memory < 1 and 0 <= self.prior <= 1):
            raise InputError(
                f"k_max={self.k_max}, probe={self.probe}, memory={self.memory}, prior={self.prior}: expected at least "
                "0 and 1, below 1, and 0..1"
            )

    def new_state(self, host: HostInfo) -> Seen:
        """Return the prior, worth one trial."""
        return Seen(host.profile, self.prior, 1.0)

    def limit(self, state: Seen, batch: BatchView) -> int:
        """Return the best k if every request drafts k tokens."""
        if not batch.seqs:
            return 0
        return self._best(state, batch, np.full(batch.seqs, self.k_max, dtype=np.int64))

    def allocate(self, state: Seen, proposals: Proposals, batch: BatchView) -> NDArray[np.int32]:
        """Return int32[B]: min(k, drafted) for the best k given what was drafted."""
        k = self._best(state, batch, proposals.length.astype(np.int64)) if len(proposals.length) else 0
        return np.minimum(proposals.length, np.int32(k))

    def observe(
        self, state: Seen, request: NDArray[np.int32], drafted: NDArray[np.int32], accepted: NDArray[np.int32]
    ) -> None:
        """Count trials. Mutates state."""
        tried = int(accepted.sum()) + int(np.count_nonzero(accepted < drafted))
        if tried:
            state.accepted = state.accepted * self.memory + int(accepted.sum())
            state.trials = state.trials * self.memory + tried
            state.idle = 0
        else:
            state.idle += 1

    def _best(self, state: Seen, batch: BatchView, length: NDArray[np.int64]) -> int:
        """Return the k of the best goodput; of equal ones the smallest."""
        a = state.accepted / state.trials
        tokens_before = batch.prefill_tokens + batch.seqs
        expected, term = float(batch.seqs), 1.0
        best, goodput, drafted = 0, 0.0, 0
        for k in range(self.k_max + 1):
            if k:
                longer = int(np.count_nonzero(length >= k))
                if not longer:
                    break
                drafted += longer
                term *= a
                expected += longer * term
            read = state.profile.verify_read_tokens(1 + k, batch.context_tokens)
            rate = expected / max(state.profile.step_ps(tokens_before + drafted, batch.seqs, read), 1)
            if rate > goodput:
                best, goodput = k, rate
        if not best and self.k_max and state.idle >= self.probe - 1:
            return 1
        return best
