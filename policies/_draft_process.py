"""Drafters whose tokens only their model could tell: stated acceptance, and a cost in steps of the target."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import accumulate
from operator import mul

import numpy as np
from numpy.typing import NDArray

from policies.api import Draft, Drafter, HostInfo, Profile
from traces.errors import InputError


def rates_of(text: str) -> tuple[float, ...]:
    """Read probabilities divided by slashes; raises InputError unless there is one at least, all in 0..1.

    >>> rates_of("0.8/0.75")
    (0.8, 0.75)
    """
    try:
        rates = tuple(float(part) for part in text.split("/"))
    except ValueError:
        rates = ()
    if not rates or not all(0 <= r <= 1 for r in rates):
        raise InputError(f"rates={text!r}: expected probabilities divided by '/', such as 0.8/0.7/0.6")
    return rates


@dataclass(frozen=True)
class ModelDrafter(Drafter[None]):
    """A chain of k tokens from a small model beside the target; what is accepted is a stated process.

    The options are those of its subclasses, whose defaults differ.
    """

    k: int
    rates: str
    step_permille: int
    fixed_permille: int
    weight_permille: int
    kv_permille: int

    on_cpu = False

    def __post_init__(self) -> None:
        rates_of(self.rates)
        costs = (self.step_permille, self.fixed_permille, self.weight_permille, self.kv_permille)
        if self.k < 1 or min(costs) < 0:
            raise InputError(f"k={self.k} and permilles {costs}: expected k of at least 1 and permilles of 0")

    def new_state(self, host: HostInfo) -> None:
        """There is nothing to remember."""

    def acceptance(self) -> tuple[float, ...]:
        """Return the stated probabilities by place in the draft."""
        return rates_of(self.rates)

    def propose(self, state: None, request: int, limit: int) -> Draft:
        """Return min(k, limit) tokens without identity, as confident as the process is."""
        n = max(min(self.k, limit), 0)
        rates = self.acceptance()
        rates = (rates + rates[-1:] * n)[:n]
        confidence: NDArray[np.float32] = np.array(list(accumulate(rates, mul)), dtype=np.float32)
        return Draft(np.zeros(n, dtype=np.uint32), confidence, n, 1, 1)

    def cost_ps(self, profile: Profile, seqs: int, drafted_tokens: int, context_tokens: int = 0) -> int:
        """Return one pass of the draft model a place in the draft, each a share of a decode step of this batch."""
        if not drafted_tokens or not seqs:
            return 0
        passes = -(-drafted_tokens // seqs)
        step_ps = profile.step_ps(seqs, seqs, context_tokens)
        return step_ps * (self.fixed_permille + passes * self.step_permille) // 1000

    def memory_bytes(self, profile: Profile) -> tuple[int, int]:
        """Return its weights and KV bytes a token on ONE GPU, as shares of the target's."""
        weights = profile.weight_bytes * self.weight_permille // 1000
        return weights, profile.kv_bytes_per_token * self.kv_permille // 1000
