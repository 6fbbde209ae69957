"""AgentSpec's redundancy-aware budget: more tokens where the matches in history agree (section 4.2, algorithm 2)."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from policies._budget_room import intensity_tokens, room_tokens
from policies.api import BatchView, Budget, HostInfo, Proposals
from traces.errors import InputError

_MICRO = 1_000_000
_SATURATED = 64  # beyond, exp(1 - n) is below a millionth


@dataclass(frozen=True)
class Redundancy(Budget[tuple[int, ...]]):
    """Divides B_t by the redundancy score g = c/n * p(n); no request gets less than its consensus |CT*|.

    The paper's equations contradict its text (docs/fidelity.md), hence the modes.

    mode    literal: equations 2 and 3, B_t = floor(alpha / b) is the batch's total; per_request: B_t is the mean of
            a request, b times as much in all; capped: our extension, min(alpha, M(b)) in all, and the requests with the
            lowest g give way until the batch fits M(b) = ai - b
    alpha   scale of the budget, tokens
    g_min   least confidence p(n) of few matches (eq1: of one match)
    p       eq1: exponent 1 - n (equation 1); alg2: exponent -n (algorithm 2)
    support  matches that must agree before their |CT*| is granted (1: also what followed once, as equation 3 reads)
    ai      tokens a step may have before it is compute-bound (256 in the paper); 0: the profile's knee
    longest  most tokens a request is asked to draft
    """

    label = "AgentSpec redundancy"
    source = "AgentSpec, section 4.2"

    mode: Literal["literal", "per_request", "capped"] = "literal"
    alpha: int = 128
    g_min: float = 0.2
    p: Literal["eq1", "alg2"] = "eq1"
    support: int = 1
    ai: int = 256
    longest: int = 32

    def __post_init__(self) -> None:
        if min(self.alpha, self.ai, self.longest, self.support) < 0 or not 0 <= self.g_min <= 1:
            raise InputError(
                f"alpha={self.alpha}, ai={self.ai}, longest={self.longest}, support={self.support}, "
                f"g_min={self.g_min}: expected at least 0, and g_min in 0..1"
            )

    def new_state(self, host: HostInfo) -> tuple[int, ...]:
        """Return (AI in tokens, then p(1), p(2), ... in millionths): rounded once, so that no exp decides a log."""
        first = 1 if self.p == "eq1" else 0
        table = [
            round(_MICRO * (self.g_min + (1 - self.g_min) * (1 - math.exp(first - n))))
            for n in range(1, _SATURATED + 1)
        ]
        return (intensity_tokens(self.ai, host.profile), *table)

    def limit(self, state: tuple[int, ...], batch: BatchView) -> int:
        """Return the longest draft of use: the redundancy is only known once a draft was looked up."""
        if self.mode == "capped":
            return min(self.longest, room_tokens(state[0], batch.seqs))
        return self.longest

    def allocate(self, state: tuple[int, ...], proposals: Proposals, batch: BatchView) -> NDArray[np.int32]:
        """Return int32[B]: max(|CT*|, share of the budget), at most what was drafted."""
        seqs = len(proposals.length)
        if not seqs:
            return np.zeros(0, dtype=np.int32)
        drafts = proposals.drafts
        matches = np.array([d.matches for d in drafts], dtype=np.int64)
        agreeing = np.array([d.agreeing for d in drafts], dtype=np.int64)
        consensus = np.array([d.consensus_tokens for d in drafts], dtype=np.int64)
        consensus[agreeing < self.support] = 0
        p = np.array(state, dtype=np.int64)[np.minimum(matches, _SATURATED)]
        score = np.where(matches > 0, agreeing * p // np.maximum(matches, 1), 0)
        room = room_tokens(state[0], batch.seqs)
        total = {
            "literal": self.alpha // seqs,
            "per_request": self.alpha // seqs * seqs,
            "capped": min(self.alpha, room),
        }[self.mode]
        everything = int(score.sum())
        if not everything:  # equation 3 divides by it
            return np.zeros(seqs, dtype=np.int32)
        share = total * score // everything
        got = np.where(matches > 0, np.minimum(np.maximum(consensus, share), proposals.length), 0)
        if self.mode == "capped":
            order = np.argsort(-score, kind="stable")
            before = np.cumsum(got[order]) - got[order]
            got[order] = np.clip(room - before, 0, got[order])
        return got.astype(np.int32)
